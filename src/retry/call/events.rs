//! One call as observers and the log see it.

use std::time::Duration;

use reqwest::Response;
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::super::config::RetryConfig;
use super::decision::Retry;
use super::record::CallRecord;
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

/// What observers and the log know of a call.
pub(crate) struct CallEvents<'a> {
    settings: &'a RetryConfig,
    /// In the URL of the request.
    pub(super) host: HostPlace,
    pub(super) attempt: Attempt,
    started: Instant,
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

impl CallRecord<'_> {
    fn notify(&self, kind: EventKind) {
        if let Some(events) = &self.events {
            let call = call_info(self.request.target(), events.host, events.attempt);
            events.settings.notify(&Event { call, kind });
        }
    }

    /// Notifies of an attempt that has ended.
    fn notify_attempt_finished(
        &mut self,
        outcome: ClassifiedOutcome,
        result: &Result<Response>,
        took: Duration,
        queued: Duration,
    ) {
        let Some(events) = &mut self.events else {
            return;
        };
        events.phase = CallPhase::BetweenAttempts;
        let headers = result.as_ref().ok().map(Response::headers);
        let finished = AttemptFinished {
            outcome: outcome.outcome,
            retry_of: events.retry_of.replace(outcome.outcome),
            took,
            queued: queued.min(took),
            limit_headers: headers.map(LimitHeaders::in_response).unwrap_or_default(),
        };
        self.notify(EventKind::AttemptFinished(finished));
    }
}

impl Drop for CallRecord<'_> {
    /// Notifies of a call that was dropped before it was over.
    fn drop(&mut self) {
        let Some(events) = &self.events else {
            return;
        };
        if events.phase != CallPhase::Over {
            self.notify(EventKind::Abandoned(Abandoned {
                in_attempt: events.phase == CallPhase::InAttempt,
                retry_of: events.retry_of,
                took: clock::now().saturating_duration_since(events.started),
            }));
        }
    }
}

impl Call<'_> {
    /// Tracks this call from now on.
    pub(super) fn track(&mut self) {
        if let Some(record) = &mut self.record {
            let url = &record.request.target().url;
            let host = self.host.unwrap_or_else(|| HostPlace::of(url));
            record.events = Some(CallEvents {
                settings: self.settings,
                host,
                attempt: self.attempt,
                started: self.time.started,
                phase: CallPhase::BetweenAttempts,
                retry_of: None,
            });
        }
    }

    pub(super) fn is_tracked(&self) -> bool {
        (self.record.as_ref()).is_some_and(|record| record.events.is_some())
    }

    /// Tracks a call whose attempt failed, if it is not tracked yet. The log needs no earlier tracking unless it
    /// shows successes.
    fn track_failed(&mut self) {
        if !self.is_tracked() && self.settings.logs_problems() {
            self.track();
        }
    }

    /// Notifies observers and the log of a tracked call.
    pub(super) fn notify(&self, kind: EventKind) {
        if let Some(record) = &self.record {
            record.notify(kind);
        }
    }

    /// Notifies of an attempt that begins.
    pub(super) fn notify_attempt_started(&mut self) {
        if let Some(record) = &mut self.record {
            if let Some(events) = &mut record.events {
                events.attempt = self.attempt;
                events.phase = CallPhase::InAttempt;
                record.notify(EventKind::AttemptStarted);
            }
        }
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
            dry_run: self.settings.dry_run,
        };
        let (took, queued) = (self.attempt_time(), self.queued_in_attempt());
        if let Some(record) = &mut self.record {
            record.notify_attempt_finished(retry.outcome, result, took, queued);
            record.notify(EventKind::RetryScheduled(scheduled));
        }
    }

    /// Notifies of the last attempt.
    pub(super) fn notify_last_attempt(
        &mut self,
        stop: Stop,
        result: &Result<Response>,
        now: Instant,
    ) {
        self.track_failed();
        let (took, queued) = (self.attempt_time(), self.queued_in_attempt());
        let Some(record) = &mut self.record else {
            return;
        };
        if !stop.is_attempt_reported {
            record.notify_attempt_finished(stop.outcome, result, took, queued);
        }
        if stop.reason == StopReason::BudgetEmpty {
            let refused = BudgetRefused {
                cause: stop.outcome.outcome,
                budget: self.balance(now),
            };
            self.notify(EventKind::BudgetRefused(refused));
        }
    }

    /// Notifies of the end of the call.
    pub(super) fn notify_stop(&mut self, report: &RetryReport, now: Instant) {
        if !self.is_tracked() {
            return;
        }
        let (could_retry, max_attempts) = (self.could_retry(), self.max_attempts());
        let budget = could_retry.then(|| self.balance(now));
        let record = self.record.as_deref_mut();
        let Some(CallRecord {
            request,
            events: Some(events),
            ..
        }) = record
        else {
            return;
        };
        events.phase = CallPhase::Over;
        let kind = EventKind::Stopped(Stopped {
            stop_reason: report.stop_reason,
            outcome: report.last.outcome,
            effect: report.effect(),
            max_attempts,
            waited: report.waited(),
            took: report.took,
            hint: report.last.hint,
            budget,
        });
        let attempt = Attempt::after(report.retries());
        events.attempt = attempt;
        let call = call_info(request.target(), events.host, attempt);
        let event = Event { call, kind };
        match self.is_inner {
            // The retry around this one logs the end of the call.
            true => events.settings.observers.notify(&event),
            false => events.settings.notify(&event),
        }
    }
}
