//! Rules that inspect the beginning of a response body: which responses, how much of it, and the function's verdict.
//!
//! Everything here is pure. `Call::inspect_body` reads the body.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};

use super::{AttemptView, StatusClass};
use crate::config::{ConfigError, longer_than_zero};

const DEFAULT_LIMIT: usize = 16 * 1024;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Selects the responses whose body [`inspect_body`](crate::RetryMiddlewareBuilder::inspect_body) inspects.
///
/// It never selects responses without a body: those to a `HEAD`, 1xx, 204 and 304.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::Inspect;
///
/// // JSON in 4xx and 5xx responses, at most 4 KiB, for at most 5 s.
/// let errors = Inspect::errors()
///     .limit(4 * 1024)
///     .content_type("application/json")
///     .content_type("application/problem+json")
///     .timeout(Duration::from_secs(5));
/// # let _ = errors;
/// ```
#[derive(Clone)]
#[must_use = "it selects nothing until it is given to `inspect_body`"]
pub struct Inspect {
    statuses: Statuses,
    limit: usize,
    timeout: Duration,
    /// Empty for any type.
    content_types: Vec<String>,
    /// Only responses to methods that are not safe: those that can have an effect.
    with_effect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statuses {
    Errors,
    All,
    Only(&'static [u16]),
}

impl Inspect {
    fn new(statuses: Statuses) -> Self {
        Self {
            statuses,
            limit: DEFAULT_LIMIT,
            timeout: DEFAULT_TIMEOUT,
            content_types: Vec::new(),
            with_effect: false,
        }
    }

    /// Selects 4xx and 5xx responses.
    pub fn errors() -> Self {
        Self::new(Statuses::Errors)
    }

    /// Selects all responses, also successes.
    ///
    /// Use it for servers that report errors with a 200. Each call then waits for the beginning of its body.
    pub fn all() -> Self {
        Self::new(Statuses::All)
    }

    /// Selects responses with these statuses.
    pub(crate) fn only(statuses: &'static [u16]) -> Self {
        Self::new(Statuses::Only(statuses))
    }

    /// Selects no responses to safe methods, such as `GET`.
    pub(crate) fn with_effect(mut self) -> Self {
        self.with_effect = true;
        self
    }

    /// Limits how many bytes of a body are read.
    ///
    /// The rest of a longer body stays a stream. With 0, nothing is read, and the function sees no bytes.
    ///
    /// Default: 16 KiB.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Selects only responses with this `Content-Type`.
    ///
    /// Call it several times to select several types. Parameters such as `charset` are ignored, and so is case. A
    /// response without the header is not selected.
    ///
    /// Default: any response.
    ///
    /// # Errors
    ///
    /// [`build`](crate::RetryMiddlewareBuilder::build) refuses text that is not a media type without parameters.
    ///
    /// ```
    /// use reqwest_steady::{Inspect, RetryMiddleware};
    ///
    /// let refused = RetryMiddleware::builder()
    ///     .inspect_body(Inspect::errors().content_type("json"), |_, _| None)
    ///     .build();
    /// assert_eq!(
    ///     refused.unwrap_err().to_string(),
    ///     "inspect_body content_type (\"json\") should be a media type without parameters, \
    ///      such as application/json",
    /// );
    /// ```
    pub fn content_type(mut self, media_type: impl Into<String>) -> Self {
        self.content_types.push(media_type.into());
        self
    }

    /// Limits how long the call waits for the bytes.
    ///
    /// After that, the function sees what has arrived, and the caller reads the rest as usual. `attempt_timeout` and
    /// `deadline` also hold.
    ///
    /// Default: 30 s.
    ///
    /// # Errors
    ///
    /// [`build`](crate::RetryMiddlewareBuilder::build) refuses zero.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        longer_than_zero("inspect_body timeout", Some(self.timeout))?;
        let refused = (self.content_types.iter()).find(|media_type| !is_media_type(media_type));
        match refused {
            None => Ok(()),
            Some(refused) => Err(ConfigError::new(
                "inspect_body content_type",
                format_args!("{refused:?}"),
                "should be a media type without parameters, such as application/json",
            )),
        }
    }

    /// Returns whether this selects a response that has a body.
    fn matches(&self, status: StatusCode, headers: &HeaderMap, is_safe: bool) -> bool {
        let is_status = match self.statuses {
            Statuses::Errors => status.is_client_error() || status.is_server_error(),
            Statuses::All => true,
            Statuses::Only(statuses) => statuses.contains(&status.as_u16()),
        };
        let is_type = |own: &String| media_type(headers).is_some_and(|it| is_same(it, own));
        is_status
            && !(self.with_effect && is_safe)
            && (self.content_types.is_empty() || self.content_types.iter().any(is_type))
    }

    /// Returns whether this selects responses below 400.
    pub(crate) fn selects_successes(&self) -> bool {
        match self.statuses {
            Statuses::Errors => false,
            Statuses::All => true,
            Statuses::Only(statuses) => statuses.iter().any(|status| *status < 400),
        }
    }

    pub(crate) fn max_bytes(&self) -> usize {
        self.limit
    }

    pub(crate) fn max_time(&self) -> Duration {
        self.timeout
    }
}

/// Returns the media type of a response, without parameters.
fn media_type(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(CONTENT_TYPE)?.as_bytes();
    let end = value.iter().position(|byte| *byte == b';');
    Some(value[..end.unwrap_or(value.len())].trim_ascii())
}

fn is_same(media_type: &[u8], other: &str) -> bool {
    media_type.eq_ignore_ascii_case(other.as_bytes())
}

/// Returns whether a response is a stream of events. Of such a body, only the first event is inspected.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|it| is_same(it, "text/event-stream"))
}

