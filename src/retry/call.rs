//! One call: what it may do, what it has done, and how long it may take.

use std::time::Duration;

use http::{Extensions, HeaderValue, Method};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Next, Result};

use super::answer;
use super::builder::Settings;
use crate::clock;
use crate::decide::{
    BodyFactory, Ending, InvalidKey, Outcome, Safety, Spare, StatusClass, Target, check_header,
    is_idempotent,
};
use crate::entropy::up_to;
use crate::observe::{Attempt, AttemptReport, ReportSlot, RetryReport, StopReason};
use crate::request::RequestSettings;
use crate::schedule::{self, TimeLimits, server_hint};

/// The state of one call. It lives as long as `handle` runs, and nothing else holds it.
pub(crate) struct Call<'a> {
    settings: &'a Settings,
    limits: TimeLimits,
    max_retries: u32,
    safety: Safety,
    has_key: bool,
    body: Option<BodyFactory>,
    buffer: Option<usize>,
    report: Option<ReportSlot>,
    target: Option<Box<Target>>,

    attempt: Attempt,
    sent_at: Duration,
    waited: Duration,
    previous_backoff: Option<Duration>,
    /// An earlier attempt ended without a clear answer.
    unclear: bool,
    history: Vec<AttemptReport>,
}

/// A retry that has been decided on.
pub(crate) struct Retry {
    spare: Spare,
    wait: Duration,
    backoff: Duration,
    hint: Option<Duration>,
}

/// The end of a call, with the hint that its last answer gave, where one was looked for.
pub(crate) struct Stop {
    reason: StopReason,
    hint: Option<Duration>,
}

impl From<StopReason> for Stop {
    fn from(reason: StopReason) -> Self {
        Self { reason, hint: None }
    }
}

impl<'a> Call<'a> {
    /// Settles what this call may do. Puts the key into the request.
    pub(crate) fn open(
        settings: &'a Settings,
        request: &mut Request,
        extensions: &Extensions,
    ) -> std::result::Result<Self, InvalidKey> {
        let own = extensions.get::<RequestSettings>();
        let harmless = own.is_some_and(|own| own.idempotent) || is_idempotent(request.method());
        let has_key = settle_key(settings, own, request, harmless)?;
        let target = settings.classifier.by_user.as_ref().map(|_| {
            Box::new(Target {
                method: request.method().clone(),
                url: request.url().clone(),
            })
        });
        Ok(Self {
            settings,
            limits: TimeLimits {
                started: clock::now(),
                window: settings.retry_window,
                deadline: own.and_then(|own| own.deadline).or(settings.deadline),
                attempt: settings.attempt_timeout,
            },
            max_retries: own
                .and_then(|own| own.max_retries)
                .unwrap_or(settings.max_retries),
            safety: Safety {
                repeatable: harmless || has_key,
                without_key: settings.retry_without_key,
                unsent: settings.retry_unsent,
            },
            has_key,
            body: own.and_then(|own| own.body.clone()),
            // The answer to a HEAD has no body, whatever its length says.
            buffer: own
                .and_then(|own| own.buffer)
                .filter(|_| request.method() != Method::HEAD),
            report: own.and_then(|own| own.report.clone()),
            target,
            attempt: Attempt::FIRST,
            sent_at: Duration::ZERO,
            waited: Duration::ZERO,
            previous_backoff: None,
            unclear: false,
            history: Vec::new(),
        })
    }

    /// Spreads the first attempts of calls that begin on the same beat.
    pub(crate) async fn launch(&mut self) {
        let mut spread = self.settings.launch_spread;
        if spread.is_zero() {
            return;
        }
        if let Some(deadline) = self.limits.deadline {
            spread = spread.min(deadline / 2);
        }
        let wait = self.settings.entropy.with(|rng| up_to(spread, rng));
        tokio::time::sleep(wait).await;
        self.waited = wait;
        self.sent_at = self.limits.elapsed(clock::now());
    }

    /// A copy to retry with. `None`: the body cannot be sent again, or no retry could follow.
    pub(crate) fn spare(&self, request: &Request, extensions: &Extensions) -> Option<Spare> {
        if self.attempt.retries() < self.max_retries && self.safety.allows_any() {
            Spare::of(request, self.body.as_ref(), extensions)
        } else {
            None
        }
    }

    /// Sends the request, and sorts what comes back.
    pub(crate) async fn attempt(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: &Next<'_>,
    ) -> Outcome {
        if let Some(name) = &self.settings.attempt_header {
            let number = HeaderValue::from(self.attempt.number());
            request.headers_mut().insert(name, number);
        }
        let sending = self.send(request, extensions, next);
        let Some((end, timed_out)) = self.limits.attempt_end(self.sent_at) else {
            return sending.await;
        };
        // With no time left, nothing is sent.
        let outcome = if end > self.sent_at {
            let end = clock::after(self.limits.started, end);
            tokio::time::timeout_at(end, sending).await.ok()
        } else {
            None
        };
        outcome.unwrap_or_else(|| self.sort(Err(Error::middleware(timed_out))))
    }

