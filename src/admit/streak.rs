//! How many attempts in a row have failed at a host.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Failures in a row, of all calls of one client to one host.
///
/// Requests that were sent together fail together. They count once, because they show the same moment. So only an
/// attempt that was sent after the last counted failure counts.
#[derive(Debug, Default)]
pub(crate) struct FailureStreak {
    length: AtomicU32,
    /// When the last counted failure was seen, in nanoseconds of the host's time.
    counted_at: AtomicU64,
}

impl FailureStreak {
    /// Counts a failed attempt. Both times are since the host was first seen.
    pub(crate) fn on_failure(&self, sent: Duration, now: Duration) {
        let length = self.length.load(Ordering::Relaxed);
        if length == 0 || nanos(sent) >= self.counted_at.load(Ordering::Relaxed) {
            let (longer, order) = (length.saturating_add(1), Ordering::Relaxed);
            // If another thread was faster, it counted the same moment, or a success has ended the streak.
            if (self.length.compare_exchange(length, longer, order, order)).is_ok() {
                self.counted_at.store(nanos(now), order);
            }
        }
    }

    pub(crate) fn on_success(&self) {
        // Most hosts have no failures, and then nothing is written.
        if self.length.load(Ordering::Relaxed) > 0 {
            self.length.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn length(&self) -> u32 {
        self.length.load(Ordering::Relaxed)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn failures_of_requests_sent_together_count_once() {
        let streak = FailureStreak::default();
        for request in 0..9 {
            streak.on_failure(Duration::ZERO, (2 + request) * MS);
        }
        assert_eq!(streak.length(), 1);
        streak.on_failure(2 * MS, 20 * MS);
        assert_eq!(streak.length(), 2);
        streak.on_failure(10 * MS, 21 * MS);
        assert_eq!(streak.length(), 2, "sent before the last counted failure");
        streak.on_failure(20 * MS, 22 * MS);
        assert_eq!(streak.length(), 3);
    }

    #[test]
    fn a_success_ends_the_streak() {
        let streak = FailureStreak::default();
        streak.on_failure(Duration::ZERO, MS);
        streak.on_failure(MS, 2 * MS);
        streak.on_success();
        assert_eq!(streak.length(), 0);
        // It was sent before the streak began, but it is the first failure since.
        streak.on_failure(Duration::ZERO, 3 * MS);
        assert_eq!(streak.length(), 1);
    }
}