/// Whether this is a type and a subtype (RFC 9110 §8.3.1), both of them tokens (§5.6.2).
fn is_media_type(text: &str) -> bool {
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_token = |text: &str| !text.is_empty() && text.bytes().all(is_token_byte);
    (text.split_once('/')).is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

/// Shows the beginning of a response body to a function of
/// [`inspect_body`](crate::RetryMiddlewareBuilder::inspect_body).
///
/// `Debug` shows the length, never the content.
///
/// ```
/// use reqwest_steady::{AttemptView, BodyStart, BodyVerdict};
///
/// // OpenAI sends a 429 for a short limit and for an unpaid bill.
/// fn by_code(_: &AttemptView<'_>, start: &BodyStart<'_>) -> Option<BodyVerdict> {
///     start.text().contains("insufficient_quota").then(BodyVerdict::never)
/// }
/// ```
#[derive(Clone, Copy)]
pub struct BodyStart<'a> {
    /// At most the limit of the rule.
    pub(crate) bytes: &'a [u8],
    pub(crate) is_complete: bool,
}

impl<'a> BodyStart<'a> {
    /// Returns the bytes that were read, at most the [`limit`](Inspect::limit).
    ///
    /// They are decoded if the client decodes the `Content-Encoding`.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes as text.
    ///
    /// Invalid UTF-8 becomes `U+FFFD`, and so does a character that the limit cuts in two.
    pub fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes)
    }

    /// Returns whether this is the whole body.
    ///
    /// It is `false` if the limit or the timeout came first, or if the body broke off. It is also `false` for a body of
    /// exactly the limit whose length is not in the headers.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl fmt::Debug for BodyStart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyStart")
            .field("length", &self.bytes.len())
            .field("is_complete", &self.is_complete)
            .finish()
    }
}

/// Says whether the body of a response allows a retry.
///
/// A function of [`inspect_body`](crate::RetryMiddlewareBuilder::inspect_body) returns it. It replaces the class of the
/// response. All later checks still apply: idempotency, number of retries, time and budget. The
/// [guide](crate::guide::decide) shows examples.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::BodyVerdict;
///
/// let busy = BodyVerdict::retry().after(Duration::from_secs(30));
/// let unclear = BodyVerdict::conditional();
/// let unpaid = BodyVerdict::never();
/// # let _ = (busy, unclear, unpaid);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until the function returns it"]
pub struct BodyVerdict {
    pub(crate) class: StatusClass,
    pub(crate) after: Option<Duration>,
}

impl BodyVerdict {
    fn new(class: StatusClass) -> Self {
        Self { class, after: None }
    }

    /// The server did not accept the request: like [`StatusClass::Retry`].
    ///
    /// `x-should-retry: false` still stops the call.
    pub fn retry() -> Self {
        Self::new(StatusClass::Retry)
    }

