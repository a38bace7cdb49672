//! The file that letters are appended to, and the files before it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) rotate_at: Option<u64>,
    pub(super) sync: bool,
}

/// A line, with its newline, and how it is to be written.
pub(super) struct Line {
    pub(super) bytes: Vec<u8>,
    pub(super) options: Options,
}

impl Line {
    /// Whether a file that is so long should not get this line any more.
    fn is_too_much_after(&self, length: u64) -> bool {
        let after = length.saturating_add(self.bytes.len() as u64);
        self.options.rotate_at.is_some_and(|limit| after > limit)
    }
}

/// So many bytes are written at once, if there are several lines.
const TOGETHER: usize = 1024 * 1024;

pub(super) struct Writer {
    path: PathBuf,
    file: File,
    /// Whether the file would be found by its name after a power cut.
    name_synced: bool,
    /// Since it was opened.
    #[cfg(test)]
    pub(super) writes: usize,
    #[cfg(test)]
    pub(super) syncs: usize,
}

impl Writer {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        Ok(Self {
            file: options().create(true).open(&path)?,
            path,
            name_synced: false,
            #[cfg(test)]
            writes: 0,
            #[cfg(test)]
            syncs: 0,
        })
    }

    /// Appends the first of these lines, and with the same write as many of the next as belong into
    /// the same file. Returns how many that were, and what became of them.
    pub(super) fn append(&mut self, lines: &[Line]) -> (usize, io::Result<()>) {
        let mut count = 1;
        let written = self.append_some(lines, &mut count);
        (count, written)
    }

    fn append_some(&mut self, lines: &[Line], count: &mut usize) -> io::Result<()> {
        if !self.is_in_its_place() {
            match Self::open(self.path.clone()) {
                Ok(new) => *self = new,
                // Rather in a file with another name than nowhere.
                Err(_) if self.has_a_name() => {}
                Err(error) => return Err(error),
            }
        }
        let mut length = self.file.metadata()?.len();
        // Rather a file that is too large than a letter that is lost.
        if length > 0 && lines[0].is_too_much_after(length) && self.rotate().is_ok() {
            // If there can be no new one, the old one is still open.
            if let Ok(new) = Self::open(self.path.clone()) {
                *self = new;
                length = self.file.metadata()?.len();
            }
        }
        let mut bytes = lines[0].bytes.len();
        for line in &lines[1..] {
            let before = length.saturating_add(bytes as u64);
            bytes = bytes.saturating_add(line.bytes.len());
            if bytes > TOGETHER || line.is_too_much_after(before) {
                break;
            }
            *count += 1;
        }
        let lines = &lines[..*count];
        // Looked at each time: another process may have ended in the middle of a line, or the last
        // write may have failed there. A line in vain is blank, and nobody minds.
        let is_torn = length > 0 && self.last_byte().ok() != Some(b'\n');
        self.write(lines, is_torn)?;
        if lines.iter().any(|line| line.options.sync) {
            self.sync()?;
        }
        Ok(())
    }

    fn write(&mut self, lines: &[Line], is_torn: bool) -> io::Result<()> {
        #[cfg(test)]
        {
            self.writes += 1;
        }
        if let ([line], false) = (lines, is_torn) {
            return self.file.write_all(&line.bytes);
        }
        let mut text = Vec::new();
        if is_torn {
            text.push(b'\n');
        }
        for line in lines {
            text.extend_from_slice(&line.bytes);
        }
        self.file.write_all(&text)
    }

    fn sync(&mut self) -> io::Result<()> {
        #[cfg(test)]
        {
            self.syncs += 1;
        }
        self.file.sync_data()?;
        if !self.name_synced {
            sync_directory(&self.path);
            self.name_synced = true;
        }
        Ok(())
    }

    fn last_byte(&mut self) -> io::Result<u8> {
        let mut last = [0];
        self.file.seek(SeekFrom::End(-1))?;
        self.file.read_exact(&mut last)?;
        Ok(last[0])
    }

    /// Whether the open file is still the one that has the name.
    #[cfg(unix)]
    fn is_in_its_place(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
        let (open, named) = (self.file.metadata(), fs::metadata(&self.path));
        matches!((open, named), (Ok(open), Ok(named)) if identity(&open) == identity(&named))
    }

    #[cfg(not(unix))]
    fn is_in_its_place(&self) -> bool {
        self.path.exists()
    }

    /// Whether the open file can still be found, by whatever name.
    #[cfg(unix)]
    fn has_a_name(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let metadata = self.file.metadata();
        metadata.is_ok_and(|metadata| metadata.nlink() > 0)
    }

    #[cfg(not(unix))]
    fn has_a_name(&self) -> bool {
        false
    }

    /// Gives the file the next number that is free.
    ///
    /// The number is taken first, under a name that no reader looks at, so that two processes cannot
    /// rename to the same one. Under the name itself there is never anything but a full file: whoever
    /// reads and removes such files would remove a placeholder as well, and with it what takes its
    /// place in that moment. (A hard link under the new name, and then the removal of the old one,
    /// would not do either: two processes at once would remove the file that the first has just begun.)
    fn rotate(&self) -> io::Result<()> {
        let mut number = numbered(&self.path)?.last().map_or(1, |(last, _)| last + 1);
        loop {
            let name = with_number(&self.path, number);
            let taken = Taken::of(&name)?;
            if taken.is_some() && !is_there(&name) {
                if !self.is_in_its_place() {
                    // Another process was faster, and what has the name now need not be full.
                    return Ok(());
                }
                return fs::rename(&self.path, &name);
            }
            number += 1;
        }
    }
}

/// A number that no other process can take meanwhile. If this one is killed here, it stays taken, and
/// the next number is as good.
struct Taken(PathBuf);

impl Taken {
    /// `None` if somebody else has it.
    fn of(name: &Path) -> io::Result<Option<Self>> {
        let mut taken = OsString::from(name);
        taken.push(".taken");
        let taken = PathBuf::from(taken);
        match options().create_new(true).open(&taken) {
            Ok(_) => Ok(Some(Self(taken))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Whether the name is in use. A link that leads nowhere is something as well.
fn is_there(name: &Path) -> bool {
    !matches!(fs::symlink_metadata(name), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Bodies are private, so on Unix nobody else may read a file that is created.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A new name is on the disk when its directory is. Where that cannot be asked for, it need not.
fn sync_directory(path: &Path) {
    if let Ok(directory) = File::open(directory_of(path)) {
        let _ = directory.sync_all();
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn with_number(path: &Path, number: u64) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// The files that were rotated away, by their numbers.
pub(super) fn numbered(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let own = path.file_name().map(OsStr::as_encoded_bytes);
    let own = own.unwrap_or_default();
    let mut found = Vec::new();
    for entry in fs::read_dir(directory_of(path))? {
        let name = entry?.file_name();
        let number = (name.as_encoded_bytes().strip_prefix(own))
            .and_then(|rest| rest.strip_prefix(b"."))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| digits.parse().ok());
        // As we would have written it: `.007` and `.+7` are somebody else's.
        if let Some(number) = number {
            let whole = with_number(path, number);
            if whole.file_name() == Some(&name) && number < u64::MAX {
                found.push((number, whole));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}
