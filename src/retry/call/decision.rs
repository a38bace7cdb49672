//! What follows an attempt, in three stages: may it be sent again, when, and is there room for it?
//!
//! Each stage is one function that returns why the call stops. Only the last one may wait, for a fleet's
//! store. A call that waits in line for the budget does so later, in `ending`, after its response is read.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use reqwest::Response;
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::super::permit::RetryPermit;
use super::{Call, ReadBodies};
use crate::admit::{BudgetHold, HostRecord, ScopeNode};
use crate::clock;
use crate::decide::{self, BodyVerdict, CallFacts, ClassifiedOutcome, StatusClass};
use crate::handoff::Pacing;
use crate::outcome::{StopReason, WaitReason};
use crate::schedule::{self, server_hint};

/// How many attempts of one call that were not processed are retried for free.
const MAX_FREE_RETRIES: u32 = 2;

/// What follows an attempt.
pub(crate) enum Decision {
    Retry(Retry),
    Stop(Stop),
}

impl Decision {
    /// Returns whether the response is final by itself. Other bodies are not worth waiting for.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Stop(stop) if stop.is_final())
    }

    /// Returns the outcome of the attempt that was decided on.
    pub(super) fn outcome(&self) -> ClassifiedOutcome {
        match self {
            Self::Retry(retry) => retry.outcome,
            Self::Stop(stop) => stop.outcome,
        }
    }
}

/// A retry that all three stages allow.
pub(crate) struct Retry {
    pub(super) outcome: ClassifiedOutcome,
    pub(super) permit: RetryPermit,
    /// The call waits in line after its wait, and is paid for by its release. The budget is empty, or others wait
    /// already: then the permit is for the first of them.
    pub(super) in_line: bool,
    pub(super) plan: RetryPlan,
    pub(super) hint: Option<Duration>,
    /// The wait begins here.
    pub(super) decided: Instant,
}

impl Retry {
    /// Whether it was allowed without a payment, because the budget is empty.
    fn is_unpaid(&self) -> bool {
        self.in_line && !self.permit.budget.is_paid()
    }
}

/// When a retry is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RetryPlan {
    pub(super) backoff: Duration,
    pub(super) wait: Duration,
    pub(super) reason: WaitReason,
}

/// Why there is no other attempt, and the hint in the last response, if it was read.
#[derive(Clone, Copy)]
pub(crate) struct Stop {
    pub(super) outcome: ClassifiedOutcome,
    pub(super) reason: StopReason,
    pub(super) hint: Option<Duration>,
    /// Observers know how the last attempt ended, because a retry was scheduled after it.
    pub(super) is_attempt_reported: bool,
    /// How long the call waited for a retry that was not sent.
    pub(super) waited: Duration,
}

impl Stop {
    fn is_final(&self) -> bool {
        matches!(
            self.reason,
            StopReason::Succeeded | StopReason::NotRetryable
        ) && self.outcome.status().is_some()
    }

    /// Returns whether the call feeds the budget and releases a call in line: its response is final, and the server has
    /// room for more. A 429 says the opposite, also if a rule makes it final.
    pub(super) fn earns_deposit(&self) -> bool {
        let has_no_room = |status: StatusCode| {
            status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
        };
        self.is_final() && !self.outcome.status().is_some_and(has_no_room)
    }
}

type StageResult<T> = std::result::Result<T, StopReason>;

