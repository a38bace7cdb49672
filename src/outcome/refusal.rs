//! The error of a request that a throttle refused.

use std::fmt;
use std::time::Duration;

use reqwest::Request;
use reqwest_middleware::Error;

use crate::host::host_of;

labelled! {
    /// Says why a [`ThrottleMiddleware`](crate::ThrottleMiddleware) refused a request.
    pub enum RefusalReason {
        /// The queue has [`max_queue`](crate::ThrottleMiddlewareBuilder::max_queue) waiting calls.
        QueueFull = "queue_full",
        /// The wait took longer than [`max_queue_wait`](crate::ThrottleMiddlewareBuilder::max_queue_wait), or is known to take
        /// longer.
        WaitTooLong = "wait_too_long",
        /// The request could not be sent before the deadline of the call.
        DeadlineTooClose = "deadline_too_close",
    }
}

/// Reports that a [`ThrottleMiddleware`](crate::ThrottleMiddleware) refused a request. Nothing was sent.
///
/// If the throttle refuses a retry, the call ends with its last response or error instead.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::Refusal;
///
/// /// Returns when to put the job back on its queue.
/// fn requeue_in(error: &reqwest_middleware::Error) -> Option<Duration> {
///     Refusal::of(error).map(Refusal::retry_after)
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) reason: RefusalReason,
    pub(crate) key: String,
    /// False if a function of the user made the key. Such a key may be secret, so messages show the host instead.
    pub(crate) shows_key: bool,
    /// The host of the request.
    pub(crate) host: String,
    pub(crate) depth: usize,
    pub(crate) retry_after: Duration,
}

impl Refusal {
    /// Finds a refusal in an error, even if another middleware wrapped it.
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Middleware(error) => error.chain().find_map(|link| link.downcast_ref()),
            Error::Reqwest(_) => None,
        }
    }

    /// Adds the host of the request.
    pub(crate) fn of_request(mut self, request: &Request) -> Self {
        self.host = host_of(request.url()).to_owned();
        self
    }

    /// Returns why the throttle refused the request.
    pub fn reason(&self) -> RefusalReason {
        self.reason
    }

    /// Returns the key of the request, as [`KeyBy`](crate::KeyBy) computes it.
    ///
    /// A key from your own function may be secret, so the text of the error shows the host instead.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the number of waiting calls with the same key.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the shortest wait after which a new try may succeed.
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
