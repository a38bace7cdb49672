//! Queues lines for one writer thread.
//!
//! In an outage many calls give up at the same time. One thread writes all queued lines together, with one sync.

use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::writer::{LetterLine, LetterWriter};
use crate::lock::lock;

/// The most bytes in the queue, so that a blocked disk does not fill the memory.
const LIMIT: usize = 64 * 1024 * 1024;

pub(super) struct WriteQueue {
    pending: Mutex<PendingLines>,
    /// Locked by the writer thread before `pending`.
    writer: Mutex<LetterWriter>,
    limit: usize,
}

#[derive(Default)]
struct PendingLines {
    lines: Vec<LetterLine>,
    /// Receives the result of the line with the same index.
    senders: Vec<oneshot::Sender<io::Result<()>>>,
    /// The bytes of `lines`, and of the lines that are being written.
    bytes: usize,
    /// Whether there is a [`WriteJob`], which will write all lines in `lines`.
    has_job: bool,
}

impl WriteQueue {
    pub(super) fn new(writer: LetterWriter) -> Self {
        Self {
            pending: Mutex::default(),
            writer: Mutex::new(writer),
            limit: LIMIT,
        }
    }

    /// Adds a line. It is written even if the receiver is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the queue is full, or if there is no runtime.
    pub(super) fn push(
        self: &Arc<Self>,
        line: LetterLine,
    ) -> io::Result<oneshot::Receiver<io::Result<()>>> {
        let (sender, receiver) = oneshot::channel();
        let mut pending = lock(&self.pending);
        let bytes = pending.bytes.saturating_add(line.bytes.len());
        // An empty queue accepts a line of any length.
        if pending.bytes > 0 && bytes > self.limit {
            return Err(io::Error::other(format!(
                "{} bytes wait to be written already, and {} may at most",
                pending.bytes, self.limit
            )));
        }
        let runtime = match pending.has_job {
            true => None,
            false => Some(Handle::try_current().map_err(io::Error::other)?),
        };
        pending.lines.push(line);
        pending.senders.push(sender);
        pending.bytes = bytes;
        pending.has_job = true;
        // A runtime that is shutting down drops the job in `spawn_blocking`, and its drop locks `pending`.
        drop(pending);
        if let Some(runtime) = runtime {
            let job = WriteJob(self.clone());
            runtime.spawn_blocking(move || drop(job));
        }
        Ok(receiver)
    }

    /// Writes until the queue is empty.
    fn drain(&self) {
        let mut writer = lock(&self.writer);
        loop {
            let mut pending = lock(&self.pending);
            let lines = mem::take(&mut pending.lines);
            let senders = mem::take(&mut pending.senders);
            pending.has_job = !lines.is_empty();
            drop(pending);
            if lines.is_empty() {
                return;
            }
            let mut senders = senders.into_iter();
            let mut rest = &lines[..];
            while !rest.is_empty() {
                let (count, written) = writer.append(rest);
                for sender in senders.by_ref().take(count) {
                    // The receiver may be dropped.
                    let _ = sender.send(clone_result(&written));
                }
                rest = &rest[count..];
            }
            let bytes: usize = lines.iter().map(|line| line.bytes.len()).sum();
            lock(&self.pending).bytes -= bytes;
        }
    }
}

/// Writes all queued lines when it is dropped.
///
/// The runtime drops it on a blocking thread. A runtime that is shutting down drops it at once; this is then the last
/// chance to write the letters.
struct WriteJob(Arc<WriteQueue>);

impl Drop for WriteJob {
    fn drop(&mut self) {
        if catch_unwind(AssertUnwindSafe(|| self.0.drain())).is_err() {
            // This drops the senders, so that no delivery waits for a line that is not written.
            *lock(&self.0.pending) = PendingLines::default();
        }
    }
}

/// Copies the result of one write for each of its lines.
fn clone_result(written: &io::Result<()>) -> io::Result<()> {
    let Err(error) = written else { return Ok(()) };
    Err(match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    })
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
