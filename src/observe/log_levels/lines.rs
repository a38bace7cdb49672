//! The lines of the log: a short constant text that names the event, then fields, then advice.
//!
//! A value stands in one field and never in the text, so a line can be searched, counted and read. The host comes
//! first. The text must be true in every case that a field can name.

use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::super::event::{
    Abandoned, CallInfo, RetryScheduled, Stopped, ThrottlePaced, ThrottlePaused, ThrottleRefused,
};
use crate::log::TARGET;
use crate::outcome::{RefusalReason, StopReason, WaitReason};

/// Writes an event at a level that is known only at run time. `tracing` needs one call site per level.
macro_rules! event_at {
    ($level:expr, $($fields:tt)+) => {
        match $level {
            LevelFilter::ERROR => tracing::error!(target: TARGET, $($fields)+),
            LevelFilter::WARN => tracing::warn!(target: TARGET, $($fields)+),
            LevelFilter::INFO => tracing::info!(target: TARGET, $($fields)+),
            LevelFilter::DEBUG => tracing::debug!(target: TARGET, $($fields)+),
            LevelFilter::TRACE => tracing::trace!(target: TARGET, $($fields)+),
            _ => {}
        }
    };
}

pub(super) fn retry(level: LevelFilter, call: &CallInfo<'_>, retry: &RetryScheduled) {
    let event = match (retry.dry_run, retry.in_line) {
        (true, _) => "would retry (dry run)",
        (false, true) => "waiting in line to retry",
        (false, false) => "retrying",
    };
    let wait_reason = match (retry.in_line, retry.reason) {
        (true, _) => Some(WaitReason::Budget),
        // The usual reason needs no words.
        (false, WaitReason::Backoff) => None,
        (false, longer) => Some(longer),
    };
    event_at!(
        level,
        host = %call.host,
        method = %call.method,
        outcome = %retry.cause,
        attempt = call.attempt,
        max_attempts = retry.max_attempts,
        wait_ms = milliseconds(retry.wait),
        wait_reason = wait_reason.map(tracing::field::display),
        hint_ms = retry.hint.map(milliseconds),
        "{event}"
    );
}

/// A call that succeeded, at once or after retries.
pub(super) fn success(level: LevelFilter, call: &CallInfo<'_>, stop: &Stopped) {
    let event = if call.attempt > 1 {
        "call recovered"
    } else {
        "call succeeded"
    };
    event_at!(
        level,
        host = %call.host,
        method = %call.method,
        outcome = %stop.outcome,
        attempt = call.attempt,
        max_attempts = stop.max_attempts,
        waited_ms = milliseconds(stop.waited),
        took_ms = milliseconds(stop.took),
        "{event}"
    );
}

/// A call that ended without success. `event` is "giving up" if a later retry might succeed.
pub(super) fn failure(
    level: LevelFilter,
    call: &CallInfo<'_>,
    stop: &Stopped,
    event: &'static str,
) {
    event_at!(
        level,
        host = %call.host,
        method = %call.method,
        outcome = %stop.outcome,
        stop_reason = %stop.stop_reason,
        effect = %stop.effect,
        attempt = call.attempt,
        max_attempts = stop.max_attempts,
        waited_ms = milliseconds(stop.waited),
        took_ms = milliseconds(stop.took),
        hint_ms = stop.hint.map(milliseconds),
        advice = advice(stop.stop_reason),
        "{event}"
    );
}

pub(super) fn abandoned(level: LevelFilter, call: &CallInfo<'_>, abandoned: &Abandoned) {
    event_at!(
        level,
        host = %call.host,
        method = %call.method,
        attempt = call.attempt,
        took_ms = milliseconds(abandoned.took),
        "call dropped"
    );
}

pub(super) fn paused(level: LevelFilter, call: &CallInfo<'_>, paused: &ThrottlePaused) {
    event_at!(
        level,
        host = %call.host,
        asked_by = %paused.asked_by,
        pause_ms = milliseconds(paused.pause),
        "throttle paused"
    );
}

pub(super) fn reopened(level: LevelFilter, call: &CallInfo<'_>) {
    event_at!(level, host = %call.host, "throttle reopened");
}

/// A pace that fell, or that holds no longer. A pace that rises is not worth a line.
pub(super) fn pace(level: LevelFilter, call: &CallInfo<'_>, pace: &ThrottlePaced) {
    let (now, before) = (pace.per_second, pace.before);
    let event = match (now, before) {
        (None, _) => "throttle freed the pace",
        (Some(now), Some(before)) if now > before => return,
        (Some(_), _) => "throttle lowered the pace",
    };
    event_at!(
        level,
        host = %call.host,
        per_second = now.map(rounded),
        before = before.map(rounded),
        "{event}"
    );
}

pub(super) fn refusal(level: LevelFilter, call: &CallInfo<'_>, refused: &ThrottleRefused) {
    event_at!(
        level,
        host = %call.host,
        method = %call.method,
        reason = %refused.reason,
        depth = refused.depth,
        waited_ms = milliseconds(refused.waited),
        retry_after_ms = milliseconds(refused.retry_after),
        refusals = refused.refusals,
        advice = advice_on_refusal(refused.reason),
        "throttle refused a request"
    );
}

/// Says what allows more retries, where that is for the reader to decide.
fn advice(reason: StopReason) -> Option<&'static str> {
    Some(match reason {
        StopReason::NotIdempotent => "set an idempotency key to allow retries",
        StopReason::BodyNotReplayable => "send the stream with body_with to allow retries",
        StopReason::WindowClosed => "raise retry_window to retry longer",
        StopReason::DeadlineTooClose => "raise the deadline to retry longer",
        StopReason::BudgetEmpty => "check the server before you raise the budget",
        StopReason::AllowanceSpent => "raise max_retries of the enclosing call or scope",
        StopReason::ServerDelayTooLong => "raise max_server_delay to wait longer",
        _ => return None,
    })
}

fn advice_on_refusal(reason: RefusalReason) -> &'static str {
    match reason {
        RefusalReason::QueueFull => "raise max_queue to queue more",
        RefusalReason::WaitTooLong => "raise max_queue_wait to wait longer",
        RefusalReason::DeadlineTooClose => "raise the deadline to wait longer",
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Three decimals: the lowest pace is one request in 30 seconds.
fn rounded(per_second: f64) -> f64 {
    (per_second * 1000.0).round() / 1000.0
}
