//! What one attempt came to, and which class that is.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use reqwest::{Response, Url};
use reqwest_middleware::{Error, Result};

use super::StatusClass;
use super::status::default_class;
use super::transport::{Failure, failure_class};
use crate::outcome::{Attempt, AttemptOutcome, FailureKind};
use crate::request::without_fragment;

/// What the ending of an attempt means for another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassifiedOutcome {
    pub(crate) outcome: AttemptOutcome,
    pub(crate) class: StatusClass,
    /// The request provably had no effect.
    pub(crate) unsent: bool,
}

impl ClassifiedOutcome {
    /// A success stays one, whatever its headers say.
    #[inline]
    pub(crate) fn is_success(self) -> bool {
        let is_error = |status: StatusCode| status.as_u16() >= 400;
        self.class == StatusClass::Never && !self.status().is_none_or(is_error)
    }

    pub(crate) fn status(self) -> Option<StatusCode> {
        match self.outcome {
            AttemptOutcome::Status(status) => Some(status),
            AttemptOutcome::Failure(_) => None,
        }
    }

    /// Whether a throttle did not let it through.
    pub(crate) fn is_throttled(self) -> bool {
        self.outcome == AttemptOutcome::Failure(FailureKind::Throttled)
    }

    /// Whether the server is reachable and provably did not process the attempt (RFC 9113 §8.7).
    pub(crate) fn is_unprocessed(self) -> bool {
        self.unsent && self.outcome == AttemptOutcome::Failure(FailureKind::NotProcessed)
    }

    /// Whether the request may have had its effect although nobody said so.
    pub(crate) fn is_unclear(self) -> bool {
        match self.outcome {
            AttemptOutcome::Status(status) => status.is_server_error(),
            AttemptOutcome::Failure(_) => !self.unsent,
        }
    }
}

/// The rules by which a middleware judges endings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classifier {
    pub(crate) by_user: Option<ClassifyFn>,
    pub(crate) by_status: Vec<(StatusCode, StatusClass)>,
}

impl Classifier {
    /// `still_running`: the request carries a key, and an earlier attempt of this call ended
    /// without a clear answer. `target` is there whenever it makes a difference.
    #[inline]
    pub(crate) fn classify(
        &self,
        result: &Result<Response>,
        target: Option<&Target>,
        attempt: Attempt,
        still_running: bool,
    ) -> ClassifiedOutcome {
        match (result, target) {
            // Most calls end like this.
            (Ok(response), None) => self.on_answer(response, still_running),
            _ => self.classify_in_full(result, target, attempt, still_running),
        }
    }

    fn on_answer(&self, response: &Response, still_running: bool) -> ClassifiedOutcome {
        ClassifiedOutcome {
            outcome: AttemptOutcome::Status(response.status()),
            class: self.class_of(response.status(), still_running),
            unsent: false,
        }
    }

    fn classify_in_full(
        &self,
        result: &Result<Response>,
        target: Option<&Target>,
        attempt: Attempt,
        still_running: bool,
    ) -> ClassifiedOutcome {
        let mut classified = match result {
            Ok(response) => self.on_answer(response, still_running),
            Err(error) => {
                let Failure { kind, unsent } = Failure::of(error);
                ClassifiedOutcome {
                    outcome: AttemptOutcome::Failure(kind),
                    class: failure_class(kind),
                    unsent,
                }
            }
        };
        if let (Some(ClassifyFn(classify)), Some(target)) = (&self.by_user, target) {
            let by_user = classify(&AttemptView {
                target,
                attempt,
                outcome: classified.outcome,
                result,
            });
            classified.class = by_user.unwrap_or(classified.class);
        }
        if let (StatusClass::Retry, Some(target), Ok(response)) = (classified.class, target, result)
        {
            if !target.is_that_of(response) {
                // A redirect was followed: another server did not take on another request. The
                // first one was answered, so it may have had its effect.
                classified.class = StatusClass::Conditional;
            }
        }
        classified
    }

    fn class_of(&self, status: StatusCode, still_running: bool) -> StatusClass {
        match self.by_status.iter().find(|(code, _)| *code == status) {
            Some((_, class)) => *class,
            // The key keeps the second from doing the first one's work again.
            None if status == StatusCode::CONFLICT && still_running => StatusClass::Conditional,
            None => default_class(status),
        }
    }
}

/// A user's own classification, asked before the tables.
#[derive(Clone)]
pub(crate) struct ClassifyFn(Arc<Classify>);

type Classify = dyn Fn(&AttemptView<'_>) -> Option<StatusClass> + Send + Sync;

impl ClassifyFn {
    pub(crate) fn new(
        classify: impl Fn(&AttemptView<'_>) -> Option<StatusClass> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(classify))
    }
}

impl fmt::Debug for ClassifyFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClassifyFn(..)")
    }
}

/// Where a request went. HeldResponse only for those who ask, since the request is gone by then.
pub(crate) struct Target {
    pub(crate) method: Method,
    pub(crate) url: Url,
}

impl Target {
    /// Whether the answer came from where the request was sent to.
    fn is_that_of(&self, response: &Response) -> bool {
        without_fragment(&self.url) == without_fragment(response.url())
    }
}

/// What a [`classify_fn`](crate::RetryMiddlewareBuilder::classify_fn) gets to see of an attempt.
#[derive(Clone, Copy)]
pub struct AttemptView<'a> {
    target: &'a Target,
    attempt: Attempt,
    outcome: AttemptOutcome,
    result: &'a Result<Response>,
}

impl<'a> AttemptView<'a> {
    /// The method of the request.
    pub fn method(&self) -> &'a Method {
        &self.target.method
    }

    /// The URL of the request, before any redirect.
    pub fn url(&self) -> &'a Url {
        &self.target.url
    }

    /// 1 for the first attempt of the call, 2 for its first retry …
    pub fn attempt(&self) -> u32 {
        self.attempt.number()
    }

    /// The status of the answer, if there is one.
    pub fn status(&self) -> Option<StatusCode> {
        self.result.as_ref().ok().map(Response::status)
    }

    /// The headers of the answer, if there is one.
    pub fn headers(&self) -> Option<&'a HeaderMap> {
        self.result.as_ref().ok().map(Response::headers)
    }

    /// The error, if there is no answer.
    pub fn error(&self) -> Option<&'a Error> {
        self.result.as_ref().err()
    }

    /// The status, or how the error was understood.
    pub fn outcome(&self) -> AttemptOutcome {
        self.outcome
    }
}

/// Without headers, and without what may be secret in a URL.
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
    fn an_attempt_is_unclear_unless_it_is_known_what_became_of_it() {
        let unclear = |outcome, unsent| {
            let class = StatusClass::Conditional;
            let classified = ClassifiedOutcome {
                outcome,
                class,
                unsent,
            };
            classified.is_unclear()
        };
        let status = |code| AttemptOutcome::Status(StatusCode::from_u16(code).unwrap());
        assert!(unclear(status(500), false));
        assert!(!unclear(status(429), false));
        let reset = AttemptOutcome::Failure(FailureKind::Reset);
        assert!(unclear(reset, false));
        let refused = AttemptOutcome::Failure(FailureKind::Connect);
        assert!(!unclear(refused, true));
    }

    #[test]
    fn a_view_does_not_show_secrets() {
        let target = Target {
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
