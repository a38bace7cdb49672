//! The error of a call that this crate ended.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest_middleware::Error;

use super::refusal::{Refusal, RefusalReason};
use crate::clock::rounded;
use crate::host::host_of;

/// Reports that this crate ended a call: out of time, refused by a throttle, invalid, or without a body to send.
///
/// Errors of reqwest and of other middlewares are returned unchanged, so they are not a `SteadyError`. To name any
/// error, use [`FailureKind::of`](crate::observe::FailureKind::of).
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::testing::{Reply, ScriptedServer};
/// use reqwest_steady::{RetryMiddleware, SteadyError};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ScriptedServer::new(|_| Reply::silence());
/// let retry = RetryMiddleware::builder().attempt_timeout(Duration::from_secs(10)).max_retries(0);
/// let client = server.client(retry.build()?);
///
/// let error = client.get("https://api.example.com/orders").send().await.unwrap_err();
/// let ended = SteadyError::of(&error).expect("no other error");
/// assert!(ended.is_timeout());
/// assert_eq!(ended.host(), "api.example.com");
/// assert_eq!(ended.to_string(), "no response from api.example.com within 10 s (attempt 1, 10 s in all)");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SteadyError {
    kind: Kind,
    /// Empty until the middleware that knows the request has added it.
    host: String,
    attempts: u32,
    elapsed: Duration,
}

#[derive(Clone, Debug)]
enum Kind {
    TimedOut(TimeLimit, Duration),
    /// The deadline was over before the attempt was sent.
    TooLate(Duration),
    Throttled(Box<Refusal>),
    /// A `ConfigError` or an `InvalidKeyError`.
    Invalid(Arc<dyn StdError + Send + Sync>),
    /// The body of an attempt could not be built.
    Body {
        error: Arc<dyn StdError + Send + Sync>,
        /// Another attempt was sent before.
        is_retry: bool,
    },
}

/// Names the time limit that a call exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeLimit {
    /// The `attempt_timeout`, or the `timeout` of a request that waited in a coalescing middleware.
    Attempt,
    Deadline,
}

impl SteadyError {
    /// Finds the error of this crate in any error, even if another middleware wrapped it.
    pub fn of(error: &Error) -> Option<&Self> {
        let Error::Middleware(error) = error else {
            return None;
        };
        error.chain().find_map(|link| match link.downcast_ref() {
            // Its source is that of the error inside it, so the chain skips that error.
            Some(nested) => Self::of(nested),
            None => link.downcast_ref(),
        })
    }

    /// Finds the error if it is not inside an error of another middleware, which is never changed.
    pub(crate) fn of_mut(error: &mut Error) -> Option<&mut Self> {
        match error {
            Error::Middleware(error) => error.downcast_mut(),
            Error::Reqwest(_) => None,
        }
    }

    fn new(kind: Kind) -> Self {
        Self {
            kind,
            host: String::new(),
            attempts: 0,
            elapsed: Duration::ZERO,
        }
    }

    pub(crate) fn timed_out(limit: TimeLimit, after: Duration) -> Self {
        Self::new(Kind::TimedOut(limit, after))
    }

    /// Reports a deadline that was over before the attempt was sent.
    pub(crate) fn too_late(deadline: Duration) -> Self {
        Self::new(Kind::TooLate(deadline))
    }

    pub(crate) fn throttled(refusal: Refusal, url: &Url, waited: Duration) -> Self {
        Self {
            host: host_of(url).to_owned(),
            elapsed: waited,
            ..Self::new(Kind::Throttled(Box::new(refusal)))
        }
    }

    fn of_invalid(error: impl StdError + Send + Sync + 'static, url: &Url) -> Self {
        Self {
            host: host_of(url).to_owned(),
            ..Self::new(Kind::Invalid(Arc::new(error)))
        }
    }

    /// Reports a body that could not be built for the first attempt to `url`.
    pub(crate) fn of_body(error: impl StdError + Send + Sync + 'static, url: &Url) -> Self {
        let error = Arc::new(error);
        let is_retry = false;
        Self {
            host: host_of(url).to_owned(),
            ..Self::new(Kind::Body { error, is_retry })
        }
    }

    /// Reports a body that could not be built again for a retry to `url`.
    pub(crate) fn of_retry_body(error: impl StdError + Send + Sync + 'static, url: &Url) -> Self {
        let error = Arc::new(error);
        let is_retry = true;
        Self {
            host: host_of(url).to_owned(),
            ..Self::new(Kind::Body { error, is_retry })
        }
    }

    pub(crate) fn after_attempts(self, attempts: u32) -> Self {
        Self { attempts, ..self }
    }

    /// Turns a `ConfigError` or an `InvalidKeyError` into the error of a call to `url`.
    #[inline]
    pub(crate) fn check<T, E>(checked: Result<T, E>, url: &Url) -> Result<T, Error>
    where
        E: StdError + Send + Sync + 'static,
    {
        checked.map_err(|error| Error::middleware(Self::of_invalid(error, url)))
    }

