//! The time limits of a call and its attempts, all on one monotonic clock.

use std::time::Duration;

use reqwest_middleware::Error;
use tokio::time::Instant;

use crate::clock::{self, TIMER_TICK};
use crate::outcome::{SteadyError, StopReason, TimeLimit};

/// The time limits of one call, which count from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTime {
    pub(crate) window: Duration,
    pub(crate) started: Instant,
    /// From the request, or the configured one.
    pub(crate) deadline: Option<Duration>,
    /// From the request, or the configured one.
    pub(crate) attempt_timeout: Option<Duration>,
}

/// A point in time, and how long the call had taken by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) elapsed: Duration,
}

impl CallTime {
    pub(crate) fn moment(&self, at: Instant) -> Moment {
        let elapsed = self.elapsed(at);
        Moment { at, elapsed }
    }

    /// Returns how long the call has taken at `now`.
    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Returns when the call ends at the latest.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.deadline
            .map(|deadline| clock::after(self.started, deadline))
    }

    /// Returns whether this crate may end an attempt.
    pub(crate) fn has_limit(&self) -> bool {
        self.deadline.is_some() || self.attempt_timeout.is_some()
    }

    /// Returns the end of the retry window. No retry starts later.
    pub(crate) fn window_end(&self) -> Instant {
        clock::after(self.started, self.window)
    }

    /// Moves the deadline to `end`, unless it is earlier already.
    pub(crate) fn bound_by(&mut self, end: Option<Instant>) {
        let left = end.map(|end| end.saturating_duration_since(self.started));
        self.deadline = self.deadline.into_iter().chain(left).min();
    }

    /// Checks whether a retry may start after this wait.
    pub(crate) fn allow_wait(&self, now: Instant, wait: Duration) -> Result<(), StopReason> {
        let starts = self.elapsed(now).saturating_add(wait);
        let has_no_time = |deadline| starts.saturating_add(TIMER_TICK) >= deadline;
        if starts > self.window {
            Err(StopReason::WindowClosed)
        } else if self.deadline.is_some_and(has_no_time) {
            Err(StopReason::DeadlineTooClose)
        } else {
            Ok(())
        }
    }

    /// Returns the longest wait after which a retry still has time before the deadline. `None` without a deadline.
    pub(crate) fn longest_wait(&self, now: Instant) -> Option<Duration> {
        let left = self.deadline?.saturating_sub(self.elapsed(now));
        // Timers may be a tick late, and `allow_wait` keeps one tick for the retry.
        Some(left.saturating_sub(2 * TIMER_TICK))
    }

    /// Returns until when a response may be drained before a retry that is due at `due`.
    ///
    /// At least half of the time after `due` is left for the retry.
    pub(crate) fn drain_end(&self, due: Instant) -> Instant {
        let window_end = self.window_end();
        let latest = self.end().map_or(window_end, |end| end.min(window_end));
        due + latest.saturating_duration_since(due) / 2
    }

    /// Returns the limit of an attempt whose time counts from `start`: its timeout or the deadline of the
    /// call, whichever ends first.
    pub(crate) fn attempt_limit(&self, start: Instant) -> Option<Limit> {
        let deadline = (self.deadline).map(|it| Limit::new(TimeLimit::Deadline, self.started, it));
        let timeout = (self.attempt_timeout).map(|it| Limit::new(TimeLimit::Attempt, start, it));
        deadline.into_iter().chain(timeout).min_by_key(Limit::end)
    }
}

/// When something has to end, and the error if it does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    end: Instant,
    limit: TimeLimit,
    after: Duration,
}

impl Limit {
    pub(crate) fn new(limit: TimeLimit, start: Instant, after: Duration) -> Self {
        let end = clock::after(start, after);
        Self { end, limit, after }
    }

    pub(crate) fn end(&self) -> Instant {
        self.end
    }

    pub(crate) fn error(&self) -> Error {
        Error::middleware(SteadyError::timed_out(self.limit, self.after))
    }

    /// Replaces the error of a nested call whose deadline was what is left of this limit.
    ///
    /// So the caller sees the limit that it has set.
    pub(crate) fn replace_nested(self, error: Error) -> Error {
        match SteadyError::of(&error) {
            Some(inner) if inner.is_deadline() && self.end <= clock::now() => {
                let own = SteadyError::timed_out(self.limit, self.after);
                Error::middleware(own.after_attempts(inner.attempts()))
            }
            _ => error,
        }
    }

    /// Runs a future until the limit. With no time left, the future is never polled.
    pub(crate) async fn enforce<T>(
        self,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if self.end > clock::now() {
            if let Some(result) = clock::within(self.end, future).await {
                return result;
            }
        }
        Err(self.error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn call(window: Duration, deadline: Option<Duration>, attempt: Option<Duration>) -> CallTime {
        CallTime {
            window,
            started: clock::now(),
            deadline,
            attempt_timeout: attempt,
        }
    }

    #[test]
    fn a_wait_may_end_with_the_window_but_must_leave_time_before_the_deadline() {
        let call = call(10 * SEC, Some(10 * SEC), None);
        let now = call.started + 4 * SEC;
        let almost = 6 * SEC - 2 * TIMER_TICK;
        assert_eq!(call.allow_wait(now, almost), Ok(()));
        assert_eq!(
            call.allow_wait(now, almost + TIMER_TICK),
            Err(StopReason::DeadlineTooClose)
        );
        assert_eq!(
            call.allow_wait(now, 6 * SEC),
            Err(StopReason::DeadlineTooClose)
        );
        assert_eq!(call.allow_wait(now, 7 * SEC), Err(StopReason::WindowClosed));
    }

    #[test]
    fn an_attempt_ends_at_whichever_limit_comes_first() {
        let end = |attempt, deadline, sent_at| {
            let call = call(Duration::MAX, deadline, attempt);
            let limit = call.attempt_limit(call.started + sent_at)?;
            Some((limit.end - call.started, limit.limit))
        };
        let (three, nine) = (Some(3 * SEC), Some(9 * SEC));
        assert_eq!(end(None, None, SEC), None);
        assert_eq!(end(three, None, SEC), Some((4 * SEC, TimeLimit::Attempt)));
        assert_eq!(end(three, nine, SEC), Some((4 * SEC, TimeLimit::Attempt)));
        assert_eq!(
            end(three, nine, 7 * SEC),
            Some((9 * SEC, TimeLimit::Deadline))
        );
        assert_eq!(
            end(None, nine, 10 * SEC),
            Some((9 * SEC, TimeLimit::Deadline))
        );
    }

    #[test]
    fn the_longest_durations_overflow_nothing() {
        let call = call(Duration::MAX, Some(Duration::MAX), Some(Duration::MAX));
        let start = clock::after(call.started, Duration::MAX);
        assert!(call.attempt_limit(start).is_some());
        assert!(call.drain_end(call.started) > call.started);
        assert_eq!(
            call.allow_wait(call.started, Duration::MAX),
            Err(StopReason::DeadlineTooClose)
        );
    }
}