impl Call<'_> {
    /// Returns the end of the call, if the response is final by itself and its body is not read.
    ///
    /// Such a call does not pay for the box of what follows a failure: 800 instructions of a GET that gets a 404.
    #[inline]
    pub(crate) fn final_stop(
        &self,
        outcome: ClassifiedOutcome,
        result: &Result<Response>,
    ) -> Option<Stop> {
        let may_be_read = match self.reads {
            ReadBodies::None => false,
            ReadBodies::OfErrors => outcome.status().is_some_and(|it| it.as_u16() >= 400),
            ReadBodies::All => true,
        };
        if may_be_read && (self.buffers() || self.inspects(outcome, result)) {
            return None;
        }
        let reason = match outcome.is_success() {
            true => StopReason::Succeeded,
            false => self.rejection(outcome, result)?,
        };
        Some(Stop {
            outcome,
            reason,
            hint: None,
            is_attempt_reported: false,
            waited: Duration::ZERO,
        })
    }

    /// Returns why the call stops, if the server responds that a retry would not help.
    fn rejection(
        &self,
        outcome: ClassifiedOutcome,
        result: &Result<Response>,
    ) -> Option<StopReason> {
        let headers = result.as_ref().ok()?.headers();
        let is_rejected = outcome.class == StatusClass::Never
            && self.may_retry(outcome, None, Some(headers)) == Err(StopReason::NotRetryable);
        is_rejected.then_some(StopReason::NotRetryable)
    }

    /// Decides what follows an attempt.
    pub(crate) async fn decide(
        &mut self,
        outcome: ClassifiedOutcome,
        verdict: Option<BodyVerdict>,
        result: &Result<Response>,
    ) -> Decision {
        let mut hint = verdict.and_then(|verdict| verdict.after);
        self.count_streak(outcome);
        let decided = self.stages(outcome, verdict, result, &mut hint).await;
        if decided.as_ref().map_or(true, Retry::is_unpaid) {
            self.count_unpaid_failure(outcome);
        }
        match decided {
            Ok(retry) if self.config.dry_run => {
                Decision::Stop(self.stop_for_dry_run(retry, result))
            }
            Ok(retry) => Decision::Retry(retry),
            Err(reason) => Decision::Stop(Stop {
                outcome,
                reason,
                hint,
                is_attempt_reported: false,
                waited: Duration::ZERO,
            }),
        }
    }

    /// Goes through the three stages. Leaves the longer of `hint` and the headers' hint in it as soon as it is read.
    async fn stages(
        &mut self,
        outcome: ClassifiedOutcome,
        verdict: Option<BodyVerdict>,
        result: &Result<Response>,
        hint: &mut Option<Duration>,
    ) -> StageResult<Retry> {
        let headers = result.as_ref().ok().map(Response::headers);
        self.may_retry(outcome, verdict, headers)?;
        if let (Some(status), Some(headers)) = (outcome.status(), headers) {
            *hint = server_hint(status, headers, clock::wall()).max(*hint);
        }
        let now = clock::now();
        let plan = self.schedule(*hint, now)?;
        // The last stage, so that a refusal by another leaks nothing.
        let admitted = self.admit(outcome, now).await;
        let decided = clock::now();
        // A fleet's store may have used up the time: that counts before what it says.
        self.time.allow_wait(decided, plan.wait)?;
        let (in_line, permit) = match admitted {
            Err(StopReason::BudgetEmpty) if self.may_wait_in_line(outcome, *hint) => {
                (true, self.permit(BudgetHold::free())?)
            }
            // First in, first out, though there is money now.
            Ok(permit) if self.others_wait_in_line() && self.may_wait_in_line(outcome, *hint) => {
                (true, permit)
            }
            admitted => (false, admitted?),
        };
        Ok(Retry {
            outcome,
            permit,
            in_line,
            plan,
            hint: *hint,
            decided,
        })
    }

    /// **Decide**: may the request be sent again at all?
    fn may_retry(
        &self,
        outcome: ClassifiedOutcome,
        verdict: Option<BodyVerdict>,
        headers: Option<&HeaderMap>,
    ) -> StageResult<()> {
        let call = CallFacts {
            rules: self.rules,
            retries: self.attempt.retries(),
            max_retries: self.max_retries,
            replayable: (self.record.as_ref()).is_some_and(|it| it.request.is_replayable()),
            verdict,
        };
        decide::decide(outcome, headers, call)
    }

    /// **Schedule**: when is it sent?
    fn schedule(&self, hint: Option<Duration>, now: Instant) -> StageResult<RetryPlan> {
        if hint.is_some_and(|hint| hint > self.config.limits.max_server_delay) {
            return Err(StopReason::ServerDelayTooLong);
        }
        let retries = self.attempt.retries();
        let previous = self.history().and_then(|history| history.backoff);
        let backoff = &self.config.backoff;
        let step = backoff.step(retries, self.host_failures());
        let latest = match hint {
            None => self.time.longest_wait(now),
            // The hint decides whether there is time.
            Some(_) => None,
        };
        let plan = self.state.entropy.with(|rng| {
            let backoff = match self.pacing() {
                // The throttle spaces retries, so only the hint and its spread are left.
                Pacing::Paused => Duration::ZERO,
                _ => backoff.draw_within(latest, step, previous, rng),
            };
            let wait = schedule::wait(hint, backoff, rng);
            let reason = match hint {
                Some(hint) if hint >= backoff => WaitReason::ServerHint,
                _ if step > retries => WaitReason::HostFailures,
                _ => WaitReason::Backoff,
            };
            RetryPlan {
                backoff,
                wait,
                reason,
            }
        });
        self.time.allow_wait(now, plan.wait)?;
        Ok(plan)
    }

    /// **Admit**: is there room for it now? The permit is given back if the retry is not sent.
    async fn admit(
        &mut self,
        outcome: ClassifiedOutcome,
        now: Instant,
    ) -> StageResult<RetryPermit> {
        let budget = match &self.host_record {
            Some(record) if self.pacing() != Pacing::Paused && !self.take_free(outcome, now) => {
                &record.budget
            }
            _ => return self.permit(BudgetHold::free()),
        };
        let paid = if budget.is_shared() && !self.config.dry_run {
            // Boxed, because few budgets are shared.
            Box::pin(budget.withdraw_shared(self.time.end())).await
        } else {
            budget.withdraw_at(now)
        };
        self.permit(paid.ok_or(StopReason::BudgetEmpty)?)
    }

    /// Adds the scope's part to what the budget has paid.
    fn permit(&self, budget: BudgetHold) -> StageResult<RetryPermit> {
        // A call that can retry always has a scope: see `Call::new`.
        let scope = self.scope.as_ref().and_then(ScopeNode::take_retry);
        let scope = scope.ok_or(StopReason::AllowanceSpent)?;
        Ok(RetryPermit { budget, scope })
    }

    /// Returns what a throttle does about the retry of the attempt.
    pub(super) fn pacing(&self) -> Pacing {
        self.visit.map(|visit| visit.pacing).unwrap_or_default()
    }

    /// Takes a retry that costs no budget, if the server provably did not process the attempt.
    ///
    /// The server refused the stream or closed an idle connection, so the retry adds no work. This holds for the
    /// first two such attempts of a call, and only while the host is healthy: a server that refuses every stream
    /// may be overloaded.
    fn take_free(&self, outcome: ClassifiedOutcome, now: Instant) -> bool {
        outcome.is_unprocessed()
            && self.history().map_or(0, |history| history.unprocessed) < MAX_FREE_RETRIES
            && (self.host_record.as_ref()).is_none_or(|record| record.budget.take_free(now))
    }

    /// Returns the record of the host, if the attempt failed there.
    ///
    /// `None` with a throttle in the chain: it keeps calls away from a host that fails, and more would come on top.
    fn failed_host(&self, outcome: ClassifiedOutcome) -> Option<&HostRecord> {
        let is_failure = outcome.class != StatusClass::Never
            && !outcome.is_throttled()
            && !self.began_too_late();
        let record = self.host_record.as_deref();
        record.filter(|_| is_failure && self.visit.is_none() && !self.was_cut_off_in_throttle())
    }

    /// Returns whether the deadline may have ended the attempt inside a throttle, which could leave no visit then.
    ///
    /// A handoff would tell. But one in each attempt with a deadline would cost calls that succeed 1,160 instructions.
    fn was_cut_off_in_throttle(&self) -> bool {
        let is_over = |deadline| self.ended.elapsed >= deadline;
        self.time.deadline.is_some_and(is_over) && self.state.inner.has_throttle()
    }

    /// Counts a failed attempt, for the backoff of all calls to the host. A 429 is no failure: the host works.
    fn count_streak(&self, outcome: ClassifiedOutcome) {
        let is_refusal = outcome.status() == Some(StatusCode::TOO_MANY_REQUESTS);
        if let Some(record) = self.failed_host(outcome).filter(|_| !is_refusal) {
            record.count_streak(self.attempt_start(), self.ended.at);
        }
    }

    /// Takes half a retry from the host's reserve, because no paid retry follows the failed attempt.
    ///
    /// Inside a call with the same budget, the outer call decides about the same failure and counts it.
    fn count_unpaid_failure(&self, outcome: ClassifiedOutcome) {
        if let Some(record) = self.failed_host(outcome).filter(|_| self.makes_deposit) {
            record.budget.on_failure();
        }
    }

    /// Returns how many attempts in a row have failed at the host, if that makes waits longer.
    fn host_failures(&self) -> u32 {
        match (&self.host_record, self.visit) {
            (Some(record), None) => record.streak.length(),
            _ => 0,
        }
    }

    /// Returns whether the call may wait for a success of another one, if the budget is empty or others wait already.
    ///
    /// A 429 says that the server works and that the request came too early. So does a 503 that says when to come
    /// back. Behind a throttle, it is a 503 of a server that seems to limit its rate. Other failures end the call.
    fn may_wait_in_line(&self, outcome: ClassifiedOutcome, hint: Option<Duration>) -> bool {
        let asks_to_wait = match outcome.status() {
            Some(StatusCode::TOO_MANY_REQUESTS) => true,
            Some(StatusCode::SERVICE_UNAVAILABLE) => hint.is_some(),
            _ => false,
        };
        match self.pacing() {
            Pacing::Limited => outcome.status() == Some(StatusCode::SERVICE_UNAVAILABLE),
            _ => asks_to_wait && self.visit.is_none(),
        }
    }

    fn others_wait_in_line(&self) -> bool {
        (self.host_record.as_ref()).is_some_and(|record| record.line.len() > 0)
    }

    /// Ends the call where a retry would follow.
    fn stop_for_dry_run(&mut self, retry: Retry, result: &Result<Response>) -> Stop {
        self.notify_retry(&retry, result);
        // The budget is used as if the retry were sent. The scope of other calls is not touched.
        retry.permit.budget.spend();
        Stop {
            outcome: retry.outcome,
            reason: StopReason::DryRun,
            hint: retry.hint,
            is_attempt_reported: true,
            waited: Duration::ZERO,
        }
    }
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
