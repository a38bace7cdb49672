//! What is said in the log of each call, behind the feature `tracing`: how loud, and in which words.

use std::fmt;
use std::time::Duration;

use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

use super::Following;
use super::event::{CallInfo, Event, EventKind, RetryScheduled, Stopped};
use crate::outcome::{AttemptOutcome, FailureKind, StopReason};

/// How loud the log is, for each kind of event.
///
/// Every retry is one event, and so is the end of every call. `LevelFilter::OFF` silences a kind.
///
/// ```
/// use reqwest_steady::{LogLevels, RetryMiddleware};
/// use tracing::level_filters::LevelFilter;
///
/// let quiet = LogLevels::default()
///     .retry(LevelFilter::DEBUG)
///     .given_up(LevelFilter::INFO);
/// let retry = RetryMiddleware::builder().log_levels(quiet).build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// The fields are `method`, `host`, `outcome` (the status, or the kind of the error), `attempt`,
/// `max_attempts`; for a retry `wait_ms` and `hint_ms`; and for the end of a call `reason`, `waited_ms`
/// and `took_ms`. They go to a subscriber of `tracing`: its feature `log`, which hands events to the `log`
/// crate where there is none, does not see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "levels do nothing until they are given to a builder"]
pub struct LogLevels {
    retry: LevelFilter,
    success: LevelFilter,
    recovery: LevelFilter,
    rejection: LevelFilter,
    given_up: LevelFilter,
    abandoned: LevelFilter,
}

impl Default for LogLevels {
    fn default() -> Self {
        Self {
            retry: LevelFilter::INFO,
            success: LevelFilter::TRACE,
            recovery: LevelFilter::DEBUG,
            rejection: LevelFilter::DEBUG,
            given_up: LevelFilter::WARN,
            abandoned: LevelFilter::DEBUG,
        }
    }
}

impl LogLevels {
    /// Says nothing about calls.
    pub fn off() -> Self {
        Self {
            retry: LevelFilter::OFF,
            success: LevelFilter::OFF,
            recovery: LevelFilter::OFF,
            rejection: LevelFilter::OFF,
            given_up: LevelFilter::OFF,
            abandoned: LevelFilter::OFF,
        }
    }

    /// A call is sent again. Default: `INFO`.
    pub fn retry(mut self, level: LevelFilter) -> Self {
        self.retry = level;
        self
    }

    /// A call succeeded at its first attempt. Default: `TRACE`.
    pub fn success(mut self, level: LevelFilter) -> Self {
        self.success = level;
        self
    }

    /// A call succeeded after one retry or more. Default: `DEBUG`.
    pub fn recovery(mut self, level: LevelFilter) -> Self {
        self.recovery = level;
        self
    }

    /// A call ended with an answer or error that another try would not change, or was not to be
    /// retried: `NotRetryable`, `ServerVeto`, `Disabled`, `DryRun`. Default: `DEBUG`.
    pub fn rejection(mut self, level: LevelFilter) -> Self {
        self.rejection = level;
        self
    }

    /// A call was given up although it might have worked later. Default: `WARN`.
    pub fn given_up(mut self, level: LevelFilter) -> Self {
        self.given_up = level;
        self
    }

    /// A call was dropped by its caller. Default: `DEBUG`.
    ///
    /// Said of calls that were retried; of all others only if their success would be said, too, or if
    /// there is an observer: a call that goes well costs nothing otherwise.
    pub fn abandoned(mut self, level: LevelFilter) -> Self {
        self.abandoned = level;
        self
    }

    /// Which calls something may be said of whatever becomes of them.
    pub(crate) fn following(&self) -> Following {
        let first = |levels: &[LevelFilter]| {
            let on = levels.iter().filter(|level| can_be_on(**level));
            on.min().copied()
        };
        let at_once = [self.rejection, self.given_up, self.abandoned];
        Following::from_levels(first(&[self.success]), first(&at_once))
    }

    fn of_stop(&self, call: &CallInfo<'_>, reason: StopReason) -> LevelFilter {
        match reason {
            StopReason::Succeeded if call.attempt > 1 => self.recovery,
            StopReason::Succeeded => self.success,
            StopReason::NotRetryable
            | StopReason::ServerVeto
            | StopReason::Disabled
            | StopReason::DryRun => self.rejection,
            _ => self.given_up,
        }
    }

    /// Whether anybody listens to what may be said of a call that does not go as it should.
    pub(crate) fn says_anything(&self) -> bool {
        let all = [
            self.retry,
            self.recovery,
            self.rejection,
            self.given_up,
            self.abandoned,
        ];
        all.into_iter().any(is_on)
    }

    #[inline]
    pub(crate) fn say(&self, event: &Event<'_>) {
        match &event.kind {
            EventKind::RetryScheduled(retry) if is_on(self.retry) => {
                say_retry(self.retry, &event.call, retry);
            }
            EventKind::Abandoned(_) if is_on(self.abandoned) => {
                say_abandoned(self.abandoned, &event.call);
            }
            EventKind::Stopped(stop) => {
                let level = self.of_stop(&event.call, stop.reason);
                if is_on(level) {
                    say_stop(level, &event.call, stop);
                }
            }
            _ => {}
        }
    }
}

