//! Letters that are read back.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::super::DeadLetter;
use super::{MAX_LINE, named, record, writer};

/// An editor may have put it at the beginning of a file. It means nothing.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads the letters that a [`JsonLinesSink`](crate::JsonLinesSink) has written, in their order.
///
/// A line that is no letter is an error, and the next one is read all the same. So is a file that
/// cannot be read: the next file follows.
///
/// What is written to a file after it was opened is not read, so that letters which are given up again
/// while they are replayed do not come back for ever. Only a line that was being written at that moment
/// is read to its end. [`open_all`](JsonLinesReader::open_all) opens the file itself at once, and each
/// rotated one when its turn comes.
///
/// ```no_run
/// use reqwest_steady::JsonLinesReader;
///
/// for letter in JsonLinesReader::open_all("letters.jsonl")? {
///     match letter {
///         Ok(letter) => println!("{letter}"),
///         Err(error) if error.is_torn() => println!("{error}; its call had not returned yet"),
///         Err(error) => println!("{error}"),
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// It reads as a file is read, and so blocks its thread while the disk is busy.
#[derive(Debug)]
pub struct JsonLinesReader {
    path: PathBuf,
    file: Option<Opened>,
    line: u64,
    later: VecDeque<Source>,
    max_line: u64,
}

/// A file that comes later.
#[derive(Debug)]
enum Source {
    Closed(PathBuf),
    Open(PathBuf, Opened),
}

/// A file, and how much of what was in it when it was opened is still to be read.
#[derive(Debug)]
struct Opened {
    file: BufReader<File>,
    left: u64,
}

impl Opened {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        // A pipe says nothing about its length.
        let left = if metadata.is_file() {
            metadata.len()
        } else {
            u64::MAX
        };
        Ok(Self {
            file: BufReader::new(file),
            left,
        })
    }

    /// The next line, with its newline if it has one. Nothing of what comes after `limit` bytes of it
    /// and one more.
    //
    // One that begins before the end is read as far as it goes: if its writer was not done with it
    // when the file was opened, it may be now. It is torn only if it is so after that.
    fn line(&mut self, limit: u64) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        if self.left > 0 {
            let mut bounded = self.file.by_ref().take(limit.saturating_add(1));
            let length = bounded.read_until(b'\n', &mut line)?;
            self.left = self.left.saturating_sub(length as u64);
        }
        Ok(line)
    }

    /// Goes on to the next line.
    fn skip(&mut self) -> io::Result<()> {
        let length = self.file.skip_until(b'\n')?;
        self.left = self.left.saturating_sub(length as u64);
        Ok(())
    }
}

