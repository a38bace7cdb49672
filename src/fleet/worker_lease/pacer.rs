//! Spreads a lease over its period: a token bucket whose rate changes.

use std::time::Duration;

use crate::fleet::Time;

/// What rounding to nanoseconds may lose.
const ROUNDING: f64 = 1e-5;

#[derive(Debug)]
pub(super) struct Pacer {
    per_second: f64,
    burst: f64,
    /// Tokens at time `at`, at most `burst`.
    level: f64,
    at: Time,
}

impl Pacer {
    /// Creates a full bucket.
    pub(super) fn new(per_second: f64) -> Self {
        let burst = burst(1.0, per_second);
        Self {
            per_second,
            burst,
            level: burst,
            at: Time::ZERO,
        }
    }

    /// Changes the rate for a lease of `lease` tokens. A full bucket stays full.
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

    /// When the next request may go.
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

/// An eighth of a lease goes at once, and one more. Timers fire on whole milliseconds, so the bucket holds at
/// least what comes in two of them.
fn burst(lease: f64, per_second: f64) -> f64 {
    (lease / 8.0).max(1.0).max(per_second * 0.002) + 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(pacer: &mut Pacer, from: u64, to: u64) -> usize {
        let mut sent = 0;
        for at in from..to {
            let now = Duration::from_millis(at);
            while pacer.next(now) == now {
                pacer.take(now);
                sent += 1;
            }
        }
        sent
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_evenly() {
        let mut pacer = Pacer::new(100.0);
        pacer.change(Time::ZERO, 80.0, 40.0);
        assert_eq!(sent(&mut pacer, 0, 1), 6);
        assert_eq!(sent(&mut pacer, 1, 501), 40);
        // After idling there is one burst and no more.
        assert_eq!(sent(&mut pacer, 10_000, 10_001), 6);
    }

    #[test]
    fn no_rate_is_lost_to_timers() {
        let mut pacer = Pacer::new(5000.0);
        sent(&mut pacer, 0, 100);
        assert_eq!(sent(&mut pacer, 100, 1100), 5000);
    }

    #[test]
    fn a_request_may_go_at_the_promised_time() {
        for rate in [0.000_01, 0.3, 7.0, 333.3, 1e6] {
            let mut pacer = Pacer::new(rate);
            let mut now = Time::ZERO;
            for _ in 0..1000 {
                let next = pacer.next(now);
                assert_eq!(pacer.next(next), next, "{rate}");
                pacer.take(next);
                now = next;
            }
        }
    }
}
