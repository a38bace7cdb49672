//! A file of letters, one in each line, behind the feature `dead-letter-file`.

mod queue;
mod reader;
mod record;
mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DeadLetter, DeadLetterSink, Delivery};
use queue::Queue;
pub use reader::{JsonLinesReader, UnreadableLetter};
use writer::{Line, Options, Writer};

/// A longer line is not read into memory, and so not written either.
const MAX_LINE: u64 = 64 * 1024 * 1024;

/// Keeps dead letters in a file, one JSON object in each line. [`JsonLinesReader`] reads them.
///
/// ```
/// # use std::sync::Arc;
/// # let directory = std::env::temp_dir().join(format!("steady-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// use reqwest_steady::JsonLinesSink;
///
/// let sink = JsonLinesSink::open(directory.join("letters.jsonl"))?
///     .rotate_at(64 * 1024 * 1024)
///     .sync(true);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A letter is delivered when it is written, so it survives whatever happens to the process after
/// that; with [`sync`](JsonLinesSink::sync), a power cut as well. One that was cut off in the middle
/// costs only itself: the next begins in a line of its own.
///
/// It is written once [`deliver`](DeadLetterSink::deliver) was called, even if nobody waits for that any
/// more. Letters that come while others are being written wait, and are then written together, by one
/// thread of the runtime. Up to 64 MiB may wait; if the disk is too slow for that, further letters fail
/// at once. So does one whose line would itself be longer than 64 MiB, for it would not be read.
///
/// Nothing in the file is ever changed or deleted. Since letters have bodies in them, on Unix only its
/// owner may read a file that this creates. A file that was moved away or deleted by somebody else, as
/// logrotate does, is created again (on other systems than Unix, only if there is none in its place).
/// Several processes may write to one file, if it is on a local disk. With
/// [`rotate_at`](JsonLinesSink::rotate_at), one of them may then still finish a line in a file that
/// another has just rotated away: wait a moment before you remove such a file.
#[derive(Clone)]
pub struct JsonLinesSink {
    path: Arc<PathBuf>,
    queue: Arc<Queue>,
    options: Options,
}

impl JsonLinesSink {
    /// Opens the file, or creates it. Its directory must exist.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened. The error names the path, and its
    /// [source](std::error::Error::source) is the error of the system.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let writer = Writer::open(path.clone()).map_err(|error| named(&path, error))?;
        Ok(Self {
            queue: Arc::new(Queue::new(writer)),
            path: Arc::new(path),
            options: Options::default(),
        })
    }

    /// Before the file would get larger than so many bytes, it is renamed to `<path>.<number>`, one
    /// number after the other, and a new one begun. A file that cannot be renamed grows on. If the path
    /// is a symbolic link, the link is renamed, and the new file is in its place.
    #[must_use]
    pub fn rotate_at(mut self, bytes: u64) -> Self {
        self.options.rotate_at = Some(bytes);
        self
    }

    /// Whether each letter has to be on the disk before it counts as delivered. Off by default: that
    /// takes milliseconds, though once for all that wait.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.options.sync = sync;
        self
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An error about a file. Its source is the error of the system, with its code.
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

/// The same error, with the file that it is about.
fn named(path: &Path, error: io::Error) -> io::Error {
    let path = path.to_owned();
    io::Error::new(error.kind(), NotOpened { path, error })
}

impl DeadLetterSink for JsonLinesSink {
    fn deliver(&self, letter: Arc<DeadLetter>) -> Delivery<'_> {
        // Now, and not when it is first polled: whoever drops the future has handed the letter over.
        let queued = record::line(&letter, MAX_LINE).and_then(|bytes| {
            let options = self.options;
            self.queue.push(Line { bytes, options })
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

/// What a [`JsonLinesSink`] does, without its queue and on the thread that asks. `properties` does it
/// millions of times, and would wait for another thread most of the time.
#[cfg(any(test, all(fuzzing, feature = "testing")))]
pub(crate) struct SameThreadSink(Writer);

#[cfg(any(test, all(fuzzing, feature = "testing")))]
impl SameThreadSink {
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        Writer::open(path).map(Self)
    }

    pub(crate) fn write(
        &mut self,
        letters: &[Arc<DeadLetter>],
        rotate_at: Option<u64>,
    ) -> io::Result<()> {
        let sync = false;
        let options = Options { rotate_at, sync };
        let line = |letter: &Arc<DeadLetter>| {
            let bytes = record::line(letter, MAX_LINE)?;
            Ok(Line { bytes, options })
        };
        let lines: Vec<_> = letters.iter().map(line).collect::<io::Result<_>>()?;
        let mut rest = &lines[..];
        while !rest.is_empty() {
            let (count, written) = self.0.append(rest);
            written?;
            rest = &rest[count..];
        }
        Ok(())
    }
}
