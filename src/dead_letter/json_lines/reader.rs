//! Reads letters from files, in the order in which they were written.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::record::{self, InvalidLine};
use super::{MAX_LINE, open_error, writer};
use crate::dead_letter::DeadLetter;

/// Some editors write this at the start of a file. It is skipped.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads the letters that a [`JsonLinesSink`](crate::dead_letter::JsonLinesSink) wrote, in the same order.
///
/// A line that is not a letter gives an error, and reading continues with the next line. A file that cannot be
/// read gives an error, and reading continues with the next file.
///
/// Lines that are added after the file was opened are not read. This way a letter that fails again during its
/// replay does not come back forever. Only a line that was incomplete at that moment is read to its end.
/// [`open_all`](JsonLinesReader::open_all) opens the current file at once, and each rotated file when it is reached.
///
/// ```no_run
/// use reqwest_steady::dead_letter::JsonLinesReader;
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
/// Reading blocks the thread.
#[derive(Debug)]
pub struct JsonLinesReader {
    /// The path of the file that is read now.
    path: PathBuf,
    file: Option<OpenFile>,
    /// The number of the last line that was read from `file`.
    line: u64,
    /// The files that follow.
    later: VecDeque<LetterSource>,
    max_line: u64,
}

/// The path of a file to read, and the file if it is open already.
type LetterSource = (PathBuf, Option<OpenFile>);

/// An open file that is read up to its length at opening.
#[derive(Debug)]
struct OpenFile {
    file: BufReader<File>,
    /// The bytes that are left of that length.
    left: u64,
}

impl OpenFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        // A pipe has no length.
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

    /// Reads the next line with its newline, but at most `limit + 1` bytes of it.
    ///
    /// A line that starts before the end is read completely. If its writer was still busy when the file was
    /// opened, the line may be complete now.
    fn read_line(&mut self, limit: u64) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        if self.left > 0 {
            let mut bounded = self.file.by_ref().take(limit.saturating_add(1));
            let length = bounded.read_until(b'\n', &mut line)?;
            self.left = self.left.saturating_sub(length as u64);
        }
        Ok(line)
    }

    /// Skips the rest of the line.
    fn skip_line(&mut self) -> io::Result<()> {
        let length = self.file.skip_until(b'\n')?;
        self.left = self.left.saturating_sub(length as u64);
        Ok(())
    }
}

impl JsonLinesReader {
    /// Opens one file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened. The error names the path.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let file = OpenFile::open(&path).map_err(|error| open_error(&path, error))?;
        Ok(Self::new([(path, Some(file))].into()))
    }

    /// Opens all rotated files, in the order of their numbers, and then the current file.
    ///
    /// # Errors
    ///
    /// Fails if there is no file at all, or if the directory or the current file cannot be read.
    pub fn open_all(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let list = || writer::rotated_files(&path).map_err(|error| open_error(&path, error));
        let mut rotated = list()?;
        let current = loop {
            let current = OpenFile::open(&path);
            // If the file was rotated in the meantime, the path has a new file.
            let again = list()?;
            if again == rotated {
                break current;
            }
            rotated = again;
        };
        let rotated = rotated.into_iter().map(|(_, path)| (path, None));
        let mut sources: VecDeque<_> = rotated.collect();
        match current {
            Ok(file) => sources.push_back((path, Some(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !sources.is_empty() => {}
            Err(error) => return Err(open_error(&path, error)),
        }
        Ok(Self::new(sources))
    }

    fn new(later: VecDeque<LetterSource>) -> Self {
        Self {
            path: PathBuf::new(),
            file: None,
            line: 0,
            later,
            max_line: MAX_LINE,
        }
    }

    /// Reads the next letter. Returns `None` after the last one.
    fn read(&mut self) -> Result<Option<DeadLetter>, ReadFault> {
        loop {
            let Some(file) = &mut self.file else {
                let Some((path, file)) = self.later.pop_front() else {
                    return Ok(None);
                };
                (self.path, self.line) = (path, 0);
                let file = file.map_or_else(|| OpenFile::open(&self.path), Ok);
                self.file = Some(file.map_err(ReadFault::Io)?);
                continue;
            };
            let line = file.read_line(self.max_line).map_err(ReadFault::Io)?;
            if line.is_empty() {
                self.file = None;
                continue;
            }
            self.line += 1;
            let whole = line.strip_suffix(b"\n");
            if whole.is_none() && line.len() as u64 > self.max_line {
                file.skip_line().map_err(ReadFault::Io)?;
                return Err(ReadFault::Line(InvalidLine::TooLong));
            }
            let mut text = whole.unwrap_or(&line);
            if self.line == 1 {
                text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
            }
            if text.trim_ascii().is_empty() {
                continue;
            }
            return match record::decode(text) {
                Ok(letter) => Ok(Some(letter)),
                Err(_) if whole.is_none() => Err(ReadFault::Line(InvalidLine::Torn)),
                Err(invalid) => Err(ReadFault::Line(invalid)),
            };
        }
    }
}

impl Iterator for JsonLinesReader {
    type Item = Result<DeadLetter, UnreadableLetterError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().map_err(|fault| {
            if let ReadFault::Io(_) = fault {
                self.file = None;
            }
            let (path, line) = (self.path.clone(), self.line);
            UnreadableLetterError { path, line, fault }
        });
        read.transpose()
    }
}

/// Describes a line that is not a letter, or a file that cannot be read.
///
/// The text names the file, the line and the reason. It shows no data from the file.
#[derive(Debug)]
pub struct UnreadableLetterError {
    path: PathBuf,
    line: u64,
    fault: ReadFault,
}

#[derive(Debug)]
enum ReadFault {
    Line(InvalidLine),
    Io(io::Error),
}

impl UnreadableLetterError {
    /// Returns whether the line is incomplete, because its writer was killed or the disk was full.
    pub fn is_torn(&self) -> bool {
        matches!(self.fault, ReadFault::Line(InvalidLine::Torn))
    }

    /// Returns the number of the line in its file, starting at 1.
    ///
    /// If the file could not be read, this is the last line that could.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for UnreadableLetterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, path) = (self.line, self.path.display());
        match &self.fault {
            ReadFault::Line(invalid) => write!(f, "line {line} of {path} {invalid}"),
            ReadFault::Io(_) => write!(f, "{path} cannot be read after line {line}"),
        }
    }
}

impl std::error::Error for UnreadableLetterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            ReadFault::Io(error) => Some(error),
            ReadFault::Line(_) => None,
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
        let is_too_long = |error: &UnreadableLetterError| {
            matches!(error.fault, ReadFault::Line(InvalidLine::TooLong))
        };
        let faults = |text: &str| -> Vec<_> {
            fs::write(&path, text).unwrap();
            let mut reader = JsonLinesReader::open(&path).unwrap();
            reader.max_line = 10;
            let read = reader.map(|letter| letter.unwrap_err());
            read.map(|error| (error.line(), is_too_long(&error)))
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