fn can_be_on(level: LevelFilter) -> bool {
    level != LevelFilter::OFF && level <= STATIC_MAX_LEVEL
}

fn is_on(level: LevelFilter) -> bool {
    can_be_on(level) && level <= LevelFilter::current()
}

/// An event whose level is known only now: `tracing` wants one place in the code for each level.
macro_rules! event_at {
    ($level:expr, $($fields:tt)+) => {
        match $level {
            LevelFilter::ERROR => tracing::error!(target: "reqwest_steady", $($fields)+),
            LevelFilter::WARN => tracing::warn!(target: "reqwest_steady", $($fields)+),
            LevelFilter::INFO => tracing::info!(target: "reqwest_steady", $($fields)+),
            LevelFilter::DEBUG => tracing::debug!(target: "reqwest_steady", $($fields)+),
            LevelFilter::TRACE => tracing::trace!(target: "reqwest_steady", $($fields)+),
            _ => {}
        }
    };
}

fn say_retry(level: LevelFilter, call: &CallInfo<'_>, retry: &RetryScheduled) {
    let what = What(retry.cause, call.host);
    let (attempt, most) = (call.attempt, retry.max_attempts);
    let wait = Short(retry.wait);
    let again = if retry.dry_run {
        "would go again (dry run)"
    } else {
        "again"
    };
    event_at!(
        level,
        method = %call.method,
        host = call.host,
        outcome = %retry.cause,
        attempt,
        max_attempts = most,
        wait_ms = milliseconds(retry.wait),
        hint_ms = retry.hint.map(milliseconds),
        dry_run = retry.dry_run,
        "{what}, attempt {attempt} of {most}, {again} in {wait}"
    );
}

fn say_stop(level: LevelFilter, call: &CallInfo<'_>, stop: &Stopped) {
    let what = What(stop.outcome, call.host);
    let (attempt, most) = (call.attempt, stop.max_attempts);
    let why = Why(stop);
    event_at!(
        level,
        method = %call.method,
        host = call.host,
        outcome = %stop.outcome,
        attempt,
        max_attempts = most,
        reason = stop.reason.label(),
        waited_ms = milliseconds(stop.waited),
        took_ms = milliseconds(stop.took),
        "{what}, attempt {attempt} of {most}{why}"
    );
}

fn say_abandoned(level: LevelFilter, call: &CallInfo<'_>) {
    let (host, attempt) = (call.host, call.attempt);
    event_at!(
        level,
        method = %call.method,
        host,
        attempt,
        "the call to {host} was dropped at attempt {attempt}"
    );
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What came back, and from where.
struct What<'a>(AttemptOutcome, &'a str);

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(outcome, host) = self;
        let kind = match outcome {
            AttemptOutcome::Status(status) => return write!(f, "{} from {host}", status.as_str()),
            AttemptOutcome::Failure(kind) => kind,
        };
        let what = match kind {
            FailureKind::Dns => "no address for",
            FailureKind::Connect => "no connection to",
            FailureKind::Timeout => "no answer in time from",
            FailureKind::Reset => "connection lost to",
            FailureKind::Incomplete => "half an answer from",
            FailureKind::NotProcessed => "not processed by",
            FailureKind::Handshake => "no handshake with",
            FailureKind::Builder => "cannot be sent to",
            FailureKind::Redirect => "redirect not followed from",
            FailureKind::Decode => "unreadable answer from",
            FailureKind::Middleware => "refused by a middleware on the way to",
            FailureKind::Throttled => "held back by the throttle on the way to",
            FailureKind::Other => "failed on the way to",
        };
        write!(f, "{what} {host}")
    }
}

/// Why a call is over, as the end of a sentence.
struct Why<'a>(&'a Stopped);

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.0.reason {
            StopReason::Succeeded if self.0.waited.is_zero() => return Ok(()),
            StopReason::Succeeded => {
                return write!(f, ", after a wait of {}", Short(self.0.waited));
            }
            StopReason::NotRetryable => "another try would end the same way",
            StopReason::NotIdempotent => {
                "it may have had its effect, and carries no idempotency key"
            }
            StopReason::BodyNotReplayable => "its body was a stream, which is gone",
            StopReason::RetriesExhausted => "all retries were made",
            StopReason::WindowClosed => "the retry window is over",
            StopReason::DeadlineTooClose => "the deadline is too close",
            StopReason::BudgetEmpty => "the retry budget is empty",
            StopReason::AllowanceSpent => "the call around it has no retries left",
            StopReason::ServerDelayTooLong => "the server asks for a longer pause than is allowed",
            StopReason::ServerVeto => "the server says that it is of no use",
            StopReason::Disabled => "retries are turned off for it",
            StopReason::Throttled => "the throttle did not let it through",
            StopReason::DryRun => "this is a dry run",
        };
        write!(f, ", not again: {why}")
    }
}

/// A duration as one would say it.
struct Short(Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 1.0 {
            write!(f, "{} ms", self.0.as_millis())
        } else if seconds < 60.0 {
            write!(f, "{seconds:.1} s")
        } else {
            write!(f, "{:.1} min", seconds / 60.0)
        }
    }
}
