//! How an attempt ended: with a status, or with a failure of some kind.

use std::fmt;

use http::StatusCode;

/// How an attempt ended: with an answer or without.
///
/// ```
/// use reqwest_steady::{AttemptOutcome, FailureKind};
///
/// fn is_our_network(outcome: AttemptOutcome) -> bool {
///     match outcome {
///         AttemptOutcome::Status(_) => false,
///         AttemptOutcome::Failure(kind) => matches!(kind, FailureKind::Dns | FailureKind::Connect),
///     }
/// }
/// assert!(is_our_network(AttemptOutcome::Failure(FailureKind::Dns)));
/// ```
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

/// Why an attempt ended without an answer.
///
/// The first six may be over at the next try and are retried for repeatable requests; the others
/// would end the same way again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The host's name could not be resolved.
    Dns,
    /// No connection: refused, unreachable, ended by the server during the TLS handshake, or a forward proxy opened no
    /// tunnel. reqwest reports the proxy's status only for 407, so a 403 is retried like a 503.
    Connect,
    /// No answer in time.
    Timeout,
    /// The connection broke, or the peer reset the stream, or the connection had to be ended because the peer broke
    /// the rules of HTTP/2.
    Reset,
    /// The connection was closed before the answer was complete.
    Incomplete,
    /// Certainly not processed: the server refused the stream or was going away (RFC 9113 §8.7),
    /// or the connection was closed or replaced before the request was sent.
    NotProcessed,
    /// No agreement with the other side: invalid certificate, TLS alert, or a proxy that wants other credentials
    /// (407). Also any other failure to connect that is not known to be temporary.
    Handshake,
    /// The request cannot be sent as it is: bad URL, unsupported scheme.
    Builder,
    /// Too many redirects, or a redirect that may not be followed.
    Redirect,
    /// The body of the answer could not be decoded.
    Decode,
    /// Another middleware refused the request.
    Middleware,
    /// A [`ThrottleMiddleware`](crate::ThrottleMiddleware) did not let it through: see
    /// [`Refusal`](crate::Refusal).
    Throttled,
    /// Anything else, an error of the request's own body stream among them.
    Other,
}

impl FailureKind {
    /// A stable name in snake_case, for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Incomplete => "incomplete",
            Self::NotProcessed => "not_processed",
            Self::Handshake => "handshake",
            Self::Builder => "builder",
            Self::Redirect => "redirect",
            Self::Decode => "decode",
            Self::Middleware => "middleware",
            Self::Throttled => "throttled",
            Self::Other => "other",
        }
    }

    #[cfg(feature = "dead-letter-file")]
    pub(crate) const ALL: [Self; 13] = [
        Self::Dns,
        Self::Connect,
        Self::Timeout,
        Self::Reset,
        Self::Incomplete,
        Self::NotProcessed,
        Self::Handshake,
        Self::Builder,
        Self::Redirect,
        Self::Decode,
        Self::Middleware,
        Self::Throttled,
        Self::Other,
    ];

    /// The kind with this label, if this version knows it.
    #[cfg(feature = "dead-letter-file")]
    pub(crate) fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == label)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
