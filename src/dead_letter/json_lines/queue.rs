//! Queues lines for one writer thread.
//!
//! In an outage many calls give up at the same time. One thread writes all queued lines together, with one sync.

use std::io;
use std::mem;
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::writer::{LetterLine, LetterWriter};
use crate::lock::lock;

/// The most bytes in the queue, so that a blocked disk does not fill the memory.
pub(super) const LIMIT: u32 = 64 * 1024 * 1024;

pub(super) struct WriteQueue {
    /// While there are any, a [`WriteJob`] exists that will write all of them.
    pending: Mutex<Vec<(LetterLine, LineReceipt)>>,
    /// Locked before `pending`.
    writer: Mutex<LetterWriter>,
    /// One permit for each byte that can still be queued.
    room: Arc<Semaphore>,
    limit: u32,
}

/// What a line holds until it is written.
struct LineReceipt {
    room: OwnedSemaphorePermit,
    result: oneshot::Sender<io::Result<()>>,
}

impl WriteQueue {
    pub(super) fn new(writer: LetterWriter, limit: u32) -> Self {
        Self {
            pending: Mutex::default(),
            writer: Mutex::new(writer),
            room: Arc::new(Semaphore::new(limit as usize)),
            limit,
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
        // An empty queue accepts a line of any length.
        let bytes = u32::try_from(line.bytes.len()).unwrap_or(u32::MAX);
        let room = self.room.clone();
        let Ok(room) = room.try_acquire_many_owned(bytes.min(self.limit)) else {
            let queued = self.limit as usize - self.room.available_permits();
            let limit = self.limit;
            let full =
                format!("{queued} bytes wait to be written already, and {limit} may at most");
            return Err(io::Error::other(full));
        };
        let (result, receiver) = oneshot::channel();
        let mut pending = lock(&self.pending);
        let runtime = match pending.is_empty() {
            true => Some(Handle::try_current().map_err(io::Error::other)?),
            false => None,
        };
        pending.push((line, LineReceipt { room, result }));
        // A runtime that is shutting down drops the job in `spawn_blocking`, and its drop locks `pending`.
        drop(pending);
        if let Some(runtime) = runtime {
            let job = WriteJob(self.clone());
            runtime.spawn_blocking(move || drop(job));
        }
        Ok(receiver)
    }
}

/// Writes all queued lines when it is dropped.
///
/// The runtime drops it on a blocking thread. A runtime that is shutting down drops it at once; this is then the last
/// chance to write the letters. At most two jobs exist: one that writes, and one that waits for the writer.
struct WriteJob(Arc<WriteQueue>);

impl Drop for WriteJob {
    fn drop(&mut self) {
        let mut writer = lock(&self.0.writer);
        let pending = mem::take(&mut *lock(&self.0.pending));
        let (lines, receipts): (Vec<_>, Vec<_>) = pending.into_iter().unzip();
        let mut receipts = receipts.into_iter();
        let mut rest = &lines[..];
        while !rest.is_empty() {
            let (count, written) = writer.append(rest);
            for LineReceipt { room, result } in receipts.by_ref().take(count) {
                drop(room);
                // The receiver may be dropped.
                let _ = result.send(clone_result(&written));
            }
            rest = &rest[count..];
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
