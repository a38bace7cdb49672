//! One call as observers and the log see it.

use std::time::Duration;

use reqwest::Response;
use reqwest_middleware::Result;

use super::decision::Retry;
use super::{Call, Stop};
use crate::clock;
use crate::decide::ClassifiedOutcome;
use crate::handoff::ThrottleVisit;
use crate::host::HostPlace;
use crate::observe::{
    Abandoned, AttemptFinished, BudgetRefused, CallInfo, Event, EventKind, LimitHeaders,
    RetryScheduled, Stopped,
};
use crate::outcome::{Attempt, AttemptOutcome, RetryReport, StopReason};
use crate::request::RequestTarget;

/// How far observers and the log have followed a call.
#[derive(Clone, Copy)]
pub(super) struct Tracking {
    /// The latest attempt that began.
    pub(super) attempt: Attempt,
    phase: CallPhase,
    /// The outcome of the attempt before the running one.
    retry_of: Option<AttemptOutcome>,
}

#[derive(Clone, Copy, PartialEq)]
enum CallPhase {
    BetweenAttempts,
    InAttempt,
    Over,
}

/// Returns what each event says about its call.
pub(super) fn call_info(target: &RequestTarget, host: HostPlace, attempt: Attempt) -> CallInfo<'_> {
    CallInfo {
        method: &target.method,
        host: host.text(&target.url),
        attempt: attempt.number(),
        host_hash: host.hash,
    }
}

impl Drop for Call<'_> {
    /// Notifies of a call that was dropped before it was over.
    fn drop(&mut self) {
        let Some(tracking) = self.tracking else {
            return;
        };
        if tracking.phase != CallPhase::Over {
            self.notify(EventKind::Abandoned(Abandoned {
                in_attempt: tracking.phase == CallPhase::InAttempt,
                retry_of: tracking.retry_of,
                took: clock::now().saturating_duration_since(self.time.started),
            }));
        }
    }
}

impl Call<'_> {
    /// Tracks this call from now on.
    pub(super) fn track(&mut self) {
        if let Some(record) = &self.record {
            let url = &record.request.target().url;
            self.host.get_or_insert_with(|| HostPlace::of(url));
            self.tracking = Some(Tracking {
                attempt: self.attempt,
                phase: CallPhase::BetweenAttempts,
                retry_of: None,
            });
        }
    }

    pub(super) fn is_tracked(&self) -> bool {
        self.tracking.is_some()
    }

    /// Tracks a call whose attempt failed, if it is not tracked yet. The log needs no earlier tracking unless it
    /// shows successes.
    fn track_failed(&mut self) {
        if !self.is_tracked() && self.config.logs_problems() {
            self.track();
        }
    }

    /// Notifies observers and the log of a tracked call.
    pub(super) fn notify(&self, kind: EventKind) {
        if let Some(event) = self.event(kind) {
            self.config.notify(&event);
        }
    }

    /// Returns an event of a tracked call.
    fn event(&self, kind: EventKind) -> Option<Event<'_>> {
        let (record, host, tracking) = (self.record.as_ref()?, self.host?, self.tracking?);
        let call = call_info(record.request.target(), host, tracking.attempt);
        Some(Event { call, kind })
    }

    /// Notifies of an attempt that begins.
    pub(super) fn notify_attempt_started(&mut self) {
        if let Some(tracking) = &mut self.tracking {
            tracking.attempt = self.attempt;
            tracking.phase = CallPhase::InAttempt;
            self.notify(EventKind::AttemptStarted);
        }
    }

    /// Notifies of an attempt that has ended.
    fn notify_attempt_finished(&mut self, outcome: ClassifiedOutcome, result: &Result<Response>) {
        let (took, queued) = (self.attempt_time(), self.queued_in_attempt());
        let Some(tracking) = &mut self.tracking else {
            return;
        };
        tracking.phase = CallPhase::BetweenAttempts;
        let headers = result.as_ref().ok().map(Response::headers);
        let finished = AttemptFinished {
            outcome: outcome.outcome,
            retry_of: tracking.retry_of.replace(outcome.outcome),
            took,
            queued: queued.min(took),
            limit_headers: headers.map(LimitHeaders::in_response).unwrap_or_default(),
        };
        self.notify(EventKind::AttemptFinished(finished));
    }

    /// How long the attempt that has ended was in queues.
    pub(super) fn queued_in_attempt(&self) -> Duration {
        self.visit.map(ThrottleVisit::queued).unwrap_or_default()
    }

    fn max_attempts(&self) -> u32 {
        self.max_retries.saturating_add(1)
    }

    /// Notifies of an attempt that a retry follows.
    pub(super) fn notify_retry(&mut self, retry: &Retry, result: &Result<Response>) {
        self.track_failed();
        let scheduled = RetryScheduled {
            cause: retry.outcome.outcome,
            wait: retry.plan.wait,
            hint: retry.hint,
            reason: retry.plan.reason,
            in_line: retry.in_line,
            max_attempts: self.max_attempts(),
            budget: self.balance(retry.decided),
            dry_run: self.config.dry_run,
        };
        self.notify_attempt_finished(retry.outcome, result);
        self.notify(EventKind::RetryScheduled(scheduled));
    }

    /// Notifies of the last attempt.
    pub(super) fn notify_last_attempt(
        &mut self,
        stop: Stop,
        result: &Result<Response>,
        balance: f64,
    ) {
        self.track_failed();
        if !stop.is_attempt_reported {
            self.notify_attempt_finished(stop.outcome, result);
        }
        if stop.reason == StopReason::BudgetEmpty {
            let refused = BudgetRefused {
                cause: stop.outcome.outcome,
                budget: balance,
            };
            self.notify(EventKind::BudgetRefused(refused));
        }
    }

    /// Notifies of the end of the call.
    pub(super) fn notify_stop(&mut self, report: &RetryReport, balance: f64) {
        let Some(tracking) = &mut self.tracking else {
            return;
        };
        tracking.attempt = Attempt::after(report.retries());
        tracking.phase = CallPhase::Over;
        let stopped = self.event(EventKind::Stopped(Stopped {
            stop_reason: report.stop_reason,
            outcome: report.last.outcome,
            effect: report.effect(),
            max_attempts: self.max_attempts(),
            waited: report.waited(),
            took: report.took,
            hint: report.last.hint,
            budget: self.could_retry().then_some(balance),
        }));
        match stopped {
            None => {}
            // The retry around this one logs the end of the call.
            Some(event) if self.is_inner => self.config.observers.notify(&event),
            Some(event) => self.config.notify(&event),
        }
    }
}
