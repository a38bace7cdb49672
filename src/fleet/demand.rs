//! How many tokens or retries a worker needs in one period.

use std::time::Duration;

use super::Time;
use crate::two_windows::TwoWindows;

/// Counts what was used in this period and in the last one.
#[derive(Debug)]
pub(super) struct Demand(TwoWindows);

impl Demand {
    pub(super) fn new(period: Duration) -> Self {
        Self(TwoWindows::new(period, Time::ZERO))
    }

    pub(super) fn note(&mut self, now: Time) {
        self.0.advance(now);
        self.0.current = self.0.current.saturating_add(1);
    }

    /// Undoes one `note`.
    pub(super) fn take_back(&mut self) {
        self.0.current = self.0.current.saturating_sub(1);
    }

    /// Returns the need of one period: that of the busier of the last two. The current one counts as it is.
    pub(super) fn estimate(&mut self, now: Time) -> u32 {
        self.0.advance(now);
        self.0.max()
    }

    /// Whether the last period had traffic too. Then more will come, and the worker may lease ahead.
    pub(super) fn is_steady(&mut self, now: Time) -> bool {
        self.0.advance(now);
        self.0.previous > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_last_period_was_and_nothing_after_a_silence() {
        let millis = Duration::from_millis;
        let mut demand = Demand::new(millis(500));
        for at in [0, 100, 200] {
            demand.note(millis(at));
        }
        assert!(!demand.is_steady(millis(499)));
        assert_eq!(demand.estimate(millis(499)), 3);
        demand.note(millis(600));
        assert!(demand.is_steady(millis(600)));
        assert_eq!(demand.estimate(millis(999)), 3);
        assert_eq!(demand.estimate(millis(1000)), 1);
        assert_eq!(demand.estimate(millis(2000)), 0);
        assert!(!demand.is_steady(millis(2000)));
    }
}