    /// Adds what the call around the error knows.
    ///
    /// The error of a nested call to another host, such as a request for a token, keeps its own facts.
    pub(crate) fn complete(&mut self, host: &str, attempts: u32, elapsed: Duration) {
        if self.host.is_empty() {
            host.clone_into(&mut self.host);
        }
        if self.host == host {
            self.attempts = attempts;
            self.elapsed = elapsed;
        }
    }

    /// Returns whether a time limit of this crate ended the call: `attempt_timeout` or `deadline`.
    ///
    /// Timeouts of reqwest are errors of reqwest, with an `is_timeout()` of their own.
    /// [`FailureKind::of`](crate::observe::FailureKind::of) returns `Timeout` for both.
    pub fn is_timeout(&self) -> bool {
        self.exceeded().is_some()
    }

    /// Returns whether the [`deadline`](crate::RetryMiddlewareBuilder::deadline) of the whole call ended it.
    pub fn is_deadline(&self) -> bool {
        self.exceeded() == Some(TimeLimit::Deadline)
    }

    /// Returns whether a [`ThrottleMiddleware`](crate::ThrottleMiddleware) refused the request. Nothing was sent.
    ///
    /// If the throttle refuses a retry, the call ends with its last response or error instead.
    pub fn is_throttled(&self) -> bool {
        self.refusal().is_some()
    }

    /// Returns whether a setting, the runtime or the idempotency key is invalid. Nothing was sent.
    ///
    /// [`invalid`](Self::invalid) returns what is invalid.
    pub fn is_config(&self) -> bool {
        self.invalid().is_some()
    }

    /// Returns what is invalid: a [`ConfigError`](crate::ConfigError) or an
    /// [`InvalidKeyError`](crate::InvalidKeyError).
    pub fn invalid(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            Kind::Invalid(error) => Some(&**error),
            _ => None,
        }
    }

    /// Returns whether the body of the next attempt could not be built, as that of a file that has changed.
    ///
    /// That attempt was not sent. [`attempts`](Self::attempts) says how many were sent before it.
    pub fn is_body(&self) -> bool {
        matches!(self.kind, Kind::Body { .. })
    }

    /// Returns the host of the request, with the port if it is not the default port of the scheme.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the number of attempts of the call. 0 if nothing was sent.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the time from the start of the call to this error.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the length of the time limit that ended the call.
    pub fn time_limit(&self) -> Option<Duration> {
        match self.kind {
            Kind::TimedOut(_, after) | Kind::TooLate(after) => Some(after),
            _ => None,
        }
    }

    /// Returns why the throttle refused the request.
    pub fn refusal_reason(&self) -> Option<RefusalReason> {
        Some(self.refusal()?.reason)
    }

    /// Returns the throttle's key of the request, as [`KeyBy`](crate::KeyBy) computes it.
    ///
    /// A key from your own function may be secret, so the text of the error does not show it.
    pub fn key(&self) -> Option<&str> {
        Some(&self.refusal()?.key)
    }

    /// Returns the number of calls that waited in the throttle with the same key.
    pub fn queue_depth(&self) -> Option<usize> {
        Some(self.refusal()?.depth)
    }

    /// Returns the shortest wait after which the throttle may accept the request.
    ///
    /// ```
    /// use std::time::Duration;
    /// use reqwest_steady::SteadyError;
    ///
    /// /// Returns when to put the job back on its queue.
    /// fn requeue_in(error: &reqwest_middleware::Error) -> Option<Duration> {
    ///     SteadyError::of(error)?.retry_after()
    /// }
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        Some(self.refusal()?.retry_after)
    }

    pub(crate) fn exceeded(&self) -> Option<TimeLimit> {
        match self.kind {
            Kind::TimedOut(limit, _) => Some(limit),
            Kind::TooLate(_) => Some(TimeLimit::Deadline),
            _ => None,
        }
    }

    /// Returns whether the attempt that ended with this error was not sent.
    ///
    /// A retry without a body does not begin, so the last attempt of its call was sent.
    pub(crate) fn is_unsent(&self) -> bool {
        let is_after_sent = matches!(
            self.kind,
            Kind::TimedOut(..) | Kind::Body { is_retry: true, .. }
        );
        !is_after_sent
    }

    fn refusal(&self) -> Option<&Refusal> {
        match &self.kind {
            Kind::Throttled(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl fmt::Debug for SteadyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteadyError")
            .field("kind", &self.kind)
            .field("host", &self.host)
            .field("attempts", &self.attempts)
            .field("elapsed", &self.elapsed)
            .finish()
    }
}

impl fmt::Display for SteadyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            attempts,
            elapsed,
            ..
        } = self;
        match &self.kind {
            Kind::TimedOut(limit, after) => {
                let within = match limit {
                    TimeLimit::Attempt => "within",
                    TimeLimit::Deadline => "before the deadline of",
                };
                let (after, elapsed) = (rounded(*after), rounded(*elapsed));
                write!(f, "no response from {host} {within} {after} (")?;
                if *attempts > 0 {
                    write!(f, "attempt {attempts}, ")?;
                }
                write!(f, "{elapsed} in all)")
            }
            // Without its length, which is 0 if the deadline of an enclosing scope was over before.
            Kind::TooLate(_) if *attempts > 0 => {
                let elapsed = rounded(*elapsed);
                write!(
                    f,
                    "not sent again to {host}: the deadline is over (after attempt {attempts}, {elapsed} in all)"
                )
            }
            Kind::TooLate(_) => {
                let elapsed = rounded(*elapsed);
                write!(
                    f,
                    "not sent to {host}: the deadline is over ({elapsed} in all)"
                )
            }
            Kind::Throttled(refusal) => {
                let to = if refusal.shows_key {
                    &refusal.key
                } else {
                    host
                };
                let why = match refusal.reason {
                    RefusalReason::QueueFull => "the queue is full",
                    RefusalReason::WaitTooLong => "the wait would be too long",
                    RefusalReason::DeadlineTooClose => "the deadline is too close",
                };
                let (depth, wait) = (refusal.depth, rounded(refusal.retry_after));
                write!(
                    f,
                    "not sent to {to}: {why} ({depth} waiting, try again in {wait})"
                )
            }
            // With the text of its source, because many programs print the outermost error only.
            Kind::Invalid(error) => write!(f, "not sent to {host}: {error}"),
            Kind::Body { error, is_retry } if *is_retry => {
                let elapsed = rounded(*elapsed);
                write!(
                    f,
                    "not sent again to {host}: {error} (after attempt {attempts}, {elapsed} in all)"
                )
            }
            Kind::Body { error, .. } => write!(f, "not sent to {host}: {error}"),
        }
    }
}

