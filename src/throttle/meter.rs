//! The rate at which a server accepts requests.

use std::time::Duration;

use super::controller::Time;

const SPAN: Duration = Duration::from_secs(1);

/// How many were accepted a second, over the last one to two seconds.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// When the older of two spans began.
    began: Option<Time>,
    older: u32,
    newer: u32,
}

impl Meter {
    /// Something was sent.
    pub(super) fn begin(&mut self, now: Time) {
        self.turn(now);
    }

    /// Something was accepted.
    pub(super) fn count(&mut self, now: Time) {
        let began = self.turn(now);
        if now.saturating_sub(began) < SPAN {
            self.older += 1;
        } else {
            self.newer += 1;
        }
    }

    /// Requests a second; `None` if there was no more than one.
    pub(super) fn rate(&mut self, now: Time) -> Option<f64> {
        let began = self.turn(now);
        let count = self.older + self.newer;
        let passed = now.saturating_sub(began).as_secs_f64();
        (count > 1 && passed > 0.0).then(|| f64::from(count) / passed)
    }

    /// Lets go of what is too long ago.
    fn turn(&mut self, now: Time) -> Time {
        let began = *self.began.get_or_insert(now);
        let passed = now.saturating_sub(began);
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
