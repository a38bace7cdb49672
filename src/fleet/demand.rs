//! How many a worker needs in one period, by what it needed in the last.

use std::time::Duration;

use super::Time;

#[derive(Debug)]
pub(super) struct Demand {
    period: Duration,
    start: Time,
    this: u32,
    last: u32,
}

impl Demand {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            start: Time::ZERO,
            this: 0,
            last: 0,
        }
    }

    pub(super) fn note(&mut self, now: Time) {
        self.roll(now);
        self.this = self.this.saturating_add(1);
    }

    pub(super) fn take_back(&mut self) {
        self.this = self.this.saturating_sub(1);
    }

    /// In one period, going by the busier of the last two. The one that has begun counts as it is.
    pub(super) fn estimate(&mut self, now: Time) -> u32 {
        self.roll(now);
        self.this.max(self.last)
    }

    /// There was something in the last period as well: more will come, and may be prepared for.
    pub(super) fn is_steady(&mut self, now: Time) -> bool {
        self.roll(now);
        self.last > 0
    }

    fn roll(&mut self, now: Time) {
        let age = now.saturating_sub(self.start);
        if age < self.period {
            return;
        }
        let is_next = age < self.period * 2;
        self.last = if is_next { self.this } else { 0 };
        self.this = 0;
        self.start = if is_next {
            self.start + self.period
        } else {
            now
        };
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
