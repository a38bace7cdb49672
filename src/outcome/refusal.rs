//! The error of a request that a throttle did not send, and the reason.

use std::fmt;
use std::time::Duration;

use reqwest::Request;
use reqwest_middleware::Error;

use crate::host::Host;

/// Why a [`ThrottleMiddleware`](crate::ThrottleMiddleware) did not send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The queue is as long as [`max_queue`](crate::ThrottleMiddlewareBuilder::max_queue) allows.
    QueueFull,
    /// The request could not go within [`max_wait`](crate::ThrottleMiddlewareBuilder::max_wait), or
    /// certainly cannot.
    WaitTooLong,
    /// The request cannot go before the deadline of its call.
    DeadlineTooClose,
}

impl RefusalReason {
    /// Returns a stable name in snake_case, for logs and metrics.
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

/// The error of a request that a [`ThrottleMiddleware`](crate::ThrottleMiddleware) did not send.
///
/// If an earlier attempt of the call got a response or an error, the call ends with that instead.
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
#[derive(Clone, PartialEq, Eq)]
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
    /// Finds a refusal in an error, also inside the error of another middleware.
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

    /// Returns why the request was not sent.
    pub fn reason(&self) -> RefusalReason {
        self.reason
    }

    /// Returns the key of the request, as set by [`KeyBy`](crate::KeyBy).
    ///
    /// The text of the error shows the host in place of a key from your own function, because such a key
    /// may contain a secret.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns how many calls with the same key were waiting.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns how long to wait before trying again, as an estimate.
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.shows_key { &self.key } else { ".." };
        f.debug_struct("Refusal")
            .field("reason", &self.reason)
            .field("key", &key)
            .field("host", &self.host)
            .field("depth", &self.depth)
            .field("retry_after", &self.retry_after)
            .finish()
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
