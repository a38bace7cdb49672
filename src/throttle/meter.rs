//! What the law counts.

use std::time::Duration;

use tokio::time::Instant;

const SPAN: Duration = Duration::from_secs(1);

/// How many were accepted a second, over the last one to two seconds.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// When the older of two spans began.
    began: Option<Instant>,
    older: u32,
    newer: u32,
}

impl Meter {
    /// Something was sent.
    pub(super) fn begin(&mut self, now: Instant) {
        self.turn(now);
    }

    /// Something was accepted.
    pub(super) fn count(&mut self, now: Instant) {
        let began = self.turn(now);
        if now.saturating_duration_since(began) < SPAN {
            self.older += 1;
        } else {
            self.newer += 1;
        }
    }

    /// Requests a second; `None` if there was no more than one.
    pub(super) fn rate(&mut self, now: Instant) -> Option<f64> {
        let began = self.turn(now);
        let count = self.older + self.newer;
        let passed = now.saturating_duration_since(began).as_secs_f64();
        (count > 1 && passed > 0.0).then(|| f64::from(count) / passed)
    }

    /// Lets go of what is too long ago.
    fn turn(&mut self, now: Instant) -> Instant {
        let began = *self.began.get_or_insert(now);
        let passed = now.saturating_duration_since(began);
        if passed < 2 * SPAN {
            return began;
        }
        let began = if passed < 3 * SPAN {
            self.older = std::mem::take(&mut self.newer);
            began + SPAN
        } else {
            (self.older, self.newer) = (0, 0);
            now
        };
        self.began = Some(began);
        began
    }
}

/// The last endings, at most 32: a bit for each that failed.
#[derive(Debug, Default)]
pub(super) struct Endings {
    failed: u32,
    count: u32,
}

impl Endings {
    pub(super) fn push(&mut self, accepted: bool) {
        self.failed = (self.failed << 1) | u32::from(!accepted);
        self.count = (self.count + 1).min(32);
    }

    pub(super) fn failed(&self) -> u32 {
        self.failed.count_ones()
    }

    /// How many of them were accepted.
    pub(super) fn share(&self) -> f64 {
        1.0 - f64::from(self.failed()) / f64::from(self.count.max(1))
    }

    /// Three of the last 32.
    pub(super) fn show_strain(&self) -> bool {
        self.failed() >= 3
    }

    /// Five in a row, or a third of at least sixteen: more than chance.
    pub(super) fn show_trouble(&self) -> bool {
        self.failed.trailing_ones() >= 5
            || (self.count >= 16 && self.failed() * 100 >= self.count * 34)
    }
}
