//! One call: what it may do, what it has done, and how long it may take.

use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderValue, Method};
use reqwest::{Request, Response};
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::answer;
use super::builder::Settings;
use crate::admit::{Allowance, Budget, Covered, Opener, Withdrawal};
use crate::clock;
use crate::decide::{BodyFactory, Safety, Spare, Target, Verdict, is_idempotent};
use crate::entropy::up_to;
use crate::observe::{Attempt, AttemptReport, ReportSlot, RetryReport, StopReason};
use crate::request::RequestSettings;
use crate::schedule::{self, AttemptLimit, CallTime, server_hint};

/// The state of one call. It lives as long as `handle` runs, and nothing else holds it.
pub(crate) struct Call<'a> {
    settings: &'a Settings,
    time: CallTime<'a>,
    max_retries: u32,
    safety: Safety,
    has_key: bool,
    body: Option<BodyFactory>,
    buffer: Option<usize>,
    slot: Option<ReportSlot>,
    target: Option<Box<Target>>,
    budget: Budget,
    /// Whether this call credits its budget. One that is nested in a call with the same budget does
    /// not: one deposit for one call.
    feeds_budget: bool,
    /// What calls inside this one draw from, if it is outermost and makes a difference to them.
    allowance: Option<Allowance>,

    // The running attempt, or the one that has just ended.
    attempt: Attempt,
    waited: Duration,
    sent_at: Duration,
    spare: Option<Spare>,

    // The attempts before it.
    previous_backoff: Option<Duration>,
    /// One of them ended without a clear answer.
    unclear: bool,
    history: Vec<AttemptReport>,
}

/// A retry that has been decided on.
pub(crate) struct Retry {
    verdict: Verdict,
    spare: Spare,
    withdrawal: Withdrawal,
    backoff: Duration,
    wait: Duration,
    hint: Option<Duration>,
}

/// Why there is none, and the hint in the last answer, if one was looked for.
#[derive(Clone, Copy)]
pub(crate) struct End {
    verdict: Verdict,
    reason: StopReason,
    hint: Option<Duration>,
}

impl End {
    /// Whether the server has done its part: the answer is final, and not a failure of the server's.
    fn is_success(&self) -> bool {
        matches!(
            self.reason,
            StopReason::Succeeded | StopReason::NotRetryable
        ) && (self.verdict.status()).is_some_and(|status| !status.is_server_error())
    }
}

/// What follows an attempt. In a box, since most calls need no retry.
type Step = std::result::Result<Box<Retry>, End>;

impl<'a> Call<'a> {
    /// Whether the first attempt waits, too.
    pub(crate) fn is_spread(&self) -> bool {
        !self.settings.launch_spread.is_zero()
    }

    /// Settles what this call may do.
    pub(crate) fn open(
        settings: &'a Settings,
        request: &Request,
        extensions: &Extensions,
        has_key: bool,
    ) -> Self {
        let own = RequestSettings::of(extensions);
        let wants_target = settings.classifier.by_user.is_some() || settings.retry_without_key;
        let target = wants_target.then(|| {
            Box::new(Target {
                method: request.method().clone(),
                url: request.url().clone(),
            })
        });
        let max_retries = own
            .and_then(|own| own.max_retries)
            .unwrap_or(settings.max_retries);
        let safety = Safety {
            repeatable: has_key
                || is_idempotent(request.method())
                || own.is_some_and(|own| own.idempotent),
            without_key: settings.retry_without_key,
            unsent: settings.retry_unsent,
        };
        let could_retry = max_retries > 0 && safety.allows_any();
        let mut time = CallTime {
            limits: &settings.limits,
            started: clock::now(),
            deadline: own
                .and_then(|own| own.deadline)
                .or(settings.limits.deadline),
        };
        let budget = if could_retry {
            settings.budgets.of(request.url())
        } else {
            // It neither needs nor feeds one.
            Budget::unlimited()
        };
        // A call that cannot be retried and sets no deadline makes no difference to others.
        let (mut allowance, mut feeds_budget) = (None, true);
        if could_retry || time.deadline.is_some() {
            let opener = Opener {
                chain: std::ptr::from_ref(extensions) as usize,
                budget: budget.address(),
            };
            match Allowance::open(max_retries, time.end(), opener) {
                Ok(own) => allowance = Some(own),
                Err(around) => {
                    if around.opener.chain == opener.chain {
                        settings.warn_of_two_in_a_chain();
                    }
                    time.bound_by(around.deadline);
                    feeds_budget = around.opener.budget != opener.budget;
                }
            }
        }
        if feeds_budget {
            budget.on_request(time.started);
        }
        Self {
            settings,
            time,
            max_retries,
            safety,
            has_key,
            body: own.and_then(|own| own.body.clone()),
            // The answer to a HEAD has no body, whatever its length says.
            buffer: own
                .and_then(|own| own.buffer)
                .filter(|_| request.method() != Method::HEAD),
            slot: own.and_then(|own| own.report.clone()),
            target,
            budget,
            feeds_budget,
            allowance,
            attempt: Attempt::FIRST,
            waited: Duration::ZERO,
            sent_at: Duration::ZERO,
            spare: None,
            previous_backoff: None,
            unclear: false,
            history: Vec::new(),
        }
    }