    /// The request may have taken effect: like [`StatusClass::Conditional`].
    ///
    /// Choose this if you are not sure. The [`Effect`](crate::Effect) of the attempt is then `Unknown`, whatever the
    /// status says. `x-should-retry: false` still stops the call.
    pub fn conditional() -> Self {
        Self::new(StatusClass::Conditional)
    }

    /// The response is final, even if its headers ask for a retry.
    ///
    /// The call stops with [`StopReason::NotRetryable`](crate::StopReason::NotRetryable), also after a 2xx.
    pub fn never() -> Self {
        Self::new(StatusClass::Never)
    }

    /// Adds the wait that the server asks for in the body.
    ///
    /// It counts like `Retry-After`. If the response has both, the longer one counts. If that is longer than
    /// [`max_server_delay`](crate::RetryMiddlewareBuilder::max_server_delay), the call stops.
    pub fn after(mut self, wait: Duration) -> Self {
        self.after = Some(wait);
        self
    }

    /// Returns whether no retry may follow, whatever the headers say.
    pub(crate) fn is_never(self) -> bool {
        self.class == StatusClass::Never
    }
}

type Ask = dyn Fn(&AttemptView<'_>, &BodyStart<'_>) -> Option<BodyVerdict> + Send + Sync;

/// Which bodies to inspect, and the function that returns the verdict.
#[derive(Clone)]
pub(crate) struct InspectRule {
    pub(crate) what: Inspect,
    pub(crate) ask: Arc<Ask>,
}

/// Shows what its methods set.
impl fmt::Debug for Inspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspect")
            .field("statuses", &self.statuses)
            .field("limit", &self.limit)
            .field("timeout", &self.timeout)
            .field("content_types", &self.content_types)
            .finish()
    }
}

/// Shows the settings and not the function.
impl fmt::Debug for InspectRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

/// Returns the first rule that selects a response. The request must not be a `HEAD`.
pub(crate) fn matching_rule<'a>(
    rules: &'a [InspectRule],
    status: StatusCode,
    headers: &HeaderMap,
    is_safe: bool,
) -> Option<&'a InspectRule> {
    let has_body = !status.is_informational()
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED;
    let matches = |rule: &&InspectRule| rule.what.matches(status, headers, is_safe);
    rules.iter().filter(|_| has_body).find(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_has_two_tokens_and_nothing_else() {
        for valid in [
            "application/json",
            "text/event-stream",
            "Application/Problem+JSON",
        ] {
            assert!(is_media_type(valid), "{valid}");
        }
        for invalid in [
            "",
            "json",
            "/",
            "application/",
            "/json",
            "application/json; charset=utf-8",
            " application/json",
            "application/json ",
            "application /json",
            "a/b/c",
            "text/*, a/b",
        ] {
            assert!(!is_media_type(invalid), "{invalid}");
        }
    }

    #[test]
    fn the_content_type_counts_without_parameters_and_case() {
        let rule = Inspect::errors().content_type("application/json");
        let rule = rule.content_type("text/plain");
        let matches = |value: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(value));
            }
            rule.matches(StatusCode::TOO_MANY_REQUESTS, &headers, true)
        };
        assert!(matches(Some("application/json")));
        assert!(matches(Some("Application/JSON ;charset=utf-8")));
        assert!(matches(Some("text/plain;q=1")));
        assert!(!matches(Some("application/jsonl")));
        assert!(!matches(Some("")));
        assert!(!matches(None));
    }

    #[test]
    fn statuses_and_methods_can_be_left_out() {
        let rule = Inspect::only(&[200, 201]).with_effect();
        let matches = |status, is_safe| rule.matches(status, &HeaderMap::new(), is_safe);
        assert!(matches(StatusCode::OK, false));
        assert!(matches(StatusCode::CREATED, false));
        assert!(!matches(StatusCode::OK, true));
        assert!(!matches(StatusCode::ACCEPTED, false));
        assert!(rule.selects_successes() && !Inspect::only(&[400, 429]).selects_successes());
        assert!(Inspect::only(&[200]).matches(StatusCode::OK, &HeaderMap::new(), true));
    }

    #[test]
    fn a_body_start_does_not_show_its_content() {
        let start = BodyStart {
            bytes: b"secret",
            is_complete: true,
        };
        let shown = format!("{start:?}");
        assert_eq!(shown, "BodyStart { length: 6, is_complete: true }");
    }
}
