//! Turns the result of an attempt into an outcome with its class.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use reqwest::{Response, Url};
use reqwest_middleware::{Error, Result};

use super::StatusClass;
use super::effect::effect_of;
use super::inspect::{BodyStart, BodyVerdict, InspectRule};
use super::status::default_class;
use super::transport::{Failure, failure_class};
use crate::outcome::{Attempt, AttemptOutcome, Effect, FailureKind};
use crate::request::RequestTarget;

/// How an attempt ended, and what that means for a retry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassifiedOutcome {
    pub(crate) outcome: AttemptOutcome,
    pub(crate) class: StatusClass,
    /// The request provably never left, or was not processed. Always false for a response.
    pub(crate) unsent: bool,
    pub(crate) effect: Effect,
    /// The user chose the class, so a preset has nothing to say.
    pub(crate) by_user: bool,
}

impl ClassifiedOutcome {
    /// Whether the response is final and its status is below 400.
    pub(crate) fn is_success(self) -> bool {
        let is_ok = |status: StatusCode| status.as_u16() < 400;
        self.class == StatusClass::Never && self.status().is_some_and(is_ok)
    }

    pub(crate) fn status(self) -> Option<StatusCode> {
        match self.outcome {
            AttemptOutcome::Status(status) => Some(status),
            AttemptOutcome::Failure(_) => None,
        }
    }

    /// Whether a throttle refused the attempt.
    pub(crate) fn is_throttled(self) -> bool {
        self.outcome == AttemptOutcome::Failure(FailureKind::Throttled)
    }

    /// Whether the server is reachable and provably did not process the attempt (RFC 9113 §8.7).
    pub(crate) fn is_unprocessed(self) -> bool {
        self.unsent && self.outcome == AttemptOutcome::Failure(FailureKind::NotProcessed)
    }

    /// Whether the server may still be processing the request although the attempt is over.
    ///
    /// Narrower than an [`Effect`] that is unknown: after a 409, it is the next 409 that says so.
    pub(crate) fn may_be_running(self) -> bool {
        match self.outcome {
            AttemptOutcome::Status(status) => status.is_server_error(),
            AttemptOutcome::Failure(_) => !self.unsent,
        }
    }
}

/// What the class and the effect of an outcome depend on, besides the result of the attempt.
#[derive(Clone, Copy)]
pub(crate) struct RequestFacts<'a> {
    /// Needed if `by_user` is set, or if requests without a key are retried.
    pub(crate) target: Option<&'a RequestTarget>,
    /// The method is safe, so there is no effect to repeat.
    pub(crate) is_safe: bool,
    /// Where the request was sent. `None` if the call is not measured.
    pub(crate) url: Option<&'a str>,
    pub(crate) has_key: bool,
    /// The request carries a key, and an earlier attempt of the call may have taken effect.
    pub(crate) still_running: bool,
    /// The client may follow redirects.
    pub(crate) follows_redirects: bool,
}

/// A function that knows more about the responses of a service than [`default_class`]. `None` leaves the class to it.
pub(crate) type ClassifyResponse = fn(StatusCode, &HeaderMap) -> Option<StatusClass>;

/// The rules that give each outcome its class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classifier {
    /// Comes first. `None` from it leaves the class to the tables.
    pub(crate) by_user: Option<ClassifyFn>,
    /// Overrides [`default_class`] and the preset.
    pub(crate) by_status: Vec<(StatusCode, StatusClass)>,
    /// Overrides [`default_class`].
    pub(crate) by_preset: Option<ClassifyResponse>,
}

impl Classifier {
    /// Classifies the result of an attempt.
    pub(crate) fn classify(
        &self,
        result: &Result<Response>,
        attempt: Attempt,
        request: &RequestFacts<'_>,
    ) -> ClassifiedOutcome {
        let mut classified = match result {
            Ok(response) => {
                let (status, headers) = (response.status(), response.headers());
                let (class, by_user) = self.response_class(status, headers, request.still_running);
                ClassifiedOutcome {
                    outcome: AttemptOutcome::Status(status),
                    class,
                    unsent: false,
                    effect: Effect::Unknown,
                    by_user,
                }
            }
            Err(error) => {
                let Failure { kind, unsent } = Failure::of(error);
                ClassifiedOutcome {
                    outcome: AttemptOutcome::Failure(kind),
                    class: failure_class(kind),
                    unsent,
                    effect: Effect::Unknown,
                    by_user: false,
                }
            }
        };
        if let Some(target) = request.target {
            if let Some(ClassifyFn(classify)) = &self.by_user {
                let by_user = classify(&AttemptView {
                    target,
                    attempt,
                    outcome: classified.outcome,
                    result,
                });
                classified.class = by_user.unwrap_or(classified.class);
                classified.by_user |= by_user.is_some();
            }
            classified.class = class_after_redirect(classified.class, result, target);
        }
        classified.effect = effect_of(result, classified.class, request);
        classified
    }

    /// Returns the class of a response without headers.
    pub(crate) fn status_class(&self, status: StatusCode) -> StatusClass {
        self.response_class(status, &HeaderMap::new(), false).0
    }