    /// Spreads the first attempts of calls that begin on the same beat.
    pub(crate) async fn launch(&mut self) {
        let spread = match self.time.deadline {
            Some(deadline) => self.settings.launch_spread.min(deadline / 2),
            None => self.settings.launch_spread,
        };
        self.waited = self.settings.entropy.with(|rng| up_to(spread, rng));
        tokio::time::sleep(self.waited).await;
        self.sent_at = self.time.elapsed(clock::now());
    }

    /// Gets ready for an attempt: numbers the request and keeps a copy, if a retry could follow and
    /// the body can be sent again.
    pub(crate) fn prepare(&mut self, request: &mut Request, extensions: &Extensions) {
        if let Some(name) = &self.settings.attempt_header {
            let number = HeaderValue::from(self.attempt.number());
            request.headers_mut().insert(name, number);
        }
        if self.attempt.retries() < self.max_retries && self.safety.allows_any() {
            self.spare = Spare::of(request, self.body.is_some(), extensions);
        }
    }

    /// Lets an attempt run in what this call allows to those inside it.
    pub(crate) fn cover<F>(&mut self, future: F) -> Covered<'_, F> {
        Covered {
            allowance: &mut self.allowance,
            future,
        }
    }

    /// How long the attempt may take, if that is limited.
    pub(crate) fn attempt_limit(&self) -> Option<AttemptLimit> {
        self.time.attempt_limit(self.sent_at)
    }

    /// What the ending of an attempt means.
    pub(crate) fn judge(&self, result: &Result<Response>) -> Verdict {
        self.settings.classifier.judge(
            result,
            self.target.as_deref(),
            self.attempt,
            self.has_key && self.unclear,
        )
    }

    /// Whether the body belongs to the attempt. It does if the answer is final by itself; one that
    /// is retried or given up is not worth waiting for.
    pub(crate) fn wants_body(&self, step: &Step) -> bool {
        let is_final = |end: &End| {
            matches!(end.reason, StopReason::Succeeded | StopReason::NotRetryable)
                && end.verdict.status().is_some()
        };
        self.buffer.is_some() && step.as_ref().is_err_and(is_final)
    }

    /// Reads the body of the answer. If that fails, the attempt has failed.
    pub(crate) async fn read_body(
        &mut self,
        step: Step,
        result: Result<Response>,
    ) -> (Step, Result<Response>) {
        let limit = self.buffer.unwrap_or_default();
        let read = async { answer::buffer(result?, limit).await };
        let result = match self.attempt_limit() {
            None => read.await,
            Some(limit) => limit.enforce(read).await,
        };
        if result.is_ok() {
            return (step, result);
        }
        let verdict = Verdict {
            // The answer had begun: whatever its end says, the request was processed.
            unsent: false,
            ..self.judge(&result)
        };
        (self.next_step(verdict, &result), result)
    }

    /// Whether, how and when to go on.
    pub(crate) fn next_step(&mut self, verdict: Verdict, result: &Result<Response>) -> Step {
        let headers = result.as_ref().ok().map(Response::headers);
        let end = |reason, hint| End {
            verdict,
            reason,
            hint,
        };
        let spare = self
            .decide(verdict, headers)
            .map_err(|reason| end(reason, None))?;
        let hint = verdict
            .status()
            .zip(headers)
            .and_then(|(status, headers)| server_hint(status, headers, clock::wall()));
        let now = clock::now();
        let (backoff, wait) = self
            .schedule(hint, now)
            .map_err(|reason| end(reason, hint))?;
        // Last, so that a refusal leaks nothing.
        let withdrawal = self.admit(now).map_err(|reason| end(reason, hint))?;
        Ok(Box::new(Retry {
            verdict,
            spare,
            withdrawal,
            backoff,
            wait,
            hint,
        }))
    }

    /// May this be sent again at all? Then here is what to send.
    fn decide(
        &mut self,
        verdict: Verdict,
        headers: Option<&HeaderMap>,
    ) -> std::result::Result<Spare, StopReason> {
        self.safety.allows(verdict, headers)?;
        if self.max_retries == 0 {
            return Err(StopReason::Disabled);
        }
        if self.attempt.retries() >= self.max_retries {
            return Err(StopReason::RetriesExhausted);
        }
        self.spare.take().ok_or(StopReason::BodyNotReplayable)
    }

    /// When? The backoff that was drawn, and the whole wait.
    fn schedule(
        &self,
        hint: Option<Duration>,
        now: Instant,
    ) -> std::result::Result<(Duration, Duration), StopReason> {
        if hint.is_some_and(|hint| hint > self.settings.max_server_delay) {
            return Err(StopReason::ServerDelayTooLong);
        }
        let (backoff, wait) = self.settings.entropy.with(|rng| {
            let retries = self.attempt.retries();
            let backoff = self
                .settings
                .backoff
                .draw(retries, self.previous_backoff, rng);
            (backoff, schedule::wait(hint, backoff, rng))
        });
        self.time.allow_wait(now, wait)?;
        Ok((backoff, wait))
    }

    /// Is there room for it now?
    fn admit(&mut self, now: Instant) -> std::result::Result<Withdrawal, StopReason> {
        let withdrawal = self.budget.withdraw_at(now);
        let withdrawal = withdrawal.ok_or(StopReason::BudgetEmpty)?;
        let drawn = match &mut self.allowance {
            Some(own) => own.draw(),
            None => Allowance::draw_from_current(),
        };
        if drawn {
            Ok(withdrawal)
        } else {
            Err(StopReason::AllowanceSpent)
        }
    }

    /// Clears the old answer away, waits, and gives out what to send next.
    pub(crate) async fn wait(
        &mut self,
        retry: Box<Retry>,
        result: Result<Response>,
        extensions: &mut Extensions,
    ) -> Request {
        let wake = clock::after(clock::now(), retry.wait);
        let ended = self.ended_attempt(retry.verdict, retry.hint);
        self.history.push(ended);
        self.unclear |= retry.verdict.is_unclear();
        self.previous_backoff = Some(retry.backoff);
        self.waited = retry.wait;
        self.attempt = self.attempt.next();

        if let Ok(response) = result {
            answer::drain(response, self.time.drain_end(wake)).await;
        }
        tokio::time::sleep_until(wake).await;
        self.sent_at = self.time.elapsed(clock::now());

        // From here on the retry is sent; until now, it is paid back if the call is dropped.
        retry.withdrawal.spend();
        let (request, before) = retry.spare.unpack(self.body.as_ref());
        *extensions = before;
        extensions.insert(self.attempt);
        request
    }

    /// Puts the report beside the last answer, which is not changed otherwise.
    pub(crate) fn report(&mut self, end: End, result: &mut Result<Response>) {
        if end.is_success() && self.feeds_budget {
            self.budget.on_success(self.time.started);
        }
        let report = RetryReport {
            last: self.ended_attempt(end.verdict, end.hint),
            earlier: std::mem::take(&mut self.history),
            stop: end.reason,
        };
        if let Some(slot) = &self.slot {
            slot.put(report.clone());
        }
        if let Ok(response) = result {
            response.extensions_mut().insert(report);
        }
    }

    fn ended_attempt(&self, verdict: Verdict, hint: Option<Duration>) -> AttemptReport {
        AttemptReport {
            outcome: verdict.outcome,
            sent_at: self.sent_at,
            waited: self.waited,
            hint,
        }
    }
}
