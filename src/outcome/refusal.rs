//! What a throttle says when it does not let a request through.

use std::fmt;
use std::time::Duration;

use reqwest::Request;
use reqwest_middleware::Error;

use crate::host::Host;

/// Why a [`ThrottleMiddleware`](crate::ThrottleMiddleware) did not let a request through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// As many calls wait as [`max_queue`](crate::ThrottleMiddlewareBuilder::max_queue) allows.
    QueueFull,
    /// There was no room within [`max_wait`](crate::ThrottleMiddlewareBuilder::max_wait), or it is
    /// known already that there will be none.
    WaitTooLong,
    /// There will be no room before the deadline of the call.
    DeadlineTooClose,
}

impl RefusalReason {
    /// A stable name in snake_case, for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WaitTooLong => "wait_too_long",
            Self::DeadlineTooClose => "deadline_too_close",
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// The error of a request that a [`ThrottleMiddleware`](crate::ThrottleMiddleware) did not let
/// through. Nothing was sent.
///
/// A call that had a real answer or error before gets that instead.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::Refusal;
///
/// /// When to put the job back on its queue.
/// fn come_back_in(error: &reqwest_middleware::Error) -> Option<Duration> {
///     Refusal::of(error).map(Refusal::retry_after)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) reason: RefusalReason,
    pub(crate) key: String,
    /// False if a function of the user made the key: it may be a secret, so the text shows the host instead.
    pub(crate) shows_key: bool,
    /// The host of the request.
    pub(crate) host: String,
    pub(crate) depth: usize,
    pub(crate) retry_after: Duration,
}

impl Refusal {
    /// Finds it in an error, wherever another middleware may have put it.
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Middleware(error) => error.chain().find_map(|link| link.downcast_ref()),
            Error::Reqwest(_) => None,
        }
    }

    pub(crate) fn of_request(mut self, request: &Request) -> Self {
        self.host = Host(request.url()).as_str().to_owned();
        self
    }

    /// Why.
    pub fn reason(&self) -> RefusalReason {
        self.reason
    }

    /// The key that the request belongs to, as [`KeyBy`](crate::KeyBy) makes it. One that a function of
    /// yours has made is not in the error's text, for it may tell secrets; the host is there instead.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How many calls were waiting with the same key.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Trying again earlier than this after the refusal is of no use, as far as can be told.
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.shows_key {
            &self.key
        } else {
            &self.host
        };
        let Self {
            depth, retry_after, ..
        } = self;
        let why = match self.reason {
            RefusalReason::QueueFull => "the queue is full",
            RefusalReason::WaitTooLong => "the wait would be too long",
            RefusalReason::DeadlineTooClose => "the deadline is too close",
        };
        write!(
            f,
            "not sent to {key}: {why} ({depth} waiting, worth trying in {retry_after:?})"
        )
    }
}

impl std::error::Error for Refusal {}
