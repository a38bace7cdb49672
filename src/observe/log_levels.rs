//! Writes the events of calls to the log, behind the feature `tracing`.
//!
//! [`LogLevels`] chooses the level of each kind of event. The functions below write the fields and the text.

use std::time::Duration;

use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

use super::event::{CallInfo, Event, EventKind, RetryScheduled, Stopped};
use crate::clock::rounded;
use crate::outcome::{AttemptOutcome, FailureKind, StopReason};

/// Sets the log level for each kind of event.
///
/// Every retry is logged as one event, and so is the end of every call. `LevelFilter::OFF` turns a kind off.
///
/// ```
/// use reqwest_steady::observe::LogLevels;
/// use reqwest_steady::RetryMiddleware;
/// use tracing::level_filters::LevelFilter;
///
/// let quiet = LogLevels::default()
///     .retry(LevelFilter::DEBUG)
///     .given_up(LevelFilter::INFO);
/// let retry = RetryMiddleware::builder().log_levels(quiet).build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// All events have the fields `method`, `host` and `attempt`. Retries and ends of calls also have `outcome` (the
/// status or the kind of error) and `max_attempts`. A retry adds `wait_ms` and `hint_ms`; the end of a call adds
/// `reason`, `waited_ms` and `took_ms`.
///
/// The events need a `tracing` subscriber. The `log` feature of `tracing` does not forward them to the `log` crate.
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
    /// Logs nothing about calls.
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

    /// Sets the level for retries.
    ///
    /// Default: `INFO`.
    pub fn retry(mut self, level: LevelFilter) -> Self {
        self.retry = level;
        self
    }

    /// Sets the level for calls that succeed at their first attempt.
    ///
    /// Default: `TRACE`.
    pub fn success(mut self, level: LevelFilter) -> Self {
        self.success = level;
        self
    }

    /// Sets the level for calls that succeed after one or more retries.
    ///
    /// Default: `DEBUG`.
    pub fn recovery(mut self, level: LevelFilter) -> Self {
        self.recovery = level;
        self
    }

    /// Sets the level for calls that a retry would not help, or that must not be retried.
    ///
    /// These end with [`NotRetryable`](StopReason::NotRetryable), [`ServerVeto`](StopReason::ServerVeto),
    /// [`Disabled`](StopReason::Disabled) or [`DryRun`](StopReason::DryRun).
    ///
    /// Default: `DEBUG`.
    pub fn rejection(mut self, level: LevelFilter) -> Self {
        self.rejection = level;
        self
    }

    /// Sets the level for calls that gave up although a later retry might succeed.
    ///
    /// Default: `WARN`.
    pub fn given_up(mut self, level: LevelFilter) -> Self {
        self.given_up = level;
        self
    }

    /// Sets the level for calls that their caller drops.
    ///
    /// Calls that were retried are always logged. Other calls are logged only if their success would be
    /// logged, or if there is an observer. This way a successful call costs nothing.
    ///
    /// Default: `DEBUG`.
    pub fn abandoned(mut self, level: LevelFilter) -> Self {
        self.abandoned = level;
        self
    }

    /// Returns whether a call must be followed from its start. A call that could be retried is named by its snapshot
    /// if it fails; other calls keep none.
    pub(crate) fn tracks(&self, could_retry: bool) -> bool {
        if could_retry {
            is_on(self.success)
        } else {
            self.logs_failures()
        }
    }

    /// Returns whether a call is logged that ends without success, even without a retry.
    fn logs_failures(&self) -> bool {
        let at_once = [self.rejection, self.given_up, self.abandoned];
        at_once.into_iter().any(is_on)
    }

    fn for_stop(&self, call: &CallInfo<'_>, reason: StopReason) -> LevelFilter {
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

    /// Returns whether a call that does not succeed at once is logged.
    pub(crate) fn logs_problems(&self) -> bool {
        is_on(self.retry) || is_on(self.recovery) || self.logs_failures()
    }

    /// Writes the event to the log, if its level is enabled.
    #[inline]
    pub(crate) fn log(&self, event: &Event<'_>) {
        match &event.kind {
            EventKind::RetryScheduled(retry) if is_on(self.retry) => {
                log_retry(self.retry, &event.call, retry);
            }
            EventKind::Abandoned(_) if is_on(self.abandoned) => {
                log_abandoned(self.abandoned, &event.call);
            }
            EventKind::Stopped(stop) => {
                let level = self.for_stop(&event.call, stop.stop_reason);
                if is_on(level) {
                    log_stop(level, &event.call, stop);
                }
            }
            _ => {}
        }
    }
}

fn is_on(level: LevelFilter) -> bool {
    level != LevelFilter::OFF && level <= STATIC_MAX_LEVEL && level <= LevelFilter::current()
}

/// Writes an event at a level that is known only at run time. `tracing` needs one call site per level.
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

fn log_retry(level: LevelFilter, call: &CallInfo<'_>, retry: &RetryScheduled) {
    let what = outcome_from(call.host, retry.cause);
    let (attempt, most) = (call.attempt, retry.max_attempts);
    let wait = rounded(retry.wait);
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

fn log_stop(level: LevelFilter, call: &CallInfo<'_>, stop: &Stopped) {
    let what = outcome_from(call.host, stop.outcome);
    let (attempt, most) = (call.attempt, stop.max_attempts);
    let why = because(stop);
    event_at!(
        level,
        method = %call.method,
        host = call.host,
        outcome = %stop.outcome,
        attempt,
        max_attempts = most,
        stop_reason = stop.stop_reason.as_str(),
        waited_ms = milliseconds(stop.waited),
        took_ms = milliseconds(stop.took),
        "{what}, attempt {attempt} of {most}{why}"
    );
}

fn log_abandoned(level: LevelFilter, call: &CallInfo<'_>) {
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

/// Names an outcome and its host, as the start of a log line.
fn outcome_from(host: &str, outcome: AttemptOutcome) -> String {
    let kind = match outcome {
        AttemptOutcome::Status(status) => return format!("{} from {host}", status.as_str()),
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
    format!("{what} {host}")
}

/// Says why a call stopped, as the end of a log line.
fn because(stop: &Stopped) -> String {
    let why = match stop.stop_reason {
        StopReason::Succeeded if stop.waited.is_zero() => return String::new(),
        StopReason::Succeeded => return format!(", after a wait of {}", rounded(stop.waited)),
        StopReason::NotRetryable => "another try would end the same way",
        StopReason::NotIdempotent => "it may have had its effect, and carries no idempotency key",
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
    format!(", not again: {why}")
}
