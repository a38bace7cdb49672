//! A lease is not sent in one moment: a token bucket whose rate changes.

use std::time::Duration;

use crate::fleet::Time;

/// What is lost when times are rounded to nanoseconds.
const ROUNDING: f64 = 1e-5;

#[derive(Debug)]
pub(super) struct Spread {
    per_second: f64,
    burst: f64,
    level: f64,
    at: Time,
}

impl Spread {
    /// Full.
    pub(super) fn new(per_second: f64) -> Self {
        let burst = burst(1.0, per_second);
        Self {
            per_second,
            burst,
            level: burst,
            at: Time::ZERO,
        }
    }

    /// From now on at this rate, for a lease of so many. What was full is full again.
    pub(super) fn change(&mut self, now: Time, per_second: f64, lease: f64) {
        self.refill(now);
        let was_full = self.level >= self.burst;
        self.per_second = per_second;
        self.burst = burst(lease, per_second);
        self.level = if was_full {
            self.burst
        } else {
            self.level.min(self.burst)
        };
    }

    pub(super) fn per_second(&self) -> f64 {
        self.per_second
    }

    /// When the next may go.
    pub(super) fn next(&self, now: Time) -> Time {
        let missing = 1.0 - self.level_at(now);
        if missing <= ROUNDING {
            return now;
        }
        now.saturating_add(Duration::from_secs_f64(missing / self.per_second))
    }

    pub(super) fn take(&mut self, now: Time) {
        self.refill(now);
        self.level -= 1.0;
    }

    pub(super) fn put_back(&mut self) {
        self.level = (self.level + 1.0).min(self.burst);
    }

    fn refill(&mut self, now: Time) {
        self.level = self.level_at(now);
        self.at = self.at.max(now);
    }

    fn level_at(&self, now: Time) -> f64 {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        (self.level + passed * self.per_second).min(self.burst)
    }
}

/// An eighth of a lease goes at once, and one more. Timers fire on whole milliseconds: what comes in two of
/// them has to have room.
fn burst(lease: f64, per_second: f64) -> f64 {
    (lease / 8.0).max(1.0).max(per_second * 0.002) + 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(spread: &mut Spread, from: u64, to: u64) -> usize {
        let mut sent = 0;
        for at in from..to {
            let now = Duration::from_millis(at);
            while spread.next(now) == now {
                spread.take(now);
                sent += 1;
            }
        }
        sent
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_evenly() {
        let mut spread = Spread::new(100.0);
        spread.change(Time::ZERO, 80.0, 40.0);
        assert_eq!(sent(&mut spread, 0, 1), 6);
        assert_eq!(sent(&mut spread, 1, 501), 40);
        // After a silence there is one burst, and no more.
        assert_eq!(sent(&mut spread, 10_000, 10_001), 6);
    }

    #[test]
    fn no_rate_is_lost_to_timers() {
        let mut spread = Spread::new(5000.0);
        sent(&mut spread, 0, 100);
        assert_eq!(sent(&mut spread, 100, 1100), 5000);
    }

    #[test]
    fn who_comes_when_it_was_told_may_go() {
        for rate in [0.000_01, 0.3, 7.0, 333.3, 1e6] {
            let mut spread = Spread::new(rate);
            let mut now = Time::ZERO;
            for _ in 0..1000 {
                let next = spread.next(now);
                assert_eq!(spread.next(next), next, "{rate}");
                spread.take(next);
                now = next;
            }
        }
    }
}
