//! One call as observers and the log see it.

use std::time::Duration;

use reqwest::Response;
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::super::settings::RetrySettings;
use super::decision::Retry;
use super::record::CallRecord;
use super::{Call, Stop};
use crate::clock;
use crate::decide::ClassifiedOutcome;
use crate::host::HostPlace;
use crate::observe::{
    Abandoned, AttemptFinished, BudgetRefused, CallInfo, Event, EventKind, LimitHeaders,
    RetryScheduled, Stopped,
};
use crate::outcome::{Attempt, AttemptOutcome, RetryReport, StopReason};
use crate::request::RequestTarget;

/// What observers and the log know of a call.
pub(crate) struct CallEvents<'a> {
    settings: &'a RetrySettings,
    /// In the URL of the request.
    host: HostPlace,
    pub(super) attempt: Attempt,
    started: Instant,
    stage: Stage,
    /// The outcome of the attempt before the running one.
    retry_of: Option<AttemptOutcome>,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Waiting,
    InAttempt,
    Over,
}

impl CallEvents<'_> {
    pub(super) fn call<'t>(&self, target: &'t RequestTarget) -> CallInfo<'t> {
        CallInfo {
            method: &target.method,
            host: self.host.text(&target.url),
            attempt: self.attempt.number(),
            host_hash: self.host.hash,
        }
    }
}

impl CallRecord<'_> {
    fn notify(&self, kind: EventKind) {
        if let Some(events) = &self.events {
            let call = events.call(self.request.target());
            events.settings.notify(&Event { call, kind });
        }
    }

    fn notify_finished(
        &mut self,
        outcome: ClassifiedOutcome,
        result: &Result<Response>,
        took: Duration,
    ) {
        let Some(events) = &mut self.events else {
            return;
        };
        events.stage = Stage::Waiting;
        let headers = result.as_ref().ok().map(Response::headers);
        let finished = AttemptFinished {
            outcome: outcome.outcome,
            retry_of: events.retry_of,
            took,
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
        if events.stage != Stage::Over {
            self.notify(EventKind::Abandoned(Abandoned {
                in_attempt: events.stage == Stage::InAttempt,
                retry_of: events.retry_of,
                took: clock::now().saturating_duration_since(events.started),
            }));
        }
    }
}

impl<'a> Call<'a> {
    /// Tracks this call from now on.
    pub(super) fn track(&mut self) {
        if let (Some(record), Some(host)) = (&mut self.record, self.host) {
            record.events = Some(CallEvents {
                settings: self.settings,
                host,
                attempt: self.attempt,
                started: self.time.started,
                stage: Stage::Waiting,
                retry_of: None,
            });
        }
    }

    pub(super) fn is_tracked(&self) -> bool {
        (self.record.as_ref()).is_some_and(|record| record.events.is_some())
    }

    /// Tracks a call whose attempt failed, if it is not tracked yet. For the log alone, no call is tracked earlier.
    fn track_failed(&mut self) {
        if !self.is_tracked() && self.settings.logs_problems() {
            self.track();
        }
    }

    /// Returns the record of a tracked call.
    fn tracked(&mut self) -> Option<&mut CallRecord<'a>> {
        let record = self.record.as_deref_mut();
        record.filter(|record| record.events.is_some())
    }

    /// Notifies observers and the log of a tracked call.
    pub(super) fn notify(&self, kind: EventKind) {
        if let Some(record) = &self.record {
            record.notify(kind);
        }
    }

    /// Notifies of an attempt that begins.
    pub(super) fn notify_attempt(&mut self) {
        let Some(record) = &mut self.record else {
            return;
        };
        if let Some(events) = &mut record.events {
            events.attempt = self.attempt;
            events.stage = Stage::InAttempt;
            record.notify(EventKind::AttemptStarted);
        }
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
            max_attempts: self.max_attempts(),
            budget: self.budget.balance_at(retry.decided),
            dry_run: self.settings.dry_run,
        };
        let took = self.attempt_took(self.time.elapsed(retry.decided));
        if let Some(record) = self.tracked() {
            record.notify_finished(retry.outcome, result, took);
            if let Some(events) = &mut record.events {
                events.retry_of = Some(retry.outcome.outcome);
            }
            record.notify(EventKind::RetryScheduled(scheduled));
        }
    }

    /// Notifies of the last attempt. `elapsed` counts from the start of the call.
    pub(super) fn notify_last(
        &mut self,
        stop: Stop,
        result: &Result<Response>,
        elapsed: Duration,
        now: Instant,
    ) {
        self.track_failed();
        let took = self.attempt_took(elapsed);
        let Some(record) = self.tracked() else {
            return;
        };
        // `notify_retry` has reported the attempt of a dry run.
        if stop.reason != StopReason::DryRun {
            record.notify_finished(stop.outcome, result, took);
        }
        if stop.reason == StopReason::BudgetEmpty {
            let refused = BudgetRefused {
                cause: stop.outcome.outcome,
                budget: self.budget.balance_at(now),
            };
            self.notify(EventKind::BudgetRefused(refused));
        }
    }

    /// Notifies of the end of the call. `waited` is the time before all attempts, and before one that a throttle refused.
    pub(super) fn notify_stop(
        &mut self,
        report: &RetryReport,
        waited: Duration,
        took: Duration,
        now: Instant,
    ) {
        if !self.is_tracked() {
            return;
        }
        let budget = self.could_retry().then(|| self.budget.balance_at(now));
        let stopped = EventKind::Stopped(Stopped {
            reason: report.stop,
            outcome: report.last.outcome,
            max_attempts: self.max_attempts(),
            waited,
            took,
            budget,
        });
        let is_inner = self.is_inner;
        let Some(record) = self.record.as_deref_mut() else {
            return;
        };
        let Some(events) = &mut record.events else {
            return;
        };
        events.stage = Stage::Over;
        events.attempt = Attempt::after(report.retries());
        let event = Event {
            call: events.call(record.request.target()),
            kind: stopped,
        };
        match is_inner {
            // The retry around this one logs the end of the call.
            true => events.settings.observers.notify(&event),
            false => events.settings.notify(&event),
        }
    }

    fn attempt_took(&self, elapsed: Duration) -> Duration {
        elapsed.saturating_sub(self.sent_at)
    }
}