impl JsonLinesReader {
    /// The letters of one file.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let file = Opened::open(&path).map_err(|error| named(&path, error))?;
        Ok(Self::of([Source::Open(path, file)].into()))
    }

    /// The letters of all files that were rotated away, by their numbers, and then of the file itself.
    /// There has to be at least one.
    pub fn open_all(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let list = || writer::numbered(&path).map_err(|error| named(&path, error));
        let mut rotated = list()?;
        let current = loop {
            let current = Opened::open(&path);
            // If the file was rotated away in the meantime, it is another one now.
            let again = list()?;
            if again == rotated {
                break current;
            }
            rotated = again;
        };
        let rotated = rotated.into_iter().map(|(_, path)| Source::Closed(path));
        let mut sources: VecDeque<_> = rotated.collect();
        match current {
            Ok(file) => sources.push_back(Source::Open(path, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !sources.is_empty() => {}
            Err(error) => return Err(named(&path, error)),
        }
        Ok(Self::of(sources))
    }

    fn of(later: VecDeque<Source>) -> Self {
        Self {
            path: PathBuf::new(),
            file: None,
            line: 0,
            later,
            max_line: MAX_LINE,
        }
    }

    /// Goes on to the next file. `None` if there is none.
    fn turn(&mut self) -> Option<io::Result<()>> {
        self.line = 0;
        let opened;
        (self.path, opened) = match self.later.pop_front()? {
            Source::Open(path, file) => (path, Ok(file)),
            Source::Closed(path) => {
                let file = Opened::open(&path);
                (path, file)
            }
        };
        Some(opened.map(|file| self.file = Some(file)))
    }

    /// The letter in the next line that is not blank. `None` at the end of the file.
    fn read(&mut self) -> Option<Result<DeadLetter, Fault>> {
        let file = self.file.as_mut()?;
        loop {
            let mut line = match file.line(self.max_line) {
                Ok(line) if line.is_empty() => return None,
                Ok(line) => line,
                Err(error) => return Some(Err(Fault::Io(error))),
            };
            self.line += 1;
            let whole = line.last() == Some(&b'\n');
            if whole {
                line.pop();
            } else if line.len() as u64 > self.max_line {
                return Some(Err(file.skip().map_or_else(Fault::Io, |()| Fault::TooLong)));
            }
            if self.line == 1 && line.starts_with(BYTE_ORDER_MARK) {
                line.drain(..BYTE_ORDER_MARK.len());
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            return Some(match record::letter(&line) {
                Err(_) if !whole => Err(Fault::Line(record::Fault::Torn)),
                read => read.map_err(Fault::Line),
            });
        }
    }

    fn unreadable(&self, fault: Fault) -> UnreadableLetter {
        UnreadableLetter {
            path: self.path.clone(),
            line: self.line,
            fault,
        }
    }
}

impl Iterator for JsonLinesReader {
    type Item = Result<DeadLetter, UnreadableLetter>;

    fn next(&mut self) -> Option<Self::Item> {
        let fault = loop {
            match self.read() {
                Some(Ok(letter)) => return Some(Ok(letter)),
                Some(Err(fault)) => break fault,
                None => match self.turn()? {
                    Ok(()) => {}
                    Err(error) => break Fault::Io(error),
                },
            }
        };
        if matches!(fault, Fault::Io(_)) {
            self.file = None;
        }
        Some(Err(self.unreadable(fault)))
    }
}

/// A line that is no letter, or a file that cannot be read. The text says which and why, and shows
/// nothing of what is in it.
#[derive(Debug)]
pub struct UnreadableLetter {
    path: PathBuf,
    line: u64,
    fault: Fault,
}

#[derive(Debug)]
enum Fault {
    Line(record::Fault),
    TooLong,
    Io(io::Error),
}

impl UnreadableLetter {
    /// Whether the line ends in the middle, because the process that wrote it ended there, or the disk
    /// was full.
    pub fn is_torn(&self) -> bool {
        matches!(self.fault, Fault::Line(record::Fault::Torn))
    }

    /// The number of the line in its file, from 1 on. If the file could not be read, that of the last
    /// line that could.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for UnreadableLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        if let Fault::Io(_) = self.fault {
            return write!(f, "{path} cannot be read after line {}", self.line);
        }
        write!(f, "line {} of {path} ", self.line)?;
        match &self.fault {
            Fault::Line(record::Fault::Torn) => f.write_str("is cut off in the middle"),
            Fault::Line(record::Fault::Version(version)) => {
                write!(f, "has the version {version}, which is not known here")
            }
            Fault::Line(record::Fault::Syntax { column }) => {
                write!(f, "is no dead letter, from column {column} on")
            }
            Fault::Line(record::Fault::Field(name)) => {
                write!(f, "is no dead letter: its field {name:?} makes no sense")
            }
            Fault::TooLong => write!(f, "is longer than {MAX_LINE} bytes"),
            Fault::Io(_) => Ok(()),
        }
    }
}

impl std::error::Error for UnreadableLetter {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Io(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_beyond_all_measure_is_skipped_without_reading_it_into_memory() {
        let name = format!("steady-long-line-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let faults = |text: &str| -> Vec<_> {
            fs::write(&path, text).unwrap();
            let mut reader = JsonLinesReader::open(&path).unwrap();
            reader.max_line = 10;
            let read = reader.map(|letter| letter.unwrap_err());
            read.map(|error| (error.line(), matches!(error.fault, Fault::TooLong)))
                .collect()
        };
        let long = "x".repeat(1_000_000);
        assert_eq!(
            faults(&format!(
                "0123456789\n0123456789a\n\nshort\n{long}\nshort\n{long}"
            )),
            [
                (1, false),
                (2, true),
                (4, false),
                (5, true),
                (6, false),
                (7, true)
            ]
        );
        fs::remove_file(&path).unwrap();
    }
}
