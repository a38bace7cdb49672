//! What was given up although it might have worked later, so that it is not lost.

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

use crate::host::Host;
use crate::outcome::{AttemptReport, StopReason};

pub use channel::{ChannelSink, DeadLetterReceiver, dead_letter_channel};
pub use credentials::Credentials;
pub(crate) use draft::Draft;
#[cfg(all(
    feature = "dead-letter-file",
    any(test, all(fuzzing, feature = "testing"))
))]
pub(crate) use json_lines::SameThreadSink;
#[cfg(feature = "dead-letter-file")]
pub use json_lines::{JsonLinesReader, JsonLinesSink, UnreadableLetter};
pub use replay::{Replay, ReplayError};
pub use secrets::{Redacted, Secrets};
pub(crate) use sink::DeadLetters;
pub use sink::{DeadLetterSink, Delivery, SinkError};

/// A call that was given up although it might have worked later: all that it takes to
/// [send it again](DeadLetter::replay), except what is secret.
///
/// It is the request as the [`RetryMiddleware`](crate::RetryMiddleware) got it, so without what the
/// client or a middleware inside adds to each attempt, and without a timeout or version of its own.
/// Credentials are left out (see [`Secrets`](crate::Secrets)), and what is left is as private as the
/// body: neither `Debug` nor `Display` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct DeadLetter {
    time: SystemTime,
    method: Method,
    url: Url,
    url_redacted: Vec<Redacted>,
    /// Without the key, which has a place of its own.
    headers: Vec<(HeaderName, Option<HeaderValue>)>,
    body: LetterBody,
    key: Option<(HeaderName, HeaderValue)>,
    repeatable: bool,
    attempts: Vec<AttemptReport>,
    /// A label, for a file may have been written by a later version, which knows more reasons.
    reason: String,
    not_before: SystemTime,
}

impl DeadLetter {
    /// When the call was given up.
    pub fn time(&self) -> SystemTime {
        self.time
    }

    /// The method of the request.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The URL, with `REDACTED` for the value of each secret parameter, and without user info and
    /// fragment. The other parameters are there: this is not for a log.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The headers, except the idempotency key's. A secret one has no value.
    pub fn headers(&self) -> impl Iterator<Item = (&HeaderName, Option<&HeaderValue>)> {
        (self.headers.iter()).map(|(name, value)| (name, value.as_ref()))
    }

    /// The body, or why it is not there.
    pub fn body(&self) -> &LetterBody {
        &self.body
    }

    /// The idempotency key as it stands in its header, with quotes if it was sent in quotes.
    pub fn key(&self) -> Option<&str> {
        let (_, value) = self.key.as_ref()?;
        value.to_str().ok()
    }

    /// The header that the idempotency key stands in, if there is a key.
    pub fn key_header(&self) -> Option<&HeaderName> {
        self.key.as_ref().map(|(name, _)| name)
    }

    /// Whether sending it again does no harm, even if one of its attempts had its effect: by its
    /// method, its key, or the word of the caller; or because a throttle let none of them through.
    pub fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// The attempts, first to last. In a letter that a later version wrote, kinds of failure that
    /// this one does not know are [`Other`](crate::FailureKind::Other).
    pub fn attempts(&self) -> &[AttemptReport] {
        &self.attempts
    }

    /// Why the call was given up. `None` for a reason that only a later version knows; its
    /// [label](DeadLetter::reason) is there all the same.
    pub fn stop(&self) -> Option<StopReason> {
        StopReason::from_label(&self.reason)
    }

    /// The label of the reason why the call was given up, as in [`StopReason::label`].
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Before this, another try is not what the server asked for, or would have been too early.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// The places that a secret was taken out of, and that [`Credentials`] have to fill again.
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

    /// The server, as it may be shown.
    fn host(&self) -> Host<'_> {
        Host(&self.url)
    }
}

/// Names and lengths, and no values: neither of headers nor of parameters, no key and no body.
impl fmt::Debug for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = (self.headers.iter())
            .map(|(name, _)| name.as_str())
            .collect();
        f.debug_struct("DeadLetter")
            .field("time", &self.time)
            .field("method", &self.method)
            .field("host", &self.host().to_string())
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

/// One line for a log: `POST api.example.com/orders, given up after 6 attempts: retries_exhausted`.
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

/// The body of a [`DeadLetter`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LetterBody {
    /// The request has none.
    Empty,
    /// All of it.
    Bytes(Bytes),
    /// It is longer than what is kept, and was left out whole: half a body is of no use to anybody.
    /// This is its length.
    TooLarge(u64),
    /// It was a stream, which is gone once it is sent.
    NotReplayable,
}

/// Shows how long it is, and not what is in it.
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
