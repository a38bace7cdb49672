//! Writes events to the log, behind the feature `tracing`.
//!
//! [`LogLevels`] chooses the level of each kind of event, and [`lines`] writes it.

mod lines;

use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

use super::event::{CallInfo, Event, EventKind};
#[cfg(feature = "serde")]
use crate::config::text;
use crate::outcome::{AttemptOutcome, FailureKind, StopReason};

/// Sets the log level of each kind of event.
///
/// Use it if the log says too much or too little. `LevelFilter::OFF` turns a kind off. The retry and the throttle
/// take the same levels.
///
/// ```
/// use reqwest_steady::observe::LogLevels;
/// use reqwest_steady::RetryMiddleware;
/// use tracing::level_filters::LevelFilter;
///
/// let quiet = LogLevels::default()
///     .retry(LevelFilter::DEBUG)
///     .given_up(LevelFilter::INFO);
/// assert_eq!(quiet.get_given_up(), LevelFilter::INFO);
/// let retry = RetryMiddleware::builder().log_levels(quiet).build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// # Lines
///
/// All lines have the target `reqwest_steady`. The text is constant and names the event. Every value is in a field:
///
/// ```text
/// INFO retrying host=api.example.com method=GET outcome=503 attempt=1 max_attempts=6 wait_ms=380 hint_ms=0
/// INFO retrying host=api.example.com method=GET outcome=503 attempt=1 max_attempts=6 wait_ms=1520 wait_reason=host_failures
/// INFO waiting in line to retry host=api.example.com method=GET outcome=429 attempt=1 max_attempts=6 wait_ms=380 wait_reason=budget
/// INFO would retry (dry run) host=api.example.com method=GET outcome=503 attempt=1 max_attempts=6 wait_ms=380
/// TRACE call succeeded host=api.example.com method=GET outcome=200 attempt=1 max_attempts=6 waited_ms=0 took_ms=0
/// DEBUG call recovered host=api.example.com method=GET outcome=200 attempt=2 max_attempts=6 waited_ms=380 took_ms=380
/// DEBUG not retrying host=api.example.com method=GET outcome=404 stop_reason=not_retryable effect=did_not_happen attempt=1 max_attempts=6 waited_ms=0 took_ms=0
/// WARN giving up host=api.example.com method=GET outcome=503 stop_reason=server_delay_too_long effect=unknown attempt=1 max_attempts=6 waited_ms=0 took_ms=0 hint_ms=3600000 advice="raise max_server_delay to wait longer"
/// DEBUG call dropped host=api.example.com method=GET attempt=1 took_ms=1000
/// INFO throttle paused host=api.example.com asked_by=refusal pause_ms=120
/// INFO throttle reopened host=api.example.com
/// INFO throttle lowered the pace host=api.example.com per_second=47.279 before=80.0
/// INFO throttle freed the pace host=api.example.com before=58.007
/// WARN throttle refused a request host=api.example.com method=GET reason=queue_full depth=1 waited_ms=0 retry_after_ms=0 refusals=501 advice="raise max_queue to queue more"
/// ```
///
/// | field | meaning |
/// |---|---|
/// | `host` | the host, and the port if it is not the default; no other part of the URL |
/// | `outcome` | the status, or the label of a [`FailureKind`](crate::observe::FailureKind) |
/// | `stop_reason` | the label of a [`StopReason`] |
/// | `effect` | whether the request took effect: the label of an [`Effect`](crate::Effect) |
/// | `attempt`, `max_attempts` | the number of the attempt, and the most that the call may make |
/// | `wait_ms`, `hint_ms` | the wait before the retry, without the queue of a throttle, and the wait that the server asked for |
/// | `wait_reason` | the label of a [`WaitReason`](crate::observe::WaitReason), unless it is the backoff of the call; with `budget`, the call waits in line after `wait_ms` |
/// | `waited_ms`, `took_ms` | all waits of the call, and its whole time; in a refusal, the time in the queue |
/// | `asked_by` | the label of a [`PauseSource`](crate::observe::PauseSource) |
/// | `pause_ms` | the length of the pause |
/// | `per_second`, `before` | the pace now and before, in requests per second; missing while there is none |
/// | `reason` | the label of a [`RefusalReason`](crate::observe::RefusalReason) |
/// | `depth`, `retry_after_ms` | the queued requests, and the estimated wait until one may be accepted |
/// | `refusals` | all refusals at the same key so far |
/// | `advice` | what you can do about it |
///
/// A throttle cannot flood the log. Each of its lines appears at most once per second and key, and a pause also if
/// it is ten times as long as the last one. Refusals in between are in the count of the next line.
///
/// The lines need a `tracing` subscriber. The `log` feature of `tracing` does not forward them to the `log` crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "levels do nothing until they are given to a builder"]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "a table of settings")
)]
pub struct LogLevels {
    #[cfg_attr(feature = "serde", serde(with = "text::level"))]
    retry: LevelFilter,
    #[cfg_attr(feature = "serde", serde(with = "text::level"))]
    success: LevelFilter,
    #[cfg_attr(feature = "serde", serde(with = "text::level"))]
    recovery: LevelFilter,
    #[cfg_attr(feature = "serde", serde(with = "text::level"))]
    rejection: LevelFilter,
    #[cfg_attr(feature = "serde", serde(with = "text::level"))]
    given_up: LevelFilter,
    #[cfg_attr(feature = "serde", serde(with = "text::level"))]
    abandoned: LevelFilter,
    #[cfg_attr(feature = "serde", serde(with = "text::level"))]
    pause: LevelFilter,
    #[cfg_attr(feature = "serde", serde(with = "text::level"))]
    pace: LevelFilter,
    #[cfg_attr(feature = "serde", serde(with = "text::level"))]
    refusal: LevelFilter,
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
            pause: LevelFilter::INFO,
            pace: LevelFilter::INFO,
            refusal: LevelFilter::WARN,
        }
    }
}

