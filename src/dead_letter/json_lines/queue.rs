//! Lines that wait to be written, by one thread at a time and as many of them at once as there are.

use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::writer::{Line, Writer};

/// So many bytes may wait. A disk that hangs must not take all memory.
const LIMIT: usize = 64 * 1024 * 1024;

pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    writer: Mutex<Writer>,
    limit: usize,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<Line>,
    /// Who learns what became of each line.
    senders: Vec<oneshot::Sender<io::Result<()>>>,
    /// With those that are being written.
    bytes: usize,
    /// Whether there is a [`Job`], which will see whatever is added.
    has_job: bool,
}

impl Queue {
    pub(super) fn new(writer: Writer) -> Self {
        Self {
            waiting: Mutex::default(),
            writer: Mutex::new(writer),
            limit: LIMIT,
        }
    }

    /// Adds a line, which will be written whether or not somebody waits for that.
    pub(super) fn push(
        self: &Arc<Self>,
        line: Line,
    ) -> io::Result<oneshot::Receiver<io::Result<()>>> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        let bytes = waiting.bytes.saturating_add(line.bytes.len());
        // One is always taken, however long it is.
        if waiting.bytes > 0 && bytes > self.limit {
            return Err(io::Error::other(format!(
                "{} bytes wait to be written already, and {} may at most",
                waiting.bytes, self.limit
            )));
        }
        let runtime = match waiting.has_job {
            true => None,
            false => Some(Handle::try_current().map_err(io::Error::other)?),
        };
        waiting.lines.push(line);
        waiting.senders.push(sender);
        waiting.bytes = bytes;
        waiting.has_job = true;
        // A runtime that is shutting down drops the job here and now.
        drop(waiting);
        if let Some(runtime) = runtime {
            let job = Job(self.clone());
            runtime.spawn_blocking(move || drop(job));
        }
        Ok(receiver)
    }

    /// Writes until nothing waits.
    fn drain(&self) {
        let mut writer = lock(&self.writer);
        loop {
            let mut waiting = lock(&self.waiting);
            let lines = mem::take(&mut waiting.lines);
            let senders = mem::take(&mut waiting.senders);
            waiting.has_job = !lines.is_empty();
            drop(waiting);
            if lines.is_empty() {
                return;
            }
            let mut senders = senders.into_iter();
            let mut rest = &lines[..];
            while !rest.is_empty() {
                let (count, written) = writer.append(rest);
                for sender in senders.by_ref().take(count) {
                    // Whoever does not wait any more need not know.
                    let _ = sender.send(same(&written));
                }
                rest = &rest[count..];
            }
            let bytes: usize = lines.iter().map(|line| line.bytes.len()).sum();
            lock(&self.waiting).bytes -= bytes;
        }
    }
}

/// Writes all that waits when it is dropped: after the runtime has given it a thread, or because the
/// runtime is shutting down and gives none. Then this is the last chance for the letters.
struct Job(Arc<Queue>);

impl Drop for Job {
    fn drop(&mut self) {
        if catch_unwind(AssertUnwindSafe(|| self.0.drain())).is_err() {
            // The next line begins anew, and nobody waits for one that is not written.
            *lock(&self.0.waiting) = Waiting::default();
        }
    }
}

/// What became of one write is told to many.
fn same(written: &io::Result<()>) -> io::Result<()> {
    let Err(error) = written else { return Ok(()) };
    Err(match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
