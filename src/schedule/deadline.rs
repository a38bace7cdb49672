//! The ends that a call may not pass, all on one monotonic clock.

use std::time::Duration;

use reqwest_middleware::Error;
use tokio::time::Instant;

use crate::clock;
use crate::outcome::{StopReason, TimeLimit, TimedOut};

/// tokio's timers are as coarse as this, and round up.
const TICK: Duration = Duration::from_millis(1);

/// How long things may take, as configured.
#[derive(Clone, Debug)]
pub(crate) struct TimeLimits {
    pub(crate) window: Duration,
    pub(crate) deadline: Option<Duration>,
    pub(crate) attempt: Option<Duration>,
}

/// The time of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTime<'a> {
    pub(crate) limits: &'a TimeLimits,
    pub(crate) started: Instant,
    /// The call's own, or the configured one.
    pub(crate) deadline: Option<Duration>,
    /// The call's own, or the configured one.
    pub(crate) attempt: Option<Duration>,
}

impl CallTime<'_> {
    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// When the call ends at the latest.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.deadline
            .map(|deadline| clock::after(self.started, deadline))
    }

    /// No retry starts later.
    pub(crate) fn window_end(&self) -> Instant {
        clock::after(self.started, self.limits.window)
    }

    /// Ends the call by then, if its own deadline is not earlier.
    pub(crate) fn bound_by(&mut self, end: Option<Instant>) {
        let left = end.map(|end| end.saturating_duration_since(self.started));
        self.deadline = self.deadline.into_iter().chain(left).min();
    }

    /// Whether a retry may begin after this wait. Remaining time is measured anew at every call.
    pub(crate) fn allow_wait(&self, elapsed: Duration, wait: Duration) -> Result<(), StopReason> {
        let begins = elapsed.saturating_add(wait);
        if begins > self.limits.window {
            Err(StopReason::WindowClosed)
        } else if self
            .deadline
            .is_some_and(|deadline| begins.saturating_add(TICK) >= deadline)
        {
            Err(StopReason::DeadlineTooClose)
        } else {
            Ok(())
        }
    }

    /// How long an old answer may be cleared away before a retry that is due at `wake`: at least
    /// half the time after that belongs to the retry.
    pub(crate) fn drain_end(&self, wake: Instant) -> Instant {
        let window = self.limits.window;
        let latest = self
            .deadline
            .map_or(window, |deadline| deadline.min(window));
        let latest = clock::after(self.started, latest);
        wake + latest.saturating_duration_since(wake) / 2
    }

    /// The limit of an attempt that begins so long after the call did: its own or the call's,
    /// whichever ends first.
    pub(crate) fn attempt_limit(&self, sent_at: Duration) -> Option<Limit> {
        self.limit_from(clock::after(self.started, sent_at))
    }

    /// The same, if its clock does not start with the attempt, but later: at `begun`.
    pub(crate) fn attempt_limit_from(
        &self,
        sent_at: Duration,
        begun: Option<Instant>,
    ) -> Option<Limit> {
        match begun {
            Some(begun) => self.limit_from(begun),
            None => self.attempt_limit(sent_at),
        }
    }

    fn limit_from(&self, begun: Instant) -> Option<Limit> {
        let deadline = self.deadline.map(|after| Limit {
            end: clock::after(self.started, after),
            error: TimedOut {
                limit: TimeLimit::Deadline,
                after,
            },
        });
        match self.attempt {
            Some(timeout) => Some(Limit::of_attempt(begun, timeout, deadline)),
            None => deadline,
        }
    }
}

/// When something has to end, and with which error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    end: Instant,
    error: TimedOut,
}

impl Limit {
    /// The deadline of a call that began at `started`.
    pub(crate) fn deadline(started: Instant, end: Instant) -> Self {
        let error = TimedOut {
            limit: TimeLimit::Deadline,
            after: end.saturating_duration_since(started),
        };
        Self { end, error }
    }

    /// The timeout of a request that began at `started`.
    pub(crate) fn timeout(started: Instant, timeout: Duration) -> Self {
        Self::of_attempt(started, timeout, None)
    }

    pub(crate) fn end(&self) -> Instant {
        self.end
    }

    pub(crate) fn error(&self) -> Error {
        Error::middleware(self.error)
    }

    /// What to say for this error. One from inside, that knew only what was left of this limit, and
    /// ended with it, stands for this one.
    pub(crate) fn name(self, error: Error) -> Error {
        let inner = TimedOut::of(&error).map(TimedOut::limit);
        match inner {
            Some(TimeLimit::Deadline) if self.end <= clock::now() => Error::middleware(self.error),
            _ => error,
        }
    }

    /// Waits for an answer as long as it may take.
    pub(crate) async fn enforce<T>(
        self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        // With no time left, nothing is sent.
        if self.end > clock::now() {
            if let Some(result) = clock::within(self.end, answer).await {
                return result;
            }
        }
        Err(self.error())
    }

    fn of_attempt(begun: Instant, timeout: Duration, deadline: Option<Self>) -> Self {
        let own = Self {
            end: clock::after(begun, timeout),
            error: TimedOut {
                limit: TimeLimit::Attempt,
                after: timeout,
            },
        };
        match deadline {
            Some(deadline) if deadline.end <= own.end => deadline,
            _ => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn call(limits: &TimeLimits) -> CallTime<'_> {
        CallTime {
            limits,
            started: clock::now(),
            deadline: limits.deadline,
            attempt: limits.attempt,
        }
    }

    #[test]
    fn a_wait_may_end_with_the_window_but_must_leave_time_before_the_deadline() {
        let limits = TimeLimits {
            window: 10 * SEC,
            deadline: Some(10 * SEC),
            attempt: None,
        };
        let call = call(&limits);
        let now = call.started + 4 * SEC;
        let almost = 6 * SEC - 2 * TICK;
        assert_eq!(call.allow_wait(call.elapsed(now), almost), Ok(()));
        assert_eq!(
            call.allow_wait(call.elapsed(now), almost + TICK),
            Err(StopReason::DeadlineTooClose)
        );
        assert_eq!(
            call.allow_wait(call.elapsed(now), 6 * SEC),
            Err(StopReason::DeadlineTooClose)
        );
        assert_eq!(
            call.allow_wait(call.elapsed(now), 7 * SEC),
            Err(StopReason::WindowClosed)
        );
    }

    #[test]
    fn an_attempt_ends_at_whichever_limit_comes_first() {
        let end = |attempt, deadline, sent_at| {
            let limits = TimeLimits {
                window: Duration::MAX,
                deadline,
                attempt,
            };
            let call = call(&limits);
            let limit = call.attempt_limit(sent_at)?;
            Some((limit.end - call.started, limit.error.limit))
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
        let limits = TimeLimits {
            window: Duration::MAX,
            deadline: Some(Duration::MAX),
            attempt: Some(Duration::MAX),
        };
        let call = call(&limits);
        assert!(call.attempt_limit(Duration::MAX).is_some());
        assert!(call.drain_end(call.started) > call.started);
        assert_eq!(
            call.allow_wait(Duration::ZERO, Duration::MAX),
            Err(StopReason::DeadlineTooClose)
        );
    }
}
