//! One call as those see it who want to know: observers, the log, and whoever gets the letters.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use reqwest::{Response, Url};
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::super::settings::Settings;
use super::{Call, End, Retry};
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

/// What is kept of a call only because somebody wants to know. When this is dropped before the call
/// is over, the caller has dropped the call.
pub(crate) struct Watch<'a> {
    settings: &'a Settings,
    pub(super) method: Method,
    pub(super) host: Arc<str>,
    pub(super) attempt: Attempt,
    started: Instant,
    stage: Stage,
    /// How the attempt before the running one ended.
    retry_of: Option<AttemptOutcome>,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Waiting,
    InAttempt,
    Over,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        settings: &'a Settings,
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

    fn tell(&self, kind: EventKind) {
        self.settings.tell(&self.event(kind));
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
        self.tell(EventKind::CallStarted);
    }

    pub(super) fn attempt_started(&mut self, attempt: Attempt) {
        self.attempt = attempt;
        self.stage = Stage::InAttempt;
        self.tell(EventKind::AttemptStarted);
    }

    fn attempt_finished(
        &mut self,
        classified: ClassifiedOutcome,
        result: &Result<Response>,
        took: Duration,
    ) {
        self.stage = Stage::Waiting;
        let headers = result.as_ref().ok().map(Response::headers);
        self.tell(EventKind::AttemptFinished(AttemptFinished {
            outcome: classified.outcome,
            retry_of: self.retry_of,
            took,
            limit_headers: headers.map(LimitHeaders::in_response).unwrap_or_default(),
        }));
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.stage != Stage::Over {
            self.tell(EventKind::Abandoned(Abandoned {
                in_attempt: self.stage == Stage::InAttempt,
                retry_of: self.retry_of,
                took: clock::now().saturating_duration_since(self.started),
            }));
        }
    }
}

impl<'a> Call<'a> {
    /// Tells of this call from now on.
    pub(super) fn watch(&mut self, method: &Method, url: &Url) -> &mut Watch<'a> {
        self.set_watch(Watch::new(self.settings, method, url, self.time.started))
    }

    #[inline]
    fn set_watch(&mut self, mut watch: Watch<'a>) -> &mut Watch<'a> {
        watch.attempt = self.attempt;
        self.aside.get_or_insert_default().watch.insert(watch)
    }

    pub(super) fn watched(&mut self) -> Option<&mut Watch<'a>> {
        self.aside.as_mut()?.watch.as_mut()
    }

    /// How many attempts it may make in all.
    fn max_attempts(&self) -> u32 {
        self.max_retries.saturating_add(1)
    }

    /// If only the log wants to know, it wants to know of calls that do not go as they should: one that
    /// does pays nothing for it.
    fn watch_late(&mut self) {
        if self.watched().is_some() || !self.settings.says_anything() {
            return;
        }
        if let Some((method, url)) = self.spare.as_ref().map(RequestSnapshot::target) {
            let watch = Watch::new(self.settings, method, url, self.time.started);
            self.set_watch(watch);
        }
    }

    /// Tells of an attempt that is followed by another.
    pub(super) fn tell_retry(&mut self, retry: &Retry, result: &Result<Response>) {
        self.watch_late();
        let max_attempts = self.max_attempts();
        let took = self.attempt_took(retry.elapsed);
        let Some((watch, budget)) = self.watched_with_budget() else {
            return;
        };
        watch.attempt_finished(retry.classified, result, took);
        watch.retry_of = Some(retry.classified.outcome);
        watch.tell(EventKind::RetryScheduled(RetryScheduled {
            cause: retry.classified.outcome,
            wait: retry.wait,
            hint: retry.hint,
            max_attempts,
            budget: budget.balance_at(retry.decided),
            dry_run: watch.settings.dry_run,
        }));
    }

    /// Tells of the last attempt. `elapsed`: since the call began.
    pub(super) fn tell_last(
        &mut self,
        end: End,
        result: &Result<Response>,
        elapsed: Duration,
        now: Instant,
    ) {
        self.watch_late();
        let took = self.attempt_took(elapsed);
        let Some((watch, budget)) = self.watched_with_budget() else {
            return;
        };
        if end.reason != StopReason::DryRun {
            watch.attempt_finished(end.classified, result, took);
        }
        if end.reason == StopReason::BudgetEmpty {
            watch.tell(EventKind::BudgetRefused(BudgetRefused {
                cause: end.classified.outcome,
                budget: budget.balance_at(now),
            }));
        }
    }

    /// Tells how the call ended. `waited` is the time before all its attempts, also before one that a
    /// throttle kept from being sent, and that is not in the report.
    pub(super) fn tell_stop(
        &mut self,
        report: &RetryReport,
        waited: Duration,
        took: Duration,
        now: Instant,
    ) {
        let (max_attempts, could_retry) = (self.max_attempts(), self.could_retry());
        let is_inner = self.is_inner;
        let Some((watch, budget)) = self.watched_with_budget() else {
            return;
        };
        watch.stage = Stage::Over;
        watch.attempt = report.last_attempt();
        let stopped = EventKind::Stopped(Stopped {
            reason: report.stop,
            outcome: report.last.outcome,
            max_attempts,
            waited,
            took,
            budget: could_retry.then(|| budget.balance_at(now)),
        });
        match is_inner {
            true => watch.settings.observers.notify(&watch.event(stopped)),
            false => watch.tell(stopped),
        }
    }

    fn attempt_took(&self, elapsed: Duration) -> Duration {
        elapsed.saturating_sub(self.sent_at)
    }

    fn watched_with_budget(&mut self) -> Option<(&mut Watch<'a>, &Budget)> {
        let watch = self.aside.as_mut()?.watch.as_mut()?;
        Some((watch, &self.budget))
    }
}
