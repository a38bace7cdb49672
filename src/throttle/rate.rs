//! The fixed rate that a user sets: a token bucket.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock;

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
    full: Instant,
}

impl Bucket {
    pub(super) fn new(now: Instant, rate: Rate) -> Self {
        Self { rate, full: now }
    }

    /// When one may go that has so many ahead of it.
    pub(super) fn next(&self, now: Instant, ahead: usize) -> Instant {
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let full = clock::after(self.full.max(now), self.rate.each.saturating_mul(ahead));
        // Everything but one token of a burst may be missing.
        let early = self.rate.each.saturating_mul(self.rate.burst - 1);
        full.checked_sub(early).map_or(now, |next| next.max(now))
    }

    pub(super) fn take(&mut self, now: Instant) {
        self.full = clock::after(self.full.max(now), self.rate.each);
    }

    pub(super) fn put_back(&mut self) {
        self.full -= self.rate.each;
    }
}