impl LogLevels {
    /// Turns off all lines about calls and throttles. Warnings about misuse stay.
    pub fn off() -> Self {
        Self {
            retry: LevelFilter::OFF,
            success: LevelFilter::OFF,
            recovery: LevelFilter::OFF,
            rejection: LevelFilter::OFF,
            given_up: LevelFilter::OFF,
            abandoned: LevelFilter::OFF,
            pause: LevelFilter::OFF,
            pace: LevelFilter::OFF,
            refusal: LevelFilter::OFF,
        }
    }

    /// Sets the level for retries.
    ///
    /// Default: `INFO`.
    pub fn retry(mut self, level: LevelFilter) -> Self {
        self.retry = level;
        self
    }

    /// Returns the level for retries.
    pub fn get_retry(&self) -> LevelFilter {
        self.retry
    }

    /// Sets the level for calls that succeed at their first attempt.
    ///
    /// Default: `TRACE`.
    pub fn success(mut self, level: LevelFilter) -> Self {
        self.success = level;
        self
    }

    /// Returns the level for calls that succeed at their first attempt.
    pub fn get_success(&self) -> LevelFilter {
        self.success
    }

    /// Sets the level for calls that succeed after one or more retries.
    ///
    /// Default: `DEBUG`.
    pub fn recovery(mut self, level: LevelFilter) -> Self {
        self.recovery = level;
        self
    }

    /// Returns the level for calls that succeed after retries.
    pub fn get_recovery(&self) -> LevelFilter {
        self.recovery
    }

    /// Sets the level for calls that a retry would not help, or that must not be retried.
    ///
    /// These end with [`NotRetryable`](StopReason::NotRetryable), [`ServerVeto`](StopReason::ServerVeto),
    /// [`Disabled`](StopReason::Disabled) or [`DryRun`](StopReason::DryRun). A call whose first attempt the throttle
    /// refused is one, too, because the throttle logs it.
    ///
    /// Default: `DEBUG`.
    pub fn rejection(mut self, level: LevelFilter) -> Self {
        self.rejection = level;
        self
    }

    /// Returns the level for calls that are not retried.
    pub fn get_rejection(&self) -> LevelFilter {
        self.rejection
    }

    /// Sets the level for calls that gave up although a later retry might succeed.
    ///
    /// Default: `WARN`.
    pub fn given_up(mut self, level: LevelFilter) -> Self {
        self.given_up = level;
        self
    }

