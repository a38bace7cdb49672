//! The error of an attempt that ran out of time.

use std::fmt;
use std::time::Duration;

use reqwest_middleware::Error;

/// Which of the middleware's own limits an attempt ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeLimit {
    /// [`attempt_timeout`](crate::RetryMiddlewareBuilder::attempt_timeout), of the middleware or of
    /// [the request](crate::RequestBuilderExt::attempt_timeout); or the `timeout` of a request that waited in a [`CoalesceMiddleware`](crate::CoalesceMiddleware).
    Attempt,
    /// [`deadline`](crate::RetryMiddlewareBuilder::deadline) of the whole call.
    Deadline,
}

/// The error of an attempt that the middleware itself cut off.
///
/// It is not one of reqwest's errors, so `is_timeout()` is false for it; reqwest's own timeouts come
/// back as they are.
///
/// ```
/// use reqwest_steady::TimedOut;
///
/// fn took_too_long(error: &reqwest_middleware::Error) -> bool {
///     error.is_timeout() || TimedOut::of(error).is_some()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut {
    pub(crate) limit: TimeLimit,
    pub(crate) after: Duration,
}

impl TimedOut {
    /// Finds it in an error, wherever another middleware may have put it.
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Middleware(error) => error.chain().find_map(|link| link.downcast_ref()),
            Error::Reqwest(_) => None,
        }
    }

    /// The limit that was reached.
    pub fn limit(&self) -> TimeLimit {
        self.limit
    }

    /// How long that limit was.
    pub fn after(&self) -> Duration {
        self.after
    }
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            TimeLimit::Attempt => write!(f, "no answer within {:?}", self.after),
            TimeLimit::Deadline => {
                write!(f, "no answer before the deadline of {:?}", self.after)
            }
        }
    }
}

impl std::error::Error for TimedOut {}