// No `source`: the text above has the whole cause, and a chain that is printed would repeat it.
impl StdError for SteadyError {}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn url() -> Url {
        Url::parse("https://user:pass@api.example.com/orders").unwrap()
    }

    fn refused(shows_key: bool) -> SteadyError {
        let refusal = Refusal {
            reason: RefusalReason::QueueFull,
            key: "tenant-secret".to_owned(),
            shows_key,
            depth: 120,
            retry_after: Duration::from_millis(1500),
        };
        SteadyError::throttled(refusal, &url(), Duration::ZERO)
    }

    #[test]
    fn the_text_names_host_attempts_and_time() {
        let mut error = SteadyError::timed_out(TimeLimit::Attempt, 10 * SEC);
        error.complete("api.example.com", 3, Duration::from_millis(24_130));
        assert_eq!(
            error.to_string(),
            "no response from api.example.com within 10 s (attempt 3, 24.1 s in all)"
        );
        let mut error = SteadyError::timed_out(TimeLimit::Deadline, 3 * SEC);
        error.complete("api.example.com", 0, 3 * SEC);
        assert_eq!(
            error.to_string(),
            "no response from api.example.com before the deadline of 3 s (3 s in all)"
        );
    }

    #[test]
    fn a_key_of_a_users_function_is_not_shown() {
        let hidden = refused(false);
        assert_eq!(
            hidden.to_string(),
            "not sent to api.example.com: the queue is full (120 waiting, try again in 1.5 s)"
        );
        assert!(!format!("{hidden:?}").contains("secret"), "{hidden:?}");
        assert_eq!(hidden.key(), Some("tenant-secret"));
        let shown = refused(true);
        assert!(shown.to_string().starts_with("not sent to tenant-secret: "));
    }

    #[test]
    fn the_error_of_a_nested_call_keeps_its_facts() {
        let mut error = SteadyError::timed_out(TimeLimit::Attempt, SEC);
        error.complete("auth.example.com", 1, SEC);
        error.complete("api.example.com", 4, 9 * SEC);
        assert_eq!((error.host(), error.attempts()), ("auth.example.com", 1));
        // Another retry of the same chain knows more.
        error.complete("auth.example.com", 2, 2 * SEC);
        assert_eq!((error.attempts(), error.elapsed()), (2, 2 * SEC));
    }

    #[test]
    fn the_error_is_found_however_it_is_wrapped() {
        let error = || Error::middleware(refused(true));
        assert!(SteadyError::of(&error()).is_some());
        let in_another_client = Error::middleware(error());
        assert!(SteadyError::of(&in_another_client).is_some());
        let with_context = anyhow::Error::new(refused(true)).context("a token");
        assert!(SteadyError::of(&Error::Middleware(with_context)).is_some());
        let other = Error::Middleware(anyhow::anyhow!("a token"));
        assert!(SteadyError::of(&other).is_none());
    }
}
