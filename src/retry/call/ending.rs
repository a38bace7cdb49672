//! From one attempt to the next, or to the end of the call.

use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Result};
use tokio::time::Instant;

use super::decision::Retry;
use super::letter::LetterDelivery;
use super::{Call, Stop};
use crate::admit::{BudgetHold, NotReleased, Release, ScopeNode};
use crate::clock;
use crate::decide::ClassifiedOutcome;
use crate::entropy::up_to;
use crate::handoff::ThrottleVisit;
use crate::observe::{BudgetWaited, EventKind};
use crate::outcome::{
    Attempt, AttemptReport, FailedReport, RetryReport, SteadyError, StopReason, WaitReason,
};
use crate::response::{self, HeldResponse};
use crate::schedule::Moment;

/// No call stays in line longer, even if its retry window is longer.
const MAX_TIME_IN_LINE: Duration = Duration::from_secs(60);

/// What [`close_attempt`](Call::close_attempt) has changed.
struct ClosedAttempt {
    /// How many attempts came before this one.
    earlier: usize,
    attempt: Attempt,
    waited: Duration,
    wait_reason: Option<WaitReason>,
    queued: Duration,
}

impl Call<'_> {
    /// Drains or holds the response, and waits until the retry is due and paid for.
    ///
    /// # Errors
    ///
    /// If a call in line is not released in time: why it stops, and the result of its last attempt.
    pub(crate) async fn wait(
        &mut self,
        retry: &mut Retry,
        mut result: Result<Response>,
        extensions: &mut Extensions,
    ) -> std::result::Result<(), (Stop, Result<Response>)> {
        let closed = self.close_attempt(retry, &result, extensions);
        let due = clock::after(retry.decided, retry.plan.wait);
        let drain_end = self.time.drain_end(due);
        if self.visit.is_some() || retry.in_line {
            // The caller gets it if the retry is not sent.
            let held = HeldResponse::new(result);
            let held = self.history_or_new().held.insert(held);
            held.read_ahead(drain_end).await;
        } else {
            response::drain(&mut result, drain_end).await;
            drop(result);
        }
        tokio::time::sleep_until(due).await;
        if !retry.in_line {
            return Ok(());
        }
        let since = clock::now();
        let paid = retry.permit.budget.take_paid();
        let released = self.wait_in_line(since, paid).await;
        self.notify(EventKind::BudgetWaited(BudgetWaited {
            wait: clock::now().saturating_duration_since(since),
            is_released: released.is_ok(),
        }));
        match released {
            Ok(release) => {
                retry.permit.budget = BudgetHold::released(release);
                self.waited = clock::now().saturating_duration_since(retry.decided);
                self.wait_reason = Some(WaitReason::Budget);
                if self.visit.is_none() {
                    self.history_or_new().held = None;
                }
                Ok(())
            }
            Err(reason) => {
                let stop = Stop {
                    outcome: retry.outcome,
                    reason,
                    hint: retry.hint,
                    is_attempt_reported: true,
                    waited: clock::now().saturating_duration_since(retry.decided),
                };
                Err((stop, self.reopen_attempt(closed)))
            }
        }
    }

    /// Waits until this call is the first in line, and a success of another call or a payment releases it.
    async fn wait_in_line(
        &self,
        now: Instant,
        paid: Option<BudgetHold>,
    ) -> std::result::Result<Release, StopReason> {
        let (mut end, mut reason) = (clock::after(now, MAX_TIME_IN_LINE), StopReason::BudgetEmpty);
        let deadline = (self.time.longest_wait(now)).map(|wait| clock::after(now, wait));
        for (limit, limit_reason) in [
            (Some(self.time.window_end()), StopReason::WindowClosed),
            (deadline, StopReason::DeadlineTooClose),
        ] {
            if let Some(limit) = limit.filter(|limit| *limit < end) {
                (end, reason) = (limit, limit_reason);
            }
        }
        let record = (self.host_record.as_ref()).expect("only calls with a budget wait in line");
        let released = record.line.wait(end, paid).await;
        let release = released.map_err(|error| match error {
            NotReleased::LineFull => StopReason::BudgetEmpty,
            NotReleased::TooLate => reason,
        })?;
        let now = clock::now();
        let spread = release.gap.min(end.saturating_duration_since(now));
        if !spread.is_zero() {
            let delay = (self.state.entropy).with(|rng| up_to(spread, rng));
            tokio::time::sleep_until(clock::after(now, delay)).await;
        }
        // The runtime may be late. Dropped here, the release goes to the next call.
        match clock::now() > end {
            true => Err(reason),
            false => Ok(release),
        }
    }

    /// Undoes [`close_attempt`](Self::close_attempt), because no retry follows. Returns the result of the attempt.
    fn reopen_attempt(&mut self, closed: ClosedAttempt) -> Result<Response> {
        (self.attempt, self.waited) = (closed.attempt, closed.waited);
        self.wait_reason = closed.wait_reason;
        let history = self.history_or_new();
        history.attempts.truncate(closed.earlier);
        history.queued = closed.queued;
        let held = history.held.take();
        held.expect("a call in line holds its response")
            .into_result()
    }

    /// Notifies, adds the attempt that has ended to the history, and moves on to the next number.
    fn close_attempt(
        &mut self,
        retry: &Retry,
        result: &Result<Response>,
        extensions: &mut Extensions,
    ) -> ClosedAttempt {
        self.notify_retry(retry, result);
        let mut ended = self.attempt_report(retry.outcome, retry.hint);
        let inside = self.merge_inner(&mut ended, result, extensions);
        let queued = self.queued();
        let history = self.history_or_new();
        let earlier = history.attempts.len();
        history.attempts.extend(inside);
        history.attempts.push(ended);
        history.unclear |= retry.outcome.may_be_running();
        history.unprocessed += u32::from(retry.outcome.is_unprocessed());
        history.backoff = Some(retry.plan.backoff);
        let queued_before = std::mem::replace(&mut history.queued, queued);
        history.held = None;
        let closed = ClosedAttempt {
            earlier,
            attempt: self.attempt,
            waited: self.waited,
            wait_reason: self.wait_reason,
            queued: queued_before,
        };
        self.waited = retry.plan.wait;
        self.wait_reason = Some(retry.plan.reason);
        self.attempt = self.attempt.next();
        closed
    }

    /// Returns the request of the next attempt, which begins now.
    ///
    /// # Errors
    ///
    /// If its body cannot be built: why the call stops, and an error that says so. The permit is refunded. A response
    /// that was held for a throttle is dropped, because the error says more.
    pub(crate) fn next_request(
        &mut self,
        retry: Retry,
        extensions: &mut Extensions,
    ) -> std::result::Result<Request, (Stop, Error)> {
        let record = self.record.as_ref();
        let record = record.expect("`may_retry` allows no retry without a record");
        let request = match record.request.request(self.body_factory()) {
            Ok(request) => request,
            Err(error) => {
                let error = SteadyError::of_retry_body(error, &record.request.target().url);
                self.visit = None;
                self.history_or_new().is_unbuilt = true;
                let stop = Stop {
                    outcome: retry.outcome,
                    reason: StopReason::BodyNotReplayable,
                    hint: retry.hint,
                    is_attempt_reported: true,
                    waited: Duration::ZERO,
                };
                return Err((stop, Error::middleware(error)));
            }
        };
        record.request.restore(extensions);
        extensions.insert(self.attempt);
        self.sent_at = self.time.elapsed(clock::now());
        match self.visit.take() {
            // The wait took longer than planned. The attempt ends with an error before it is sent.
            _ if self.began_too_late() => drop(retry.permit),
            // A throttle may refuse it, and then the permit is refunded.
            Some(_) => self.history_or_new().permit = Some(retry.permit),
            None => retry.permit.spend(),
        }
        Ok(request)
    }

    /// Ends the call: completes its report, notifies observers, and attaches the report to the result.
    ///
    /// The result changes only if a throttle refused the last attempt: then it is that of the attempt before. Returns
    /// the delivery of a dead letter, if there is one.
    pub(crate) fn finish(
        &mut self,
        stop: Stop,
        now: Moment,
        result: &mut Result<Response>,
        extensions: &mut Extensions,
    ) -> Option<LetterDelivery> {
        let mut report = RetryReport {
            earlier: Vec::new(),
            last: self.attempt_report(stop.outcome, stop.hint),
            refused_wait: stop.waited,
            took: now.elapsed,
            stop_reason: stop.reason,
        };
        report.earlier = self.merge_inner(&mut report.last, result, extensions);
        let mut letter = None;
        let is_plain = self.history().is_none() && !self.is_tracked();
        if stop.reason == StopReason::Succeeded && is_plain {
            // There are no events and no history.
            self.deposit(now.at);
        } else {
            letter = self.conclude(stop, now.at, &mut report, result);
        }
        if let Err(error) = result {
            self.complete_error(error, &report);
        }
        if let Some(slot) = self.slot() {
            slot.put(report.clone());
        }
        self.leave_for_outer(extensions);
        match result {
            Ok(response) => drop(response.extensions_mut().insert(report)),
            Err(_) => drop(extensions.insert(FailedReport(report))),
        }
        letter
    }

    /// Completes the report with the history, notifies observers, and writes the dead letter.
    fn conclude(
        &mut self,
        stop: Stop,
        now: Instant,
        report: &mut RetryReport,
        result: &mut Result<Response>,
    ) -> Option<LetterDelivery> {
        let balance = match stop.earns_deposit() {
            true => self.deposit(now),
            false => self.balance(now),
        };
        self.notify_last_attempt(stop, result, balance);
        let pause = self.letter_pause(stop, result);
        if let Some(history) = self.history_mut() {
            history.complete(report, result);
        }
        self.notify_stop(report, balance);
        self.write_letter(report, pause?)
    }

    fn attempt_report(&self, outcome: ClassifiedOutcome, hint: Option<Duration>) -> AttemptReport {
        AttemptReport {
            outcome: outcome.outcome,
            sent_at: self.sent_at,
            waited: self.waited,
            took: self.attempt_time(),
            wait_reason: self.wait_reason,
            hint,
            effect: outcome.effect,
        }
    }

    /// Adds what happened inside an attempt that has ended: the wait in a throttle, and the attempts of another
    /// retry. Returns the attempts before that retry's last one.
    #[inline]
    fn merge_inner(
        &self,
        attempt: &mut AttemptReport,
        result: &Result<Response>,
        extensions: &mut Extensions,
    ) -> Vec<AttemptReport> {
        if let Some(visit) = self.visit {
            attempt.add_wait(visit.waited);
        }
        match result {
            Ok(response) => match RetryReport::of(response) {
                Some(inner) => attempt.replace_with_inner(inner.clone()),
                None => Vec::new(),
            },
            Err(_) => match extensions.remove() {
                Some(FailedReport(inner)) => attempt.replace_with_inner(inner),
                None => Vec::new(),
            },
        }
    }

    /// Leaves what another retry around this one goes on with: the throttle's visit, and a mark that this one is here.
    fn leave_for_outer(&mut self, extensions: &mut Extensions) {
        let queued = match self.history() {
            Some(history) => self.queued().saturating_sub(history.queued_outside),
            None => self.queued_in_attempt(),
        };
        let has_visit = self.visit.is_some() || !queued.is_zero();
        let is_nested = self.outer.is_some()
            || (self.scope.as_deref()).is_some_and(ScopeNode::is_in_another_call);
        if !has_visit && !is_nested {
            return;
        }
        let mut handoff = self.outer.take().unwrap_or_default();
        handoff.pass_on(has_visit.then(|| ThrottleVisit {
            waited: Duration::ZERO,
            reported: queued,
            pacing: self.pacing(),
        }));
        extensions.insert(handoff);
    }

    /// Counts the success of the call, and returns the balance of its budget.
    fn deposit(&self, now: Instant) -> f64 {
        let Some(record) = &self.host_record else {
            return f64::INFINITY;
        };
        if self.makes_deposit {
            return record.on_success(now);
        }
        // A retry around this one, in the same chain, has handed it its attempt.
        let is_same_response =
            self.outer.is_some() && (self.scope.as_deref()).is_some_and(ScopeNode::shares_host);
        record.on_nested_success(now, is_same_response);
        self.balance(now)
    }
}
