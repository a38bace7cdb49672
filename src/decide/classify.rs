//! What one attempt came to, and which class that is.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use reqwest::{Response, Url};
use reqwest_middleware::{Error, Result};

use crate::decide::status::default_class;
use crate::decide::transport::Failure;
use crate::decide::{FailureKind, StatusClass};
use crate::observe::Attempt;

/// How an attempt ended: with an answer or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// The server answered, with this status.
    Status(StatusCode),
    /// There was no usable answer.
    Failure(FailureKind),
}

impl fmt::Display for AttemptOutcome {
    /// The status code, or the failure's label.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => f.write_str(status.as_str()),
            Self::Failure(kind) => f.write_str(kind.label()),
        }
    }
}

/// What an attempt brought back.
#[derive(Debug)]
pub(crate) enum Ending {
    Answer(Response),
    Failed(Error, Failure),
}

impl From<Result<Response>> for Ending {
    fn from(result: Result<Response>) -> Self {
        match result {
            Ok(response) => Self::Answer(response),
            Err(error) => {
                let failure = Failure::of(&error);
                Self::Failed(error, failure)
            }
        }
    }
}

/// One attempt's ending, sorted.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ending: Ending,
    pub(crate) class: StatusClass,
}

impl Outcome {
    pub(crate) fn response(&self) -> Option<&Response> {
        match &self.ending {
            Ending::Answer(response) => Some(response),
            Ending::Failed(..) => None,
        }
    }

    pub(crate) fn summary(&self) -> AttemptOutcome {
        match &self.ending {
            Ending::Answer(response) => AttemptOutcome::Status(response.status()),
            Ending::Failed(_, failure) => AttemptOutcome::Failure(failure.kind),
        }
    }

    /// Whether the request provably had no effect.
    pub(crate) fn unsent(&self) -> bool {
        matches!(&self.ending, Ending::Failed(_, failure) if failure.unsent)
    }

    /// Whether the request may have had its effect although nobody said so.
    pub(crate) fn is_unclear(&self) -> bool {
        match &self.ending {
            Ending::Answer(response) => response.status().is_server_error(),
            Ending::Failed(_, failure) => !failure.unsent,
        }
    }
}

/// The rules by which a middleware sorts endings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classifier {
    pub(crate) by_user: Option<ClassifyFn>,
    pub(crate) by_status: Vec<(StatusCode, StatusClass)>,
}

impl Classifier {
    /// `still_running`: the request carries a key, and an earlier attempt of this call ended
    /// without a clear answer. `target` is there whenever there is a `by_user` to show it to.
    pub(crate) fn class(
        &self,
        ending: &Ending,
        target: Option<&Target>,
        attempt: Attempt,
        still_running: bool,
    ) -> StatusClass {
        let by_user = match (&self.by_user, target) {
            (Some(ClassifyFn(classify)), Some(target)) => classify(&AttemptView {
                target,
                attempt,
                ending,
            }),
            _ => None,
        };
        by_user.unwrap_or_else(|| match ending {
            Ending::Answer(response) => self.class_of_status(response.status(), still_running),
            Ending::Failed(_, failure) => failure.kind.class(),
        })
    }

    fn class_of_status(&self, status: StatusCode, still_running: bool) -> StatusClass {
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

/// Where a request went. Kept only for those who ask, since the request is gone by then.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) method: Method,
    pub(crate) url: Url,
}

/// What a [`classify_fn`](crate::RetryMiddlewareBuilder::classify_fn) gets to see of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct AttemptView<'a> {
    target: &'a Target,
    attempt: Attempt,
    ending: &'a Ending,
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
        self.answer().map(Response::status)
    }

    /// The headers of the answer, if there is one.
    pub fn headers(&self) -> Option<&'a HeaderMap> {
        self.answer().map(Response::headers)
    }

    /// The error, if there is no answer.
    pub fn error(&self) -> Option<&'a Error> {
        match self.ending {
            Ending::Answer(_) => None,
            Ending::Failed(error, _) => Some(error),
        }
    }

    /// How the error was understood, if there is no answer.
    pub fn failure(&self) -> Option<FailureKind> {
        match self.ending {
            Ending::Answer(_) => None,
            Ending::Failed(_, failure) => Some(failure.kind),
        }
    }

    fn answer(&self) -> Option<&'a Response> {
        match self.ending {
            Ending::Answer(response) => Some(response),
            Ending::Failed(..) => None,
        }
    }
}
