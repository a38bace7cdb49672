//! Stores calls that gave up although they might succeed later.
//!
//! A failed call should not be lost. It becomes a [`DeadLetter`] without [`Secrets`], and goes to a [`DeadLetterSink`]:
//! a [channel](dead_letter_channel), a file (`JsonLinesSink`, feature `dead-letter-file`), or your own. Later,
//! [`DeadLetter::replay`] sends it again with the same idempotency key and fresh [`Credentials`].
//!
//! ```
//! use reqwest_steady::dead_letter::dead_letter_channel;
//! use reqwest_steady::{RetryMiddleware, Steady};
//!
//! let (sink, letters) = dead_letter_channel(1000); // a task receives `letters` and stores them
//! let steady = Steady::builder()
//!     .retry(RetryMiddleware::builder().dead_letter_sink(sink))
//!     .build()?;
//! # let _ = letters;
//! # Ok::<(), reqwest_steady::ConfigError>(())
//! ```

mod channel;
mod credentials;
mod draft;
#[cfg(feature = "dead-letter-file")]
mod json_lines;
mod replay;
mod secrets;
mod sink;

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use reqwest::Url;

use crate::host::host_of;
use crate::outcome::{AttemptReport, StopReason};

pub use crate::outcome::DeadLetterOutcome;
pub use channel::{ChannelSink, DeadLetterReceiver, dead_letter_channel};
pub use credentials::Credentials;
pub(crate) use draft::LetterDraft;
#[cfg(feature = "dead-letter-file")]
pub use json_lines::{JsonLinesReader, JsonLinesSink, UnreadableLetterError};
pub use replay::{Replay, ReplayError};
pub use secrets::{Redacted, Secrets};
pub(crate) use sink::DeadLetters;
pub use sink::{DeadLetterSink, Delivery, SinkError};

/// Holds a call that gave up although it might succeed later.
///
/// It has all that is needed to [send the call again](DeadLetter::replay), except secrets. The request is the one that
/// the [`RetryMiddleware`](crate::RetryMiddleware) received. So it lacks what the client or an inner middleware adds to
/// each attempt, and it has no timeout and no HTTP version.
///
/// Credentials are removed (see [`Secrets`]). The rest can still be private, so `Debug` and `Display`
/// do not show the values.
#[derive(Clone, PartialEq, Eq)]
pub struct DeadLetter {
    time: SystemTime,
    method: Method,
    /// Redacted, without user info and fragment.
    url: Url,
    /// Never contains [`Redacted::Header`].
    url_redacted: Vec<Redacted>,
    /// Without the key, which is in `key`. A redacted header has no value.
    headers: Vec<(HeaderName, Option<HeaderValue>)>,
    body: LetterBody,
    key: Option<(HeaderName, HeaderValue)>,
    repeatable: bool,
    attempts: Vec<AttemptReport>,
    /// The label of a [`StopReason`], or of a reason that only a later version knows.
    reason: String,
    not_before: SystemTime,
}

impl DeadLetter {
    /// Returns the time when the call gave up.
    pub fn time(&self) -> SystemTime {
        self.time
    }

    /// Returns the method of the request.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the URL with `REDACTED` in place of secret parameters, and without user info and fragment.
    ///
    /// Do not log it, because the other parameters can be private.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the headers without the idempotency key. A secret header has no value.
    pub fn headers(&self) -> impl Iterator<Item = (&HeaderName, Option<&HeaderValue>)> {
        (self.headers.iter()).map(|(name, value)| (name, value.as_ref()))
    }

    /// Returns the body, or the reason why there is none.
    pub fn body(&self) -> &LetterBody {
        &self.body
    }

    /// Returns the idempotency key as sent in its header, including quotes.
    pub fn key(&self) -> Option<&str> {
        let (_, value) = self.key.as_ref()?;
        value.to_str().ok()
    }

    /// Returns the header of the idempotency key, if there is a key.
    pub fn key_header(&self) -> Option<&HeaderName> {
        self.key.as_ref().map(|(name, _)| name)
    }

    /// Returns whether it is safe to send the call again, even if an attempt had its effect.
    ///
    /// It is safe if the method is idempotent, if there is a key, or if the caller marked the call as idempotent. It
    /// is also safe if a throttle refused every attempt.
    pub fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// Returns the attempts in order.
    ///
    /// A letter from a later version can have unknown kinds of failure. They become
    /// [`Other`](crate::observe::FailureKind::Other).
    pub fn attempts(&self) -> &[AttemptReport] {
        &self.attempts
    }

    /// Returns the reason why the call gave up.
    ///
    /// Returns `None` if only a later version knows the reason. Its [label](DeadLetter::stop_reason_label) is still there.
    pub fn stop_reason(&self) -> Option<StopReason> {
        StopReason::from_label(&self.reason)
    }

    /// Returns the label of the reason why the call gave up, as in [`StopReason::as_str`].
    pub fn stop_reason_label(&self) -> &str {
        &self.reason
    }

    /// Returns the earliest time for a replay.
    ///
    /// It comes from the server's hint, or from the throttle that refused the call. Without these it is the time when
    /// the call gave up.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Returns the redacted places. A replay needs [`Credentials`] for each of them.
    pub fn redacted(&self) -> Vec<Redacted> {
        let mut places = self.url_redacted.clone();
        for (name, value) in &self.headers {
            let place = Redacted::Header(name.clone());
            if value.is_none() && !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    fn host(&self) -> &str {
        host_of(&self.url)
    }
}

/// Shows names and lengths, but no values of headers or parameters, no key and no body.
impl fmt::Debug for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = (self.headers.iter())
            .map(|(name, _)| name.as_str())
            .collect();
        f.debug_struct("DeadLetter")
            .field("time", &self.time)
            .field("method", &self.method)
            .field("host", &self.host())
            .field("path", &self.url.path())
            .field("redacted", &self.redacted())
            .field("headers", &names)
            .field("body", &self.body)
            .field("key_header", &self.key_header().map(HeaderName::as_str))
            .field("repeatable", &self.repeatable)
            .field("attempts", &self.attempts)
            .field("reason", &self.reason)
            .field("not_before", &self.not_before)
            .finish()
    }
}

/// Shows one line for a log: `POST api.example.com/orders, given up after 6 attempts: retries_exhausted`.
impl fmt::Display for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.attempts.len();
        write!(
            f,
            "{} {}{}, given up after {count} attempt{}: {}",
            self.method,
            self.host(),
            self.url.path(),
            if count == 1 { "" } else { "s" },
            self.reason,
        )
    }
}

/// Holds the body of a [`DeadLetter`], or the reason why there is none.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LetterBody {
    /// The request has no body.
    Empty,
    /// The whole body.
    Bytes(Bytes),
    /// The body is over the size limit and was left out. This is its length in bytes.
    TooLarge(u64),
    /// The body was a stream, which can be read only once, a form with a stream in it, or a file that has changed.
    NotReplayable,
}

/// Shows the length and not the content.
impl fmt::Debug for LetterBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::TooLarge(length) => write!(f, "TooLarge({length})"),
            Self::NotReplayable => f.write_str("NotReplayable"),
        }
    }
}
