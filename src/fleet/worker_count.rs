//! How many workers share the store, as its leases report.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::two_windows::{Advance, TwoWindows};

/// The largest number of this window and the previous one counts: a key with few workers must not hide that
/// another has many.
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct WorkerCount(Mutex<Option<Reports>>);

#[derive(Debug)]
struct Reports {
    first: Instant,
    /// The largest number that was reported in each window. Times count from `first`.
    largest: TwoWindows,
    last: Instant,
}

impl WorkerCount {
    /// Takes the number that came with a lease.
    pub(super) fn note(&self, now: Instant, workers: u32) {
        let mut reports = lock(&self.0);
        let reports = reports.get_or_insert_with(|| Reports {
            first: now,
            largest: TwoWindows::new(WINDOW, Duration::ZERO),
            last: now,
        });
        let age = now.saturating_duration_since(reports.first);
        let largest = &mut reports.largest;
        if largest.advance(age) != Advance::Same {
            // A window begins with its first report.
            largest.start_at(age);
        }
        largest.current = largest.current.max(workers);
        reports.last = now;
    }

    /// Returns the last known number, at least 1. It does not expire: an outage of the store keeps it.
    pub(super) fn count(&self) -> u32 {
        let largest = |reports: &Reports| reports.largest.max();
        lock(&self.0).as_ref().map_or(1, largest).max(1)
    }

    /// Whether a lease has reported a number within the last window.
    pub(super) fn is_recent(&self, now: Instant) -> bool {
        let recent = |reports: &Reports| now.saturating_duration_since(reports.last) < WINDOW;
        lock(&self.0).as_ref().is_some_and(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_recent_number_stays_while_the_store_is_silent() {
        let workers = WorkerCount::default();
        let start = crate::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!((workers.count(), workers.is_recent(at(0))), (1, false));
        for second in 0..15 {
            workers.note(at(second), 8);
            workers.note(at(second), 1);
            assert_eq!(workers.count(), 8);
        }
        assert!(workers.is_recent(at(23)));
        assert!(!workers.is_recent(at(24)));
        // After an outage there are three.
        assert_eq!(workers.count(), 8);
        workers.note(at(24), 3);
        assert_eq!(workers.count(), 8);
        workers.note(at(34), 3);
        assert_eq!(workers.count(), 3);
    }
}
