//! Whether the store responds. Each change is logged once.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::FleetError;
use crate::lock::lock;
use crate::log;

/// The store is back after this long without a failure. Workers that fail ask again sooner, so one key that
/// always fails does not alternate between lost and back.
const QUIET: Duration = Duration::from_secs(3);

/// Set while the store is lost: the time of the last failure.
#[derive(Debug, Default)]
pub(super) struct StoreHealth(Mutex<Option<Instant>>);

#[derive(Debug, PartialEq)]
pub(super) enum HealthChange {
    Lost,
    Back,
}

impl StoreHealth {
    /// Records the outcome of one request to the store.
    pub(super) fn note(&self, now: Instant, error: Option<&FleetError>) -> Option<HealthChange> {
        let mut failed = lock(&self.0);
        match (error, *failed) {
            (Some(error), before) => {
                *failed = Some(now);
                before.is_none().then(|| {
                    log::store_lost(error);
                    HealthChange::Lost
                })
            }
            (None, Some(last)) if now.saturating_duration_since(last) >= QUIET => {
                *failed = None;
                log::store_back();
                Some(HealthChange::Back)
            }
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The changes, for requests one second apart of which some fail.
    fn changes(failing: impl IntoIterator<Item = bool>) -> Vec<(u64, HealthChange)> {
        let health = StoreHealth::default();
        let error = FleetError::Unavailable { why: "a test" };
        let start = crate::clock::now();
        let note = |(second, fails): (u64, bool)| {
            let now = start + Duration::from_secs(second);
            let change = health.note(now, fails.then_some(&error));
            change.map(|change| (second, change))
        };
        (0..).zip(failing).filter_map(note).collect()
    }

    #[test]
    fn an_outage_is_logged_once_and_so_is_its_end() {
        let outage = [false, true, true, false, false, false, false, false, true];
        let (lost, back) = ((1, HealthChange::Lost), (5, HealthChange::Back));
        assert_eq!(changes(outage), [lost, back, (8, HealthChange::Lost)]);
    }

    #[test]
    fn one_key_that_always_fails_is_logged_once() {
        let one_in_two = (0..1000).map(|second| second % 2 == 0);
        assert_eq!(changes(one_in_two), [(0, HealthChange::Lost)]);
    }
}