    /// Returns the level for calls that gave up.
    pub fn get_given_up(&self) -> LevelFilter {
        self.given_up
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

    /// Returns the level for calls that their caller drops.
    pub fn get_abandoned(&self) -> LevelFilter {
        self.abandoned
    }

    /// Sets the level for pauses of a throttle, and for their ends.
    ///
    /// The next request notices that a pause is over.
    ///
    /// Default: `INFO`.
    pub fn pause(mut self, level: LevelFilter) -> Self {
        self.pause = level;
        self
    }

    /// Returns the level for pauses of a throttle.
    pub fn get_pause(&self) -> LevelFilter {
        self.pause
    }

    /// Sets the level for a throttle's pace: lowered by 10 % or more, or freed.
    ///
    /// Default: `INFO`.
    pub fn pace(mut self, level: LevelFilter) -> Self {
        self.pace = level;
        self
    }

    /// Returns the level for a throttle's pace.
    pub fn get_pace(&self) -> LevelFilter {
        self.pace
    }

    /// Sets the level for requests that a throttle refuses.
    ///
    /// Default: `WARN`.
    pub fn refusal(mut self, level: LevelFilter) -> Self {
        self.refusal = level;
        self
    }

    /// Returns the level for requests that a throttle refuses.
    pub fn get_refusal(&self) -> LevelFilter {
        self.refusal
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
            reason if is_rejection(reason) => self.rejection,
            _ => self.given_up,
        }
    }

    /// Returns whether a call that does not succeed at once is logged.
    pub(crate) fn logs_problems(&self) -> bool {
        is_on(self.retry) || is_on(self.recovery) || self.logs_failures()
    }

    /// Returns whether anything about a throttle is logged.
    pub(crate) fn logs_throttle(&self) -> bool {
        [self.pause, self.pace, self.refusal].into_iter().any(is_on)
    }

    /// Writes the event to the log, if its level is enabled.
    #[inline]
    pub(crate) fn log(&self, event: &Event<'_>) {
        if let Some(level) = self.level_of(event).filter(|level| is_on(*level)) {
            write(level, event);
        }
    }

    fn level_of(&self, event: &Event<'_>) -> Option<LevelFilter> {
        Some(match &event.kind {
            EventKind::RetryScheduled(_) => self.retry,
            EventKind::Abandoned(_) => self.abandoned,
            // Nothing was sent, and the throttle has logged it. In an overload there are thousands of these.
            EventKind::Stopped(stop) if stop.outcome == THROTTLED => self.rejection,
            EventKind::Stopped(stop) => self.for_stop(&event.call, stop.stop_reason),
            EventKind::ThrottlePaused(_) | EventKind::ThrottleReleased => self.pause,
            EventKind::ThrottlePaced(_) => self.pace,
            EventKind::ThrottleRefused(_) => self.refusal,
            _ => return None,
        })
    }
}

const THROTTLED: AttemptOutcome = AttemptOutcome::Failure(FailureKind::Throttled);

fn is_on(level: LevelFilter) -> bool {
    level != LevelFilter::OFF && level <= STATIC_MAX_LEVEL && level <= LevelFilter::current()
}

fn write(level: LevelFilter, event: &Event<'_>) {
    let call = &event.call;
    match &event.kind {
        EventKind::RetryScheduled(retry) => lines::retry(level, call, retry),
        EventKind::Abandoned(abandoned) => lines::abandoned(level, call, abandoned),
        EventKind::Stopped(stop) => match stop.stop_reason {
            StopReason::Succeeded => lines::success(level, call, stop),
            reason if is_rejection(reason) => lines::failure(level, call, stop, "not retrying"),
            _ => lines::failure(level, call, stop, "giving up"),
        },
        EventKind::ThrottlePaused(paused) => lines::paused(level, call, paused),
        EventKind::ThrottleReleased => lines::reopened(level, call),
        EventKind::ThrottlePaced(pace) => lines::pace(level, call, pace),
        EventKind::ThrottleRefused(refused) => lines::refusal(level, call, refused),
        _ => {}
    }
}

/// Whether a retry would not help, or must not be made.
fn is_rejection(reason: StopReason) -> bool {
    matches!(
        reason,
        StopReason::NotRetryable
            | StopReason::ServerVeto
            | StopReason::Disabled
            | StopReason::DryRun
    )
}
