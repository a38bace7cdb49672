//! What follows an attempt, in three stages: may it be sent again, when, and is there room for it?
//!
//! Each stage is one function that returns why the call stops. Only the last one may wait, for a fleet's
//! store.

use std::time::Duration;

use http::HeaderMap;
use reqwest::Response;
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::super::permit::RetryPermit;
use super::Call;
use crate::admit::{BudgetHold, ScopeNode};
use crate::clock;
use crate::decide::{self, CallFacts, ClassifiedOutcome};
use crate::outcome::StopReason;
use crate::response;
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
    fn outcome(&self) -> ClassifiedOutcome {
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
    pub(super) plan: RetryPlan,
    pub(super) hint: Option<Duration>,
    /// The wait begins here.
    pub(super) decided: Instant,
}

/// When a retry is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RetryPlan {
    pub(super) backoff: Duration,
    pub(super) wait: Duration,
}

/// Why there is no other attempt, and the hint in the last response, if it was read.
#[derive(Clone, Copy)]
pub(crate) struct Stop {
    pub(super) outcome: ClassifiedOutcome,
    pub(super) reason: StopReason,
    pub(super) hint: Option<Duration>,
}

impl Stop {
    pub(crate) fn on_success(outcome: ClassifiedOutcome) -> Self {
        Self {
            outcome,
            reason: StopReason::Succeeded,
            hint: None,
        }
    }

    fn is_final(&self) -> bool {
        matches!(
            self.reason,
            StopReason::Succeeded | StopReason::NotRetryable
        ) && self.outcome.status().is_some()
    }

    /// Returns whether the call feeds the budget: its response is final and no server error.
    pub(super) fn earns_deposit(&self) -> bool {
        let is_server_error = |status: http::StatusCode| status.is_server_error();
        self.is_final() && !self.outcome.status().is_some_and(is_server_error)
    }
}

type StageResult<T> = std::result::Result<T, StopReason>;

impl Call<'_> {
    /// Decides what follows an attempt.
    pub(crate) async fn decide(
        &mut self,
        outcome: ClassifiedOutcome,
        result: &Result<Response>,
    ) -> Decision {
        let mut hint = None;
        match self.stages(outcome, result, &mut hint).await {
            Ok(retry) if self.settings.dry_run => {
                Decision::Stop(self.stop_for_dry_run(retry, result))
            }
            Ok(retry) => Decision::Retry(retry),
            Err(reason) => Decision::Stop(Stop {
                outcome,
                reason,
                hint,
            }),
        }
    }

    /// Reads the body of a final response into memory. If that fails, the attempt has failed, so this decides anew.
    pub(crate) async fn read_body(
        &mut self,
        decision: Decision,
        result: Result<Response>,
    ) -> (Decision, Result<Response>) {
        let limit = self.buffer().unwrap_or_default();
        let read = async { response::buffer(result?, limit).await };
        let queued = self.visit.map_or(Duration::ZERO, |visit| visit.waited);
        let start = clock::after(self.attempt_start(), queued);
        let result = match self.time.attempt_limit(start) {
            None => read.await,
            Some(limit) => limit.enforce(read).await,
        };
        if result.is_ok() {
            return (decision, result);
        }
        self.ended = self.now();
        let outcome = ClassifiedOutcome {
            // The response had begun, so the request was processed.
            unsent: false,
            effect: decision.outcome().effect,
            ..self.classify(&result)
        };
        (self.decide(outcome, &result).await, result)
    }

    /// Goes through the three stages. Leaves the hint in `hint` as soon as it is read.
    async fn stages(
        &mut self,
        outcome: ClassifiedOutcome,
        result: &Result<Response>,
        hint: &mut Option<Duration>,
    ) -> StageResult<Retry> {
        let headers = result.as_ref().ok().map(Response::headers);
        self.may_retry(outcome, headers)?;
        if let (Some(status), Some(headers)) = (outcome.status(), headers) {
            *hint = server_hint(status, headers, clock::wall());
        }
        let plan = self.schedule(*hint, clock::now())?;
        // The last stage, so that a refusal by another leaks nothing.
        let admitted = self.admit(outcome, clock::now()).await;
        let decided = clock::now();
        // A fleet's store may have used up the time: that counts before what it says.
        self.time.allow_wait(decided, plan.wait)?;
        let permit = admitted?;
        Ok(Retry {
            outcome,
            permit,
            plan,
            hint: *hint,
            decided,
        })
    }

    /// **Decide**: may the request be sent again at all?
    fn may_retry(
        &self,
        outcome: ClassifiedOutcome,
        headers: Option<&HeaderMap>,
    ) -> StageResult<()> {
        let call = CallFacts {
            rules: self.rules,
            retries: self.attempt.retries(),
            max_retries: self.max_retries,
            replayable: (self.record.as_ref()).is_some_and(|it| it.request.is_replayable()),
        };
        decide::decide(outcome, headers, call)
    }

    /// **Schedule**: when is it sent?
    fn schedule(&self, hint: Option<Duration>, now: Instant) -> StageResult<RetryPlan> {
        if hint.is_some_and(|hint| hint > self.settings.limits.max_server_delay) {
            return Err(StopReason::ServerDelayTooLong);
        }
        let mut plan = self.state.entropy.with(|rng| {
            let retries = self.attempt.retries();
            let previous = self.history().and_then(|history| history.backoff);
            let backoff = self.settings.backoff.draw(retries, previous, rng);
            let wait = schedule::wait(hint, backoff, rng);
            RetryPlan { backoff, wait }
        });
        if self.is_paced() {
            // After that, it waits for its turn in the throttle.
            plan.wait = hint.unwrap_or_default();
        }
        self.time.allow_wait(now, plan.wait)?;
        Ok(plan)
    }

    /// **Admit**: is there room for it now? The permit is given back if the retry is not sent.
    async fn admit(
        &mut self,
        outcome: ClassifiedOutcome,
        now: Instant,
    ) -> StageResult<RetryPermit> {
        let budget = if self.is_paced() || self.take_free(outcome, now) {
            BudgetHold::free()
        } else if self.budget.is_shared() && !self.settings.dry_run {
            // Boxed, because few budgets are shared.
            let paid = Box::pin(self.budget.withdraw_shared(self.time.end())).await;
            paid.ok_or(StopReason::BudgetEmpty)?
        } else {
            let paid = self.budget.withdraw_at(now);
            paid.ok_or(StopReason::BudgetEmpty)?
        };
        // A call that can retry always has a scope: see `Call::new`.
        let scope = self.scope.as_ref().and_then(ScopeNode::take_retry);
        let scope = scope.ok_or(StopReason::AllowanceSpent)?;
        Ok(RetryPermit { budget, scope })
    }

    /// Returns whether the server asked for a pause that a throttle keeps. Then a retry costs nothing.
    fn is_paced(&self) -> bool {
        self.visit.is_some_and(|visit| visit.paced)
    }

    /// Takes a retry that costs no budget, if the server provably did not process the attempt.
    ///
    /// The server refused the stream or closed an idle connection, so the retry adds no work. This holds for the
    /// first two such attempts of a call, and only while the host is healthy: a server that refuses every stream
    /// may be overloaded.
    fn take_free(&self, outcome: ClassifiedOutcome, now: Instant) -> bool {
        outcome.is_unprocessed()
            && self.history().map_or(0, |history| history.unprocessed) < MAX_FREE_RETRIES
            && self.budget.take_free(now)
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
        }
    }
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
