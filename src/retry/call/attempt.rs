//! One attempt: what it starts from, how long it may take, and what is known when it has ended.

use std::pin::pin;
use std::time::Duration;

use http::{Extensions, HeaderValue};
use reqwest::{Request, Response};
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::super::permit::HandedOff;
use super::Call;
use crate::admit::in_scope;
use crate::clock;
use crate::decide::ClassifiedOutcome;
use crate::handoff::{Handoff, Terms};
use crate::request::RequestSnapshot;
use crate::schedule::{CallTime, Limit};

impl Call<'_> {
    /// Takes a snapshot of the request if it may be needed again, numbers the attempt, and notifies observers
    /// and throttles.
    pub(crate) fn begin_attempt(&mut self, request: &mut Request, extensions: &mut Extensions) {
        if self.snapshot.is_none()
            && (self.could_retry() || self.settings.dead_letters.sink.is_some())
        {
            let is_rebuilt = self.body_factory().is_some();
            self.snapshot = Some(Box::new(RequestSnapshot::of(
                request, is_rebuilt, extensions,
            )));
        }
        if let Some(name) = &self.settings.attempt_header {
            let number = HeaderValue::from(self.attempt.number());
            request.headers_mut().insert(name, number);
        }
        let attempt = self.attempt;
        if let Some(events) = self.events_mut() {
            events.attempt_started(attempt);
        }
        self.hand_off(extensions);
    }

    /// Inserts a handoff for the throttles inside, if one could change the cost or the time of this attempt.
    fn hand_off(&mut self, extensions: &mut Extensions) {
        let (mut permit, mut queued_before) = (None, Duration::ZERO);
        if let Some(history) = self.history_mut() {
            permit = history.permit.take();
            queued_before = history.queued;
        }
        let is_retry = self.attempt.is_retry();
        let is_needed = permit.is_some()
            || self.time.attempt.is_some()
            // No throttle sends it after the window, whatever the deadline leaves.
            || (is_retry && self.time.deadline.is_some())
            || !queued_before.is_zero()
            || self.settings.inner_retry.may_exist();
        if is_needed {
            let terms = Terms {
                latest: is_retry.then(|| self.time.window_end()),
                queued_before,
                can_retry: self.could_retry(),
            };
            let handoff = Handoff::insert(extensions, terms);
            self.handed_off = Some(HandedOff::new(handoff, permit));
        }
    }

    /// Runs an attempt in the call's scope, for as long as it may take.
    pub(crate) async fn run(
        &self,
        attempt: impl Future<Output = Result<Response>>,
    ) -> Result<Response> {
        let attempt = in_scope(self.scope.clone(), attempt);
        match AttemptTimer::of(self) {
            None => attempt.await,
            Some(timer) => timer.run(attempt).await,
        }
    }

    /// Reads what the throttles inside have left, spends or refunds the permit, and classifies the outcome.
    pub(crate) fn end_attempt(
        &mut self,
        result: &Result<Response>,
        extensions: &Extensions,
    ) -> ClassifiedOutcome {
        let left = match extensions.is_empty() {
            true => None,
            false => extensions.get::<Handoff>(),
        };
        self.visit = left.and_then(Handoff::visit);
        let mut had_inner = left.is_some_and(Handoff::had_inner_retry);
        if let Some(handed_off) = self.handed_off.take() {
            // A middleware between may have passed on a copy of the extensions, or the attempt was dropped.
            self.visit = self.visit.or(handed_off.handoff.visit());
            had_inner |= handed_off.handoff.had_inner_retry();
            handed_off.end();
        }
        self.settings.inner_retry.learn(had_inner);
        self.classify(result)
    }

    /// Classifies the result of the attempt.
    pub(super) fn classify(&self, result: &Result<Response>) -> ClassifiedOutcome {
        self.settings.classifier.classify(
            result,
            (self.extras.as_ref()).and_then(|extras| extras.target.as_ref()),
            self.attempt,
            self.has_key && self.history().is_some_and(|history| history.unclear),
        )
    }
}

/// The time limit of an attempt, which moves while the attempt waits in a throttle's queue.
struct AttemptTimer<'a> {
    time: &'a CallTime,
    started: Instant,
    /// The limit if no throttle changes it.
    first: Limit,
    /// `None` without an attempt's timeout: a deadline does not move.
    handoff: Option<&'a Handoff>,
}

impl<'a> AttemptTimer<'a> {
    /// `None` if the attempt has no limit.
    fn of(call: &'a Call<'a>) -> Option<Self> {
        let handoff = call.handed_off.as_ref().map(|it| &it.handoff);
        Some(Self {
            time: &call.time,
            started: call.attempt_start(),
            first: call.time.attempt_limit(call.attempt_start())?,
            handoff: handoff.filter(|_| call.time.attempt.is_some()),
        })
    }

    /// Returns the limit as far as it is known by now.
    fn limit(&self, now: Instant) -> Limit {
        let moved = self.handoff.and_then(|handoff| handoff.clock_start(now));
        let limit = moved.and_then(|start| self.time.attempt_limit(start));
        limit.unwrap_or(self.first)
    }

    async fn run(self, attempt: impl Future<Output = Result<Response>>) -> Result<Response> {
        // Dropped at the end of this function, after the handoff is marked.
        let attempt = pin!(attempt);
        // With no time left, nothing is sent.
        if self.started < self.first.end() {
            let end = |now| self.limit(now).end();
            if let Some(result) = clock::within_moving(end, attempt).await {
                return result.map_err(|error| self.limit(clock::now()).replace_nested(error));
            }
        }
        let limit = self.limit(clock::now());
        if let Some(handoff) = self.handoff {
            handoff.time_out();
        }
        Err(limit.error())
    }
}
