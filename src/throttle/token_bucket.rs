//! The fixed rate that a user sets, as a token bucket.

use std::time::Duration;

use crate::clock::{TIMER_TICK, Time};

/// The bucket of one key.
#[derive(Debug)]
pub(super) struct TokenBucket {
    /// The time between two requests.
    interval: Duration,
    /// How many requests can go at once after idling. At least 1.
    burst: u32,
    /// When the bucket is full again. Each request moves it by one interval.
    full: Time,
}

impl TokenBucket {
    pub(super) fn new(per_second: f64, burst: u32) -> Self {
        Self {
            interval: Duration::from_secs_f64(1.0 / per_second),
            burst,
            full: Time::ZERO,
        }
    }

    /// Takes over what another bucket has given out, up to the whole burst of this one.
    pub(super) fn after(mut self, old: &Self, now: Time) -> Self {
        let empty = now.saturating_add(self.interval.saturating_mul(self.burst));
        self.full = old.full.min(empty);
        self
    }

    /// Returns when a request may go, with this many ahead of it.
    pub(super) fn next(&self, now: Time, ahead: usize) -> Time {
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let waiting = self.interval.saturating_mul(ahead);
        let full = self.full.max(now).saturating_add(waiting);
        // All tokens of the burst but one may be missing.
        let mut early = self.interval.saturating_mul(self.burst - 1);
        if self.interval < TIMER_TICK {
            // Several requests go at each tick of a timer. Otherwise the rate could not be reached.
            early = early.max(TIMER_TICK);
        }
        full.saturating_sub(early).max(now)
    }

    pub(super) fn take(&mut self, now: Time) {
        self.full = self.full.max(now).saturating_add(self.interval);
    }

    pub(super) fn put_back(&mut self) {
        self.full = self.full.saturating_sub(self.interval);
    }
}
