//! Appends lines to the letter file, and rotates it.
//!
//! Several processes can share one file. Before each write the writer checks that its file still has the name, and
//! that the last line is complete.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The settings of a [`JsonLinesSink`](super::JsonLinesSink).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteOptions {
    pub(super) rotate_at: Option<u64>,
    pub(super) sync: bool,
}

/// An encoded letter that waits to be written.
pub(super) struct LetterLine {
    /// Ends with the only newline in it.
    pub(super) bytes: Vec<u8>,
    pub(super) options: WriteOptions,
}

impl LetterLine {
    /// Returns whether this line would make a file of this length too long.
    fn exceeds_limit_after(&self, length: u64) -> bool {
        let after = length.saturating_add(self.bytes.len() as u64);
        self.options.rotate_at.is_some_and(|limit| after > limit)
    }
}

/// The most bytes in one write of several lines.
const MAX_BATCH: usize = 1024 * 1024;

pub(super) struct LetterWriter {
    path: PathBuf,
    file: File,
    /// Whether the directory is synced, so that the file keeps its name after a power failure.
    name_synced: bool,
    /// Writes since the file was opened.
    #[cfg(test)]
    pub(super) writes: usize,
    /// Syncs since the file was opened.
    #[cfg(test)]
    pub(super) syncs: usize,
}

impl LetterWriter {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        Ok(Self {
            file: open_options().create(true).open(&path)?,
            path,
            name_synced: false,
            #[cfg(test)]
            writes: 0,
            #[cfg(test)]
            syncs: 0,
        })
    }

    /// Appends the first line, and in the same write all further lines that belong into the same file.
    ///
    /// Returns the number of lines, and the result for all of them.
    pub(super) fn append(&mut self, lines: &[LetterLine]) -> (usize, io::Result<()>) {
        let mut count = 1;
        let written = self.append_some(lines, &mut count);
        (count, written)
    }

    fn append_some(&mut self, lines: &[LetterLine], count: &mut usize) -> io::Result<()> {
        if !self.file_has_path() {
            match Self::open(self.path.clone()) {
                Ok(new) => *self = new,
                // A renamed file is better than a lost letter.
                Err(_) if self.file_has_any_name() => {}
                Err(error) => return Err(error),
            }
        }
        let mut length = self.file.metadata()?.len();
        // If rotation fails, the file grows: a file that is too large is better than a lost letter.
        if length > 0 && lines[0].exceeds_limit_after(length) && self.rotate().is_ok() {
            // If the new file cannot be created, the old one is still open.
            if let Ok(new) = Self::open(self.path.clone()) {
                *self = new;
                length = self.file.metadata()?.len();
            }
        }
        let mut text = Vec::new();
        // Another process may have died in the middle of a line, or the last write may have failed there.
        // Readers skip a blank line, so an unnecessary newline does no harm.
        if length > 0 && self.last_byte().ok() != Some(b'\n') {
            text.push(b'\n');
        }
        text.extend_from_slice(&lines[0].bytes);
        for line in &lines[1..] {
            let is_too_much = text.len().saturating_add(line.bytes.len()) > MAX_BATCH;
            if is_too_much || line.exceeds_limit_after(length.saturating_add(text.len() as u64)) {
                break;
            }
            text.extend_from_slice(&line.bytes);
            *count += 1;
        }
        #[cfg(test)]
        {
            self.writes += 1;
        }
        self.file.write_all(&text)?;
        if lines[..*count].iter().any(|line| line.options.sync) {
            self.sync()?;
        }
        Ok(())
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

    /// Returns whether the open file is still the one at `path`.
    #[cfg(unix)]
    fn file_has_path(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
        let (open, named) = (self.file.metadata(), fs::metadata(&self.path));
        matches!((open, named), (Ok(open), Ok(named)) if identity(&open) == identity(&named))
    }

    #[cfg(not(unix))]
    fn file_has_path(&self) -> bool {
        self.path.exists()
    }

    /// Returns whether the open file still has any name, so that it can be found.
    #[cfg(unix)]
    fn file_has_any_name(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let metadata = self.file.metadata();
        metadata.is_ok_and(|metadata| metadata.nlink() > 0)
    }

    #[cfg(not(unix))]
    fn file_has_any_name(&self) -> bool {
        false
    }

    /// Renames the file to the next free number.
    ///
    /// It first reserves the number with a second file (`<name>.taken`), which readers ignore. So two processes
    /// cannot rename to the same number. A placeholder under the number itself would not work: a consumer that reads
    /// and removes numbered files could remove the full file that replaces it. A hard link under the new name and
    /// a removal of the old one would not work either: two processes could remove the file that the first created.
    fn rotate(&self) -> io::Result<()> {
        let mut number = rotated_files(&self.path)?
            .last()
            .map_or(1, |(last, _)| last + 1);
        loop {
            let name = with_suffix(&self.path, number);
            let reservation = NumberReservation::new(&name)?;
            if reservation.is_some() && !name_exists(&name) {
                if !self.file_has_path() {
                    // Another process rotated first. The file at the path may be almost empty.
                    return Ok(());
                }
                return fs::rename(&self.path, &name);
            }
            number += 1;
        }
    }
}

/// A number that no other process can use until this is dropped.
///
/// If the process is killed in between, the number stays reserved, and later rotations use the next one.
struct NumberReservation(PathBuf);

impl NumberReservation {
    /// Returns `None` if another process has reserved the number.
    fn new(name: &Path) -> io::Result<Option<Self>> {
        let taken = with_suffix(name, "taken");
        match open_options().create_new(true).open(&taken) {
            Ok(_) => Ok(Some(Self(taken))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for NumberReservation {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns whether the name is in use. A broken symbolic link counts.
fn name_exists(name: &Path) -> bool {
    !matches!(fs::symlink_metadata(name), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Returns the options to open the file. On Unix only the owner may read a new file, because bodies are private.
fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Syncs the directory, which stores the name of a new file. Systems that cannot open a directory do not need it.
fn sync_directory(path: &Path) {
    if let Ok(directory) = File::open(directory_of(path)) {
        let _ = directory.sync_all();
    }
}

fn directory_of(path: &Path) -> &Path {
    let named = path.parent().filter(|parent| *parent != Path::new(""));
    named.unwrap_or(Path::new("."))
}

/// Returns `<path>.<suffix>`.
fn with_suffix(path: &Path, suffix: impl fmt::Display) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{suffix}"));
    PathBuf::from(name)
}

/// Returns the rotated files, sorted by number.
pub(super) fn rotated_files(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory_of(path))? {
        let name = PathBuf::from(entry?.file_name());
        let suffix = name.extension().and_then(OsStr::to_str);
        let number = suffix.and_then(|suffix| suffix.parse().ok());
        if let Some(number) = number.filter(|number| *number < u64::MAX) {
            let rotated = with_suffix(path, number);
            // Other spellings of a number, such as `.007` and `.+7`, are not our files.
            if rotated.file_name() == Some(name.as_os_str()) {
                found.push((number, rotated));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}
