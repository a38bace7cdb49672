//! Stores dead letters in a file, one per line, behind the feature `dead-letter-file`.
//!
//! [`JsonLinesSink`] encodes a letter (`record`), queues the line (`queue`) and appends it to the file (`writer`).
//! [`JsonLinesReader`] reads the file back.

mod queue;
mod reader;
mod record;
mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DeadLetter, DeadLetterSink, Delivery};
use queue::WriteQueue;
pub use reader::{JsonLinesReader, UnreadableLetterError};
use writer::{LetterLine, LetterWriter, WriteOptions};

/// The most bytes in a line. A reader does not read longer lines into memory, so the sink writes none.
const MAX_LINE: u64 = 64 * 1024 * 1024;

/// Stores dead letters in a file, one JSON object per line.
///
/// [`JsonLinesReader`] reads them back.
///
/// ```
/// # use std::sync::Arc;
/// # let directory = std::env::temp_dir().join(format!("steady-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// use reqwest_steady::dead_letter::JsonLinesSink;
///
/// let sink = JsonLinesSink::open(directory.join("letters.jsonl"))?
///     .rotate_at(64 * 1024 * 1024)
///     .sync(true);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A letter is delivered when it is written, so it survives a crash of the process. With
/// [`sync`](JsonLinesSink::sync) it also survives a power failure. After an incomplete line, the next letter starts
/// on a new line, so only one letter is lost.
///
/// A letter is written even if the future of [`deliver`](DeadLetterSink::deliver) is dropped. Letters that arrive
/// during a write are queued, and one blocking thread of the runtime writes them together. The queue holds up to
/// 64 MiB. If the disk is too slow, further letters fail at once. A letter whose line would be longer than 64 MiB
/// also fails, because readers do not accept it.
///
/// The sink never changes or deletes letters. On Unix only the owner may read a file that the sink creates, because
/// letters contain bodies. If another program moves or deletes the file, as logrotate does, the sink creates a new
/// one. (On other systems, only if no file is at the path.)
///
/// Several processes may write to one file on a local disk. With [`rotate_at`](JsonLinesSink::rotate_at), one process
/// may still finish a line in a file that another has just rotated. So wait a moment before you remove a rotated
/// file.
#[derive(Clone)]
pub struct JsonLinesSink {
    path: Arc<PathBuf>,
    queue: Arc<WriteQueue>,
    options: WriteOptions,
}

impl JsonLinesSink {
    /// Opens or creates the file. Its directory must exist.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened. The error names the path, and its
    /// [source](std::error::Error::source) is the system error.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let writer = LetterWriter::open(path.clone()).map_err(|error| open_error(&path, error))?;
        Ok(Self {
            queue: Arc::new(WriteQueue::new(writer, queue::LIMIT)),
            path: Arc::new(path),
            options: WriteOptions::default(),
        })
    }

    /// Starts a new file before the current one exceeds this size.
    ///
    /// The old file is renamed to `<path>.<number>`, with increasing numbers. A file that cannot be renamed
    /// keeps growing. If the path is a symbolic link, the link is renamed, and the new file is at its path.
    ///
    /// Default: files are not rotated.
    #[must_use]
    pub fn rotate_at(mut self, bytes: u64) -> Self {
        self.options.rotate_at = Some(bytes);
        self
    }

    /// Sets whether a letter must be on the disk before it counts as delivered.
    ///
    /// A sync takes milliseconds, once for all queued letters.
    ///
    /// Default: `false`.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.options.sync = sync;
        self
    }

    /// Returns the size at which a new file starts.
    pub fn rotates_at(&self) -> Option<u64> {
        self.options.rotate_at
    }

    /// Returns whether a letter must be on the disk before it counts as delivered.
    pub fn syncs(&self) -> bool {
        self.options.sync
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The error of a file that cannot be opened. Its source is the system error.
#[derive(Debug)]
struct NotOpened {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, error } = self;
        write!(
            f,
            "cannot open dead letter file {}: {error}",
            path.display()
        )
    }
}

impl std::error::Error for NotOpened {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Adds the path to an error.
fn open_error(path: &Path, error: io::Error) -> io::Error {
    let path = path.to_owned();
    io::Error::new(error.kind(), NotOpened { path, error })
}

impl DeadLetterSink for JsonLinesSink {
    fn deliver(&self, letter: Arc<DeadLetter>) -> Delivery<'_> {
        // This runs before the first poll, so that a dropped future does not lose the letter.
        let queued = record::encode(&letter, MAX_LINE).and_then(|bytes| {
            let options = self.options;
            self.queue.push(LetterLine { bytes, options })
        });
        Box::pin(async move {
            let written = queued?.await;
            Ok(written.map_err(|_| "the thread that writes letters panicked")??)
        })
    }
}

impl fmt::Debug for JsonLinesSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonLinesSink")
            .field("path", &self.path)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