    /// Returns the class of a response, and whether the user chose it.
    fn response_class(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        still_running: bool,
    ) -> (StatusClass, bool) {
        if let Some((_, class)) = self.by_status.iter().find(|(code, _)| *code == status) {
            return (*class, true);
        }
        let by_preset = self
            .by_preset
            .and_then(|classify| classify(status, headers));
        let class = by_preset.unwrap_or_else(|| match status {
            // The server may still process an earlier attempt. The key prevents a second effect.
            StatusCode::CONFLICT if still_running => StatusClass::Conditional,
            _ => default_class(status),
        });
        (class, false)
    }
}

/// Returns the class of a result that may come from another URL.
fn class_after_redirect(
    class: StatusClass,
    result: &Result<Response>,
    target: &RequestTarget,
) -> StatusClass {
    match result {
        // reqwest followed a redirect, so this response comes from another URL. The original request got a response
        // and may have taken effect.
        Ok(response) if class == StatusClass::Retry && !target.is_url_of(response) => {
            StatusClass::Conditional
        }
        _ => class,
    }
}

impl InspectRule {
    /// Asks the function about a response. Its verdict replaces the class of the outcome.
    pub(crate) fn apply(
        &self,
        classified: &mut ClassifiedOutcome,
        result: &Result<Response>,
        attempt: Attempt,
        target: &RequestTarget,
        start: &BodyStart<'_>,
    ) -> Option<BodyVerdict> {
        let view = AttemptView {
            target,
            attempt,
            outcome: classified.outcome,
            result,
        };
        let verdict = (self.ask)(&view, start)?;
        classified.class = class_after_redirect(verdict.class, result, target);
        // The body casts doubt on the status, or the rule itself is in doubt.
        if classified.effect == Effect::Happened || verdict.class == StatusClass::Conditional {
            classified.effect = Effect::Unknown;
        }
        Some(verdict)
    }
}

/// The function that a user set with `classify_fn`.
#[derive(Clone)]
pub(crate) struct ClassifyFn(pub(crate) Arc<Classify>);

type Classify = dyn Fn(&AttemptView<'_>) -> Option<StatusClass> + Send + Sync;

impl fmt::Debug for ClassifyFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClassifyFn(..)")
    }
}

/// Shows an attempt to a [`classify_fn`](crate::RetryMiddlewareBuilder::classify_fn) or an
/// [`inspect_body`](crate::RetryMiddlewareBuilder::inspect_body).
#[derive(Clone, Copy)]
pub struct AttemptView<'a> {
    target: &'a RequestTarget,
    attempt: Attempt,
    outcome: AttemptOutcome,
    result: &'a Result<Response>,
}

impl<'a> AttemptView<'a> {
    /// Returns the method of the request.
    pub fn method(&self) -> &'a Method {
        &self.target.method
    }

    /// Returns the URL of the request, before any redirect.
    pub fn url(&self) -> &'a Url {
        &self.target.url
    }

    /// Returns the number of the attempt, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.number()
    }

    /// Returns the status of the response, or `None` after an error.
    pub fn status(&self) -> Option<StatusCode> {
        self.result.as_ref().ok().map(Response::status)
    }

    /// Returns the headers of the response, or `None` after an error.
    pub fn headers(&self) -> Option<&'a HeaderMap> {
        self.result.as_ref().ok().map(Response::headers)
    }

    /// Returns the error, or `None` if there is a response.
    pub fn error(&self) -> Option<&'a Error> {
        self.result.as_ref().err()
    }

    /// Returns the status, or the kind of the failure.
    pub fn outcome(&self) -> AttemptOutcome {
        self.outcome
    }
}

/// Shows neither headers nor the parts of a URL that may be secret.
impl fmt::Debug for AttemptView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptView")
            .field("method", self.method())
            .field("host", &self.url().host_str())
            .field("attempt", &self.attempt())
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_may_be_running_unless_proven_otherwise() {
        let may_be = |outcome, unsent| {
            let classified = ClassifiedOutcome {
                outcome,
                class: StatusClass::Conditional,
                unsent,
                effect: Effect::Unknown,
                by_user: false,
            };
            classified.may_be_running()
        };
        let status = |code| AttemptOutcome::Status(StatusCode::from_u16(code).unwrap());
        assert!(may_be(status(500), false));
        assert!(!may_be(status(429), false));
        let reset = AttemptOutcome::Failure(FailureKind::Reset);
        assert!(may_be(reset, false));
        let refused = AttemptOutcome::Failure(FailureKind::Connect);
        assert!(!may_be(refused, true));
    }

    #[test]
    fn a_view_does_not_show_secrets() {
        let target = RequestTarget {
            method: Method::GET,
            url: Url::parse("http://user:secret1@example.com/?token=secret2").unwrap(),
        };
        let mut response = http::Response::new("body");
        let cookie = http::HeaderValue::from_static("session=secret3");
        response.headers_mut().insert("set-cookie", cookie);
        let result = Ok(response.into());
        let view = AttemptView {
            target: &target,
            attempt: Attempt::FIRST,
            outcome: AttemptOutcome::Status(StatusCode::OK),
            result: &result,
        };
        let shown = format!("{view:?}");
        assert!(
            shown.contains("example.com") && !shown.contains("secret"),
            "{shown}"
        );
    }
}
