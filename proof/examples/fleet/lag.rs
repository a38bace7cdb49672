//! Measures whether the machine lets this process run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(5);

/// The longest time for which the machine delayed this process.
pub(crate) struct Lag(Arc<AtomicU64>);

impl Lag {
    /// Measures every few milliseconds, until this is dropped.
    pub(crate) fn watch() -> Self {
        let longest = Arc::new(AtomicU64::new(0));
        let watched = Arc::downgrade(&longest);
        thread::spawn(move || {
            loop {
                let begun = Instant::now();
                thread::sleep(STEP);
                let late = begun.elapsed().saturating_sub(STEP);
                let Some(longest) = watched.upgrade() else {
                    return;
                };
                longest.fetch_max(late.as_micros() as u64, Ordering::Relaxed);
            }
        });
        Self(longest)
    }

    /// Returns the longest lag since the last call.
    pub(crate) fn take(&self) -> Duration {
        Duration::from_micros(self.0.swap(0, Ordering::Relaxed))
    }
}
