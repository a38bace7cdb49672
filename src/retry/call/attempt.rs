//! One attempt: what it starts from, how long it may take, and what is known when it has ended.

use std::time::Duration;

use http::{Extensions, HeaderValue};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Result};
use tokio::time::Instant;

use super::super::permit::HandedOff;
use super::{Call, ReadBodies};
use crate::admit::in_scope;
use crate::clock;
use crate::decide::{ClassifiedOutcome, RequestFacts};
use crate::handoff::{Handoff, Terms};
use crate::outcome::SteadyError;
use crate::schedule::Limit;
use crate::upstream::BoxFuture;

impl Call<'_> {
    /// Numbers the attempt, and notifies observers and throttles.
    pub(crate) fn begin_attempt(&mut self, request: &mut Request, extensions: &mut Extensions) {
        if let Some(name) = &self.config.attempt_header {
            let number = HeaderValue::from(self.attempt.number());
            request.headers_mut().insert(name, number);
        }
        if let Some(slot) = self.slot().filter(|_| !self.attempt.is_retry()) {
            slot.begin_attempt();
        }
        self.notify_attempt_started();
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
            || self.time.attempt_timeout.is_some()
            // The throttle sees the deadline itself, and would wait for it past the retry window.
            || (is_retry && self.time.deadline.is_some())
            || !queued_before.is_zero()
            || self.reads == ReadBodies::All
            || self.state.inner.may_have_retry();
        if is_needed {
            let terms = Terms {
                latest: is_retry.then(|| self.time.window_end()),
                queued_before,
                can_retry: self.could_retry(),
                reads_successes: self.reads == ReadBodies::All,
            };
            let handoff = Handoff::insert(extensions, terms);
            self.handed_off = Some(HandedOff::new(handoff, permit));
        }
    }

    /// Returns whether an attempt has a scope or a time limit, and so needs [`run`](Self::run).
    pub(crate) fn is_bounded(&self) -> bool {
        self.scope.is_some() || self.time.has_limit()
    }

    /// Runs an attempt in the call's scope, for as long as it may take.
    pub(crate) async fn run(&self, attempt: BoxFuture<'_, Result<Response>>) -> Result<Response> {
        // Dropped at the end of this function, after the handoff is marked.
        let mut attempt = in_scope(self.scope.clone(), attempt);
        if !self.time.has_limit() {
            return attempt.await;
        }
        let limit = |now| self.attempt_limit(now).expect("there is one, as checked");
        let error = match self.time.deadline {
            Some(deadline) if self.began_too_late() => {
                Error::middleware(SteadyError::too_late(deadline))
            }
            _ => {
                let end = |now| limit(now).end();
                if let Some(result) = clock::within_moving(end, &mut attempt).await {
                    return result.map_err(|error| limit(clock::now()).replace_nested(error));
                }
                limit(clock::now()).error()
            }
        };
        if let Some(handed_off) = &self.handed_off {
            let has_timeout = self.time.attempt_timeout.is_some();
            handed_off.handoff.mark_cut_off(has_timeout);
        }
        Err(error)
    }

    /// Returns the time limit of the attempt, as far as it is known by now. It moves while the attempt waits in a
    /// throttle's queue.
    fn attempt_limit(&self, now: Instant) -> Option<Limit> {
        let moved = self.timeout_handoff().and_then(|it| it.clock_start(now));
        self.time
            .attempt_limit(moved.unwrap_or(self.attempt_start()))
    }

    /// Returns the handoff through which a throttle pauses the attempt's timeout. A deadline is never paused.
    fn timeout_handoff(&self) -> Option<&Handoff> {
        self.time.attempt_timeout?;
        self.handed_off.as_ref().map(|it| &it.handoff)
    }

    /// Reads what the throttles inside have left, spends or refunds the permit, and classifies the outcome.
    pub(crate) fn end_attempt(
        &mut self,
        result: &Result<Response>,
        extensions: &Extensions,
    ) -> ClassifiedOutcome {
        if self.is_measured() {
            self.ended = self.now();
        }
        let left = extensions.get::<Handoff>();
        let trace = match self.handed_off.take() {
            Some(handed_off) => Some(handed_off.end(left)),
            None => left.map(Handoff::trace),
        };
        if let Some(trace) = trace {
            self.state.inner.learn(trace);
        }
        self.visit = trace.and_then(|trace| trace.visit);
        self.classify(result)
    }

    /// Classifies the result of the attempt.
    pub(super) fn classify(&self, result: &Result<Response>) -> ClassifiedOutcome {
        let request = RequestFacts {
            target: (self.record.as_ref()).map(|record| record.request.target()),
            is_safe: self.is_safe,
            url: self.url(),
            has_key: self.has_key,
            still_running: self.has_key && self.history().is_some_and(|history| history.unclear),
            follows_redirects: self.config.client_follows_redirects,
        };
        let classifier = &self.config.classifier;
        classifier.classify(result, self.attempt, &request)
    }
}
