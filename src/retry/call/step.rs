//! What follows an attempt: whether, how and when to go on. Nothing here waits.

use std::time::Duration;

use http::HeaderMap;
use reqwest::Response;
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::super::permit::RetryPermit;
use super::Call;
use crate::admit::{Allowance, BudgetHold};
use crate::clock;
use crate::decide::{self, CallFacts, ClassifiedOutcome};
use crate::handoff::ThrottleVisit;
use crate::outcome::StopReason;
use crate::request::RequestSnapshot;
use crate::schedule::{self, server_hint};

/// How many attempts of one call that were not processed are retried for free.
const MAX_FREE_RETRIES: u32 = 2;

/// A retry that has been decided on.
pub(crate) struct Retry {
    pub(super) classified: ClassifiedOutcome,
    pub(super) permit: RetryPermit,
    /// The throttle that the attempt came through.
    pub(super) visit: Option<ThrottleVisit>,
    pub(super) backoff: Duration,
    pub(super) wait: Duration,
    pub(super) hint: Option<Duration>,
    /// The wait begins here.
    pub(super) decided: Instant,
    /// So long after the call began.
    pub(super) elapsed: Duration,
}

/// Why there is none, and the hint in the last answer, if one was looked for.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(super) classified: ClassifiedOutcome,
    pub(super) reason: StopReason,
    pub(super) hint: Option<Duration>,
}

impl End {
    /// Whether the server has done its part: the answer is final, and not a failure of the server's.
    pub(super) fn is_success(&self) -> bool {
        matches!(
            self.reason,
            StopReason::Succeeded | StopReason::NotRetryable
        ) && (self.classified.status()).is_some_and(|status| !status.is_server_error())
    }
}

/// What follows an attempt.
pub(crate) type Step = std::result::Result<Retry, End>;

impl Call<'_> {
    /// Whether, how and when to go on.
    #[inline]
    pub(crate) fn next_step(
        &mut self,
        classified: ClassifiedOutcome,
        result: &Result<Response>,
    ) -> Step {
        if classified.is_success() {
            return Err(End {
                classified,
                reason: StopReason::Succeeded,
                hint: None,
            });
        }
        self.after_failure(classified, result)
    }

    fn after_failure(&mut self, classified: ClassifiedOutcome, result: &Result<Response>) -> Step {
        let headers = result.as_ref().ok().map(Response::headers);
        let end = |reason, hint| End {
            classified,
            reason,
            hint,
        };
        self.decide(classified, headers)
            .map_err(|reason| end(reason, None))?;
        let hint = classified
            .status()
            .zip(headers)
            .and_then(|(status, headers)| server_hint(status, headers, clock::wall()));
        let now = clock::now();
        let elapsed = self.time.elapsed(now);
        let visit = self.visit;
        // The throttle keeps the pause that the server asks for.
        let paced = visit.is_some_and(|visit| visit.paced);
        let scheduled = self.schedule(hint, elapsed, paced);
        // Last, so that a refusal leaks nothing.
        let is_unprocessed = !paced && self.is_free(classified, now);
        let is_free = paced || is_unprocessed;
        if is_unprocessed && scheduled.is_ok() {
            self.budget.count_free();
        }
        let admitted = scheduled.and_then(|times| Ok((times, self.admit(now, is_free)?)));
        let ((backoff, wait), permit) = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => return Err(end(reason, hint)),
        };
        Ok(Retry {
            classified,
            permit,
            visit,
            backoff,
            wait,
            hint,
            decided: now,
            elapsed,
        })
    }

    /// Whether a retry that may follow is paid for from what all workers of a fleet have.
    #[inline]
    pub(crate) fn pays_with_others(
        &self,
        classified: ClassifiedOutcome,
        result: &Result<Response>,
    ) -> bool {
        let headers = || result.as_ref().ok().map(Response::headers);
        !classified.is_success()
            && self.budget.is_shared()
            // What is not sent is not taken from others.
            && self.sends_again()
            && self.time.allow_wait(self.time.elapsed(clock::now()), Duration::ZERO).is_ok()
            // The pause that the server asked for is being kept, and costs nothing.
            && !self.visit.is_some_and(|visit| visit.paced)
            && !self.is_free(classified, clock::now())
            && self.decide(classified, headers()).is_ok()
    }

    /// Pays for it, which may take a round trip. If it is not sent, it is given back.
    pub(crate) async fn pay_with_others(&mut self) {
        let paid = self.budget.withdraw_shared(self.time.end()).await;
        self.aside.get_or_insert_default().paid = Some(paid);
    }

    /// May this be sent again at all?
    fn decide(
        &self,
        classified: ClassifiedOutcome,
        headers: Option<&HeaderMap>,
    ) -> std::result::Result<(), StopReason> {
        let call = CallFacts {
            rules: self.rules,
            retries: self.attempt.retries(),
            max_retries: self.max_retries,
            replayable: (self.spare.as_ref()).is_some_and(RequestSnapshot::is_replayable),
        };
        decide::decide(classified, headers, call)
    }

    /// When? The backoff that was drawn, and the whole wait.
    fn schedule(
        &self,
        hint: Option<Duration>,
        elapsed: Duration,
        paced: bool,
    ) -> std::result::Result<(Duration, Duration), StopReason> {
        if hint.is_some_and(|hint| hint > self.settings.max_server_delay) {
            return Err(StopReason::ServerDelayTooLong);
        }
        let (backoff, wait) = self.settings.entropy.with(|rng| {
            let retries = self.attempt.retries();
            let previous = self.earlier().and_then(|earlier| earlier.backoff);
            let backoff = self.settings.backoff.draw(retries, previous, rng);
            (backoff, schedule::wait(hint, backoff, rng))
        });
        if paced {
            // After that it waits for its turn in the throttle.
            let asked_for = hint.unwrap_or_default();
            self.time.allow_wait(elapsed, asked_for)?;
            return Ok((backoff, asked_for));
        }
        self.time.allow_wait(elapsed, wait)?;
        Ok((backoff, wait))
    }

    /// Whether a retry costs no budget because the server provably did not process the attempt: it refused the
    /// stream or closed an idle connection, so the retry adds no work. Holds for the first two such attempts of a
    /// call, and only while the host is healthy: a server that refuses every stream may be overloaded.
    fn is_free(&self, classified: ClassifiedOutcome, now: Instant) -> bool {
        classified.is_unprocessed()
            && self.earlier().map_or(0, |earlier| earlier.unprocessed) < MAX_FREE_RETRIES
            && self.budget.allows_free(now)
    }

    /// Is there room for it now? What is paid for it is given back if the retry is not sent.
    fn admit(
        &mut self,
        now: Instant,
        is_free: bool,
    ) -> std::result::Result<RetryPermit, StopReason> {
        let hold = if is_free {
            // The server asked for a pause that the throttle keeps, or did not process the attempt.
            BudgetHold::free()
        } else {
            let paid = (self.aside.as_mut()).and_then(|aside| aside.paid.take());
            let hold = paid.unwrap_or_else(|| self.budget.withdraw_at(now));
            hold.ok_or(StopReason::BudgetEmpty)?
        };
        let draw = self.allowance.as_mut().and_then(Allowance::draw);
        let draw = draw.ok_or(StopReason::AllowanceSpent)?;
        Ok(RetryPermit { hold, draw })
    }
}