    async fn send(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: &Next<'_>,
    ) -> Outcome {
        let outcome = self.sort(next.clone().run(request, extensions).await);
        match (self.buffer, outcome) {
            // Only what will be returned is worth waiting for.
            (
                Some(limit),
                Outcome {
                    ending: Ending::Answer(response),
                    class: StatusClass::Never,
                },
            ) => match answer::buffer(response, limit).await {
                Ok(response) => Outcome {
                    ending: Ending::Answer(response),
                    class: StatusClass::Never,
                },
                Err(error) => self.sort(Err(error.into())),
            },
            (_, outcome) => outcome,
        }
    }

    fn sort(&self, result: Result<Response>) -> Outcome {
        let ending = Ending::from(result);
        let class = self.settings.classifier.class(
            &ending,
            self.target.as_deref(),
            self.attempt,
            self.has_key && self.unclear,
        );
        Outcome { ending, class }
    }

    /// Whether, how and when to go on. The tables of *decide* first, then *schedule*.
    pub(crate) fn next_step(
        &self,
        spare: Option<Spare>,
        outcome: &Outcome,
    ) -> std::result::Result<Retry, Stop> {
        self.safety.allows(outcome)?;
        if self.max_retries == 0 {
            return Err(StopReason::Disabled.into());
        }
        if self.attempt.retries() >= self.max_retries {
            return Err(StopReason::RetriesExhausted.into());
        }
        let spare = spare.ok_or(StopReason::BodyNotReplayable)?;

        let hint = outcome
            .response()
            .and_then(|answer| server_hint(answer.status(), answer.headers(), clock::wall()));
        let stop = |reason| Stop { reason, hint };
        if hint.is_some_and(|hint| hint > self.settings.max_server_delay) {
            return Err(stop(StopReason::ServerDelayTooLong));
        }
        let (backoff, wait) = self.settings.entropy.with(|rng| {
            let retries = self.attempt.retries();
            let backoff = self
                .settings
                .backoff
                .draw(retries, self.previous_backoff, rng);
            (backoff, schedule::wait(hint, backoff, rng))
        });
        self.limits.allow_wait(clock::now(), wait).map_err(stop)?;
        Ok(Retry {
            spare,
            wait,
            backoff,
            hint,
        })
    }

    /// Clears the old answer away, waits, and gets everything ready for the next attempt.
    pub(crate) async fn wait(
        &mut self,
        retry: Retry,
        outcome: Outcome,
        extensions: &mut Extensions,
    ) -> Request {
        let wake = clock::after(clock::now(), retry.wait);
        self.record(&outcome, retry.hint);
        self.unclear |= outcome.is_unclear();
        self.previous_backoff = Some(retry.backoff);
        self.waited = retry.wait;
        self.attempt = self.attempt.next();

        if let Ending::Answer(response) = outcome.ending {
            answer::drain(response, self.limits.last_start()).await;
        }
        tokio::time::sleep_until(wake).await;
        self.sent_at = self.limits.elapsed(clock::now());

        let (request, before) = retry.spare.unpack();
        *extensions = before;
        extensions.insert(self.attempt);
        request
    }

    /// Hands out the last answer or error as it is, with the report beside it.
    pub(crate) fn finish(mut self, stop: Stop, outcome: Outcome) -> Result<Response> {
        let report = RetryReport {
            last: self.last_attempt(&outcome, stop.hint),
            earlier: std::mem::take(&mut self.history),
            stop: stop.reason,
        };
        if let Some(slot) = &self.report {
            slot.put(report.clone());
        }
        match outcome.ending {
            Ending::Answer(mut response) => {
                response.extensions_mut().insert(report);
                Ok(response)
            }
            Ending::Failed(error, _) => Err(error),
        }
    }

    fn record(&mut self, outcome: &Outcome, hint: Option<Duration>) {
        let attempt = self.last_attempt(outcome, hint);
        self.history.push(attempt);
    }

    fn last_attempt(&self, outcome: &Outcome, hint: Option<Duration>) -> AttemptReport {
        AttemptReport {
            outcome: outcome.summary(),
            sent_at: self.sent_at,
            waited: self.waited,
            hint,
        }
    }
}

/// Sees to it that the request carries the key that it should. Says whether it carries one.
fn settle_key(
    settings: &Settings,
    own: Option<&RequestSettings>,
    request: &mut Request,
    harmless: bool,
) -> std::result::Result<bool, InvalidKey> {
    let header = &settings.idempotency_header;
    let key = match own.and_then(|own| own.key.clone()) {
        Some(key) => Some(key?),
        None => match request.headers().get(header) {
            Some(value) => {
                check_header(value)?;
                return Ok(true);
            }
            // A request that needs no key is left as it is.
            None if harmless => None,
            None => settings.auto_key.key_for(request),
        },
    };
    match key {
        Some(key) => {
            let value = key.header_value().clone();
            request.headers_mut().insert(header, value);
            Ok(true)
        }
        None => Ok(false),
    }
}
