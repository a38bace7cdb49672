//! One call as observers and the log see it.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use reqwest::{Response, Url};
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::super::settings::RetrySettings;
use super::decision::Retry;
use super::{Call, Stop};
use crate::admit::Budget;
use crate::clock;
use crate::decide::ClassifiedOutcome;
use crate::host::Host;
use crate::observe::{
    Abandoned, AttemptFinished, BudgetRefused, CallInfo, Event, EventKind, LimitHeaders,
    RetryScheduled, Stopped,
};
use crate::outcome::{Attempt, AttemptOutcome, RetryReport, StopReason};
use crate::request::RequestSnapshot;

/// Notifies observers and the log of one call. If this is dropped before the call is over, the caller has dropped
/// the call.
pub(crate) struct CallEvents<'a> {
    settings: &'a RetrySettings,
    pub(super) method: Method,
    pub(super) host: Arc<str>,
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

impl<'a> CallEvents<'a> {
    pub(super) fn new(
        settings: &'a RetrySettings,
        method: &Method,
        url: &Url,
        started: Instant,
    ) -> Self {
        Self {
            settings,
            method: method.clone(),
            host: Host(url).as_str().into(),
            attempt: Attempt::FIRST,
            started,
            stage: Stage::Waiting,
            retry_of: None,
        }
    }

    fn notify(&self, kind: EventKind) {
        self.settings.notify(&self.event(kind));
    }

    fn event(&self, kind: EventKind) -> Event<'_> {
        let call = CallInfo {
            method: &self.method,
            host: &self.host,
            attempt: self.attempt.number(),
        };
        Event { call, kind }
    }

    pub(super) fn call_started(&self) {
        self.notify(EventKind::CallStarted);
    }

    pub(super) fn attempt_started(&mut self, attempt: Attempt) {
        self.attempt = attempt;
        self.stage = Stage::InAttempt;
        self.notify(EventKind::AttemptStarted);
    }

    fn attempt_finished(
        &mut self,
        outcome: ClassifiedOutcome,
        result: &Result<Response>,
        took: Duration,
    ) {
        self.stage = Stage::Waiting;
        let headers = result.as_ref().ok().map(Response::headers);
        self.notify(EventKind::AttemptFinished(AttemptFinished {
            outcome: outcome.outcome,
            retry_of: self.retry_of,
            took,
            limit_headers: headers.map(LimitHeaders::in_response).unwrap_or_default(),
        }));
    }
}

impl Drop for CallEvents<'_> {
    fn drop(&mut self) {
        if self.stage != Stage::Over {
            self.notify(EventKind::Abandoned(Abandoned {
                in_attempt: self.stage == Stage::InAttempt,
                retry_of: self.retry_of,
                took: clock::now().saturating_duration_since(self.started),
            }));
        }
    }
}

impl<'a> Call<'a> {
    /// Tracks this call from now on.
    pub(super) fn track(&mut self, method: &Method, url: &Url) -> &mut CallEvents<'a> {
        let mut events = CallEvents::new(self.settings, method, url, self.time.started);
        events.attempt = self.attempt;
        self.extras.get_or_insert_default().events.insert(events)
    }

    /// Tracks a call whose attempt failed, if it is not tracked yet. For the log alone, no call is tracked earlier.
    fn track_failed(&mut self) {
        if self.events_mut().is_some() || !self.settings.logs_problems() {
            return;
        }
        let target = self.snapshot.as_deref().map(RequestSnapshot::target);
        if let Some((method, url)) = target.map(|(method, url)| (method.clone(), url.clone())) {
            self.track(&method, &url);
        }
    }

    pub(super) fn events_mut(&mut self) -> Option<&mut CallEvents<'a>> {
        self.extras.as_mut()?.events.as_mut()
    }

    fn events_and_budget(&mut self) -> Option<(&mut CallEvents<'a>, &Budget)> {
        let events = self.extras.as_mut()?.events.as_mut()?;
        Some((events, &self.budget))
    }

    fn max_attempts(&self) -> u32 {
        self.max_retries.saturating_add(1)
    }

    /// Notifies of an attempt that a retry follows.
    pub(super) fn notify_retry(&mut self, retry: &Retry, result: &Result<Response>) {
        self.track_failed();
        let max_attempts = self.max_attempts();
        let took = self.attempt_took(self.time.elapsed(retry.decided));
        let Some((events, budget)) = self.events_and_budget() else {
            return;
        };
        events.attempt_finished(retry.outcome, result, took);
        events.retry_of = Some(retry.outcome.outcome);
        events.notify(EventKind::RetryScheduled(RetryScheduled {
            cause: retry.outcome.outcome,
            wait: retry.plan.wait,
            hint: retry.hint,
            max_attempts,
            budget: budget.balance_at(retry.decided),
            dry_run: events.settings.dry_run,
        }));
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
        let Some((events, budget)) = self.events_and_budget() else {
            return;
        };
        // `notify_retry` has reported the attempt of a dry run.
        if stop.reason != StopReason::DryRun {
            events.attempt_finished(stop.outcome, result, took);
        }
        if stop.reason == StopReason::BudgetEmpty {
            events.notify(EventKind::BudgetRefused(BudgetRefused {
                cause: stop.outcome.outcome,
                budget: budget.balance_at(now),
            }));
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
        let (max_attempts, could_retry) = (self.max_attempts(), self.could_retry());
        let is_inner = self.is_inner;
        let Some((events, budget)) = self.events_and_budget() else {
            return;
        };
        events.stage = Stage::Over;
        events.attempt = Attempt::after(report.retries());
        let stopped = EventKind::Stopped(Stopped {
            reason: report.stop,
            outcome: report.last.outcome,
            max_attempts,
            waited,
            took,
            budget: could_retry.then(|| budget.balance_at(now)),
        });
        match is_inner {
            // The retry around this one logs the end of the call.
            true => events.settings.observers.notify(&events.event(stopped)),
            false => events.notify(stopped),
        }
    }

    fn attempt_took(&self, elapsed: Duration) -> Duration {
        elapsed.saturating_sub(self.sent_at)
    }
}
