//! Whether the store answers, said in the log when it changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::FleetError;

/// Without a failure for so long, it is back. That is longer than those who are refused wait until they ask again, so
/// one key that always fails does not make it come and go.
const QUIET: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct Standing {
    is_away: AtomicBool,
    failed: Mutex<Option<Instant>>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Change {
    Away,
    Back,
}

impl Standing {
    /// What has become of a question.
    pub(super) fn note(&self, now: Instant, error: Option<&FleetError>) -> Option<Change> {
        let Some(error) = error else {
            return self.note_answer(now);
        };
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        if self.is_away.swap(true, Ordering::Relaxed) {
            return None;
        }
        say_away(error);
        Some(Change::Away)
    }

    fn note_answer(&self, now: Instant) -> Option<Change> {
        // Read first, so that those who only read it do not take it from each other.
        if !self.is_away.load(Ordering::Relaxed) {
            return None;
        }
        let failed = *self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |failed| now.saturating_duration_since(failed) < QUIET;
        if failed.is_some_and(is_recent) || !self.is_away.swap(false, Ordering::Relaxed) {
            return None;
        }
        say_back();
        Some(Change::Back)
    }
}

fn say_away(error: &FleetError) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "reqwest_steady",
        "{error}; until it is back, each worker keeps to its part of the limits that were known last"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = error;
}

fn say_back() {
    #[cfg(feature = "tracing")]
    tracing::info!(
        target: "reqwest_steady",
        "the store of the fleet is back, and limits are shared again"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of questions a second apart, of which some fail.
    fn said(failing: impl IntoIterator<Item = bool>) -> Vec<(u64, Change)> {
        let standing = Standing::default();
        let error = FleetError::Unavailable { why: "a test" };
        let start = crate::clock::now();
        let note = |(second, fails): (u64, bool)| {
            let now = start + Duration::from_secs(second);
            let change = standing.note(now, fails.then_some(&error));
            change.map(|change| (second, change))
        };
        (0..).zip(failing).filter_map(note).collect()
    }

    #[test]
    fn it_is_said_once_that_the_store_is_away_and_once_that_it_is_back() {
        let outage = [false, true, true, false, false, false, false, false, true];
        let (away, back) = ((1, Change::Away), (5, Change::Back));
        assert_eq!(said(outage), [away, back, (8, Change::Away)]);
    }

    #[test]
    fn one_key_that_always_fails_is_said_once() {
        let one_in_two = (0..1000).map(|second| second % 2 == 0);
        assert_eq!(said(one_in_two), [(0, Change::Away)]);
    }
}
