//! The fixed rate that a user sets: a token bucket.

use std::time::Duration;

use super::controller::Time;

/// tokio's timers fire on whole milliseconds.
const GRAIN: Duration = Duration::from_millis(1);

/// So many a second, and so many at once after a silence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// The time that one takes.
    pub(super) each: Duration,
    pub(super) burst: u32,
}

/// The bucket of one key. Kept as the time at which it will be full again.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: Rate,
    full: Time,
}

impl Bucket {
    pub(super) fn new(rate: Rate) -> Self {
        let full = Time::ZERO;
        Self { rate, full }
    }

    /// When one may go that has so many ahead of it.
    pub(super) fn next(&self, now: Time, ahead: usize) -> Time {
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let waiting = self.rate.each.saturating_mul(ahead);
        let full = self.full.max(now).saturating_add(waiting);
        // Everything but one token of a burst may be missing.
        let mut early = self.rate.each.saturating_mul(self.rate.burst - 1);
        if self.rate.each < GRAIN {
            // Or the rate could not be reached: several go at each tick of a timer.
            early = early.max(GRAIN);
        }
        full.saturating_sub(early).max(now)
    }

    pub(super) fn take(&mut self, now: Time) {
        self.full = self.full.max(now).saturating_add(self.rate.each);
    }

    pub(super) fn put_back(&mut self) {
        self.full = self.full.saturating_sub(self.rate.each);
    }
}
