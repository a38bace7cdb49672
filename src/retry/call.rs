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
use crate::schedule::{self, CallTime, server_hint};

/// The state of one call. It lives as long as `handle` runs, and nothing else holds it.
pub(crate) struct Call<'a> {
    settings: &'a Settings,
    time: CallTime<'a>,
    max_retries: u32,
    safety: Safety,
    has_key: bool,
    body: Option<BodyFactory>,
    buffer: Option<usize>,
    report: Option<ReportSlot>,
    target: Option<Box<Target>>,

    /// What a retry of the running attempt would send.
    spare: Option<Spare>,
    attempt: Attempt,
    sent_at: Duration,
    waited: Duration,
    previous_backoff: Option<Duration>,
    /// An earlier attempt ended without a clear answer.
    unclear: bool,
    history: Vec<AttemptReport>,
}

/// A retry that has been decided on, after this outcome.
pub(crate) struct Retry {
    outcome: Outcome,
    spare: Spare,
    wait: Duration,
    backoff: Duration,
    hint: Option<Duration>,
}

/// The end of a call with this outcome, and the hint in it, where one was looked for.
pub(crate) struct End {
    outcome: Outcome,
    reason: StopReason,
    hint: Option<Duration>,
}

impl<'a> Call<'a> {
    /// Settles what this call may do. Puts the key into the request and gives it back.
    //
    // The request travels by value through the loop. A local that was ever borrowed is kept over
    // every `await` after that, and the future of every call would be that much larger.
    pub(crate) fn open(
        settings: &'a Settings,
        mut request: Request,
        extensions: &Extensions,
    ) -> std::result::Result<(Self, Request), InvalidKey> {
        let own = extensions.get::<RequestSettings>();
        let harmless = own.is_some_and(|own| own.idempotent) || is_idempotent(request.method());
        let has_key = settle_key(settings, own, &mut request, harmless)?;
        let target = settings.classifier.by_user.as_ref().map(|_| {
            Box::new(Target {
                method: request.method().clone(),
                url: request.url().clone(),
            })
        });
        let call = Self {
            settings,
            time: CallTime {
                limits: &settings.limits,
                started: clock::now(),
                deadline: own
                    .and_then(|own| own.deadline)
                    .or(settings.limits.deadline),
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
            spare: None,
            attempt: Attempt::FIRST,
            sent_at: Duration::ZERO,
            waited: Duration::ZERO,
            previous_backoff: None,
            unclear: false,
            history: Vec::new(),
        };
        Ok((call, request))
    }

    /// Puts a copy aside, sends the request, and sorts what comes back.
    //
    // Not an `async fn`: the request goes into the next middleware's future at once, and does not
    // make this one larger.
    pub(crate) fn attempt<'c>(
        &'c mut self,
        mut request: Request,
        extensions: &'c mut Extensions,
        next: &Next<'c>,
    ) -> impl Future<Output = Outcome> + use<'a, 'c> {
        if let Some(name) = &self.settings.attempt_header {
            let number = HeaderValue::from(self.attempt.number());
            request.headers_mut().insert(name, number);
        }
        // None: the body cannot be sent again, or no retry could follow.
        self.spare = if self.attempt.retries() < self.max_retries && self.safety.allows_any() {
            Spare::of(&request, self.body.is_some(), extensions)
        } else {
            None
        };
        let answer = next.clone().run(request, extensions);
        async move {
            if self.attempt == Attempt::FIRST && !self.settings.launch_spread.is_zero() {
                Box::pin(self.launch()).await;
            }
            let outcome = self.sort(self.in_time(answer).await);
            match self.buffer {
                Some(limit) => Box::pin(self.buffered(outcome, limit)).await,
                None => outcome,
            }
        }
    }

    /// Spreads the first attempts of calls that begin on the same beat.
    async fn launch(&mut self) {
        let spread = match self.time.deadline {
            Some(deadline) => self.settings.launch_spread.min(deadline / 2),
            None => self.settings.launch_spread,
        };
        self.waited = self.settings.entropy.with(|rng| up_to(spread, rng));
        tokio::time::sleep(self.waited).await;
        self.sent_at = self.time.elapsed(clock::now());
    }

    /// Reads the body of an answer that will be returned. Only that is worth waiting for.
    async fn buffered(&self, outcome: Outcome, limit: usize) -> Outcome {
        let Outcome { ending, class } = outcome;
        let response = match (ending, class) {
            (Ending::Answer(response), StatusClass::Never) => response,
            (ending, class) => return Outcome { ending, class },
        };
        let body = async { Ok(answer::buffer(response, limit).await?) };
        match self.in_time(body).await {
            Ok(response) => Outcome {
                ending: Ending::Answer(response),
                class,
            },
            Err(error) => self.sort(Err(error)),
        }
    }

    /// Cuts off what passes the attempt's timeout or the call's deadline.
    async fn in_time(&self, answer: impl Future<Output = Result<Response>>) -> Result<Response> {
        let Some((end, timed_out)) = self.time.attempt_end(self.sent_at) else {
            return answer.await;
        };
        // With no time left, nothing is sent.
        if end > self.sent_at {
            let end = clock::after(self.time.started, end);
            if let Ok(result) = Box::pin(tokio::time::timeout_at(end, answer)).await {
                return result;
            }
        }
        Err(Error::middleware(timed_out))
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

    /// Whether, how and when to go on.
    pub(crate) fn next_step(&mut self, outcome: Outcome) -> std::result::Result<Retry, End> {
        let mut hint = None;
        match self.decide(&outcome).and_then(|spare| {
            hint = outcome
                .response()
                .and_then(|answer| server_hint(answer.status(), answer.headers(), clock::wall()));
            let (backoff, wait) = self.schedule(hint)?;
            Ok((spare, backoff, wait))
        }) {
            Ok((spare, backoff, wait)) => Ok(Retry {
                outcome,
                spare,
                wait,
                backoff,
                hint,
            }),
            Err(reason) => Err(End {
                outcome,
                reason,
                hint,
            }),
        }
    }

    /// May this be sent again at all? Then here is what to send.
    fn decide(&mut self, outcome: &Outcome) -> std::result::Result<Spare, StopReason> {
        self.safety.allows(outcome)?;
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
        self.time.allow_wait(clock::now(), wait)?;
        Ok((backoff, wait))
    }

    /// Clears the old answer away, waits, and gets everything ready for the next attempt.
    pub(crate) async fn wait(&mut self, retry: Retry, extensions: &mut Extensions) -> Request {
        let wake = clock::after(clock::now(), retry.wait);
        self.record(&retry.outcome, retry.hint);
        self.unclear |= retry.outcome.is_unclear();
        self.previous_backoff = Some(retry.backoff);
        self.waited = retry.wait;
        self.attempt = self.attempt.next();

        if let Ending::Answer(response) = retry.outcome.ending {
            answer::drain(response, self.time.last_start()).await;
        }
        tokio::time::sleep_until(wake).await;
        self.sent_at = self.time.elapsed(clock::now());

        let (request, before) = retry.spare.unpack(self.body.as_ref());
        *extensions = before;
        extensions.insert(self.attempt);
        request
    }

    /// Hands out the last answer or error as it is, with the report beside it.
    pub(crate) fn finish(self, end: End) -> Result<Response> {
        let report = RetryReport {
            last: self.last_attempt(&end.outcome, end.hint),
            earlier: self.history,
            stop: end.reason,
        };
        if let Some(slot) = &self.report {
            slot.put(report.clone());
        }
        match end.outcome.ending {
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
