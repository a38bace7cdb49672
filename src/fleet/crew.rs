//! How many workers there are, by what the store says of each key.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The largest number of this time and the one before counts: a key that few use must not hide that there are many.
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Crew(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// When this window began.
    since: Option<Instant>,
    this: u32,
    last: u32,
    at: Option<Instant>,
}

impl Crew {
    /// The store has said so.
    pub(super) fn note(&self, now: Instant, workers: u32) {
        let mut told = self.lock();
        let age = told.since.map(|since| now.saturating_duration_since(since));
        if age.is_none_or(|age| age >= WINDOW) {
            let recent = age.is_some_and(|age| age < WINDOW * 2);
            told.last = if recent { told.this } else { 0 };
            told.this = 0;
            told.since = Some(now);
        }
        told.this = told.this.max(workers);
        told.at = Some(now);
    }

    /// As far as is known. While the store says nothing, it is what it said last.
    pub(super) fn count(&self) -> u32 {
        let told = self.lock();
        told.this.max(told.last).max(1)
    }

    /// Whether the store has said something of late.
    pub(super) fn is_told(&self, now: Instant) -> bool {
        let recent = |at| now.saturating_duration_since(at) < WINDOW;
        self.lock().at.is_some_and(recent)
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        // Nothing in there panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_of_late_counts_and_stays_while_the_store_says_nothing() {
        let crew = Crew::default();
        let start = crate::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!((crew.count(), crew.is_told(at(0))), (1, false));
        for second in 0..15 {
            crew.note(at(second), 8);
            crew.note(at(second), 1);
            assert_eq!(crew.count(), 8);
        }
        assert!(crew.is_told(at(23)));
        assert!(!crew.is_told(at(24)));
        // There was an outage. Since then there are three.
        assert_eq!(crew.count(), 8);
        crew.note(at(24), 3);
        assert_eq!(crew.count(), 8);
        crew.note(at(34), 3);
        assert_eq!(crew.count(), 3);
    }
}
