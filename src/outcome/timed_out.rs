//! The error of an attempt that ran out of time.

use std::fmt;
use std::time::Duration;

use reqwest_middleware::Error;

/// Names the time limit that an attempt exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeLimit {
    /// The `attempt_timeout` of the [middleware](crate::RetryMiddlewareBuilder::attempt_timeout) or of the
    /// [request](crate::RequestBuilderExt::attempt_timeout).
    ///
    /// Also the `timeout` of a request that waited in a [`CoalesceMiddleware`](crate::CoalesceMiddleware).
    Attempt,
    /// The [`deadline`](crate::RetryMiddlewareBuilder::deadline) of the whole call.
    Deadline,
}

/// Reports an attempt that exceeded a time limit of this crate.
///
/// It is not an error of reqwest, so `is_timeout()` is false for it. Timeouts of reqwest itself are returned unchanged.
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
    /// Finds a timeout in an error, even if another middleware wrapped it.
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Middleware(error) => error.chain().find_map(|link| link.downcast_ref()),
            Error::Reqwest(_) => None,
        }
    }

    /// Returns which limit the attempt exceeded.
    pub fn limit(&self) -> TimeLimit {
        self.limit
    }

    /// Returns the length of that limit.
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
