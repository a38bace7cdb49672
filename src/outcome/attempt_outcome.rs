//! How an attempt ended: with a status, or with a failure of some kind.

use std::fmt;

use http::StatusCode;

/// Says how an attempt ended: with a response or with a failure.
///
/// ```
/// use reqwest_steady::observe::{AttemptOutcome, FailureKind};
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
    /// The server sent a response with this status.
    Status(StatusCode),
    /// There was no usable response.
    Failure(FailureKind),
}

impl fmt::Display for AttemptOutcome {
    /// Shows the status code or the label of the failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => f.write_str(status.as_str()),
            Self::Failure(kind) => f.write_str(kind.as_str()),
        }
    }
}

labelled! {
    /// Says why an attempt ended without a response.
    ///
    /// The first six kinds may be temporary, so idempotent requests are retried. The others would fail again.
    pub enum FailureKind {
        /// The host name could not be resolved.
        Dns = "dns",
        /// The connection failed: refused, unreachable, closed by the server during the TLS handshake, or a forward
        /// proxy opened no tunnel.
        ///
        /// reqwest reports the proxy's status only for 407, so a 403 is retried like a 503.
        Connect = "connect",
        /// No response arrived in time.
        Timeout = "timeout",
        /// The connection broke, the peer reset the stream, or the peer violated HTTP/2.
        Reset = "reset",
        /// The connection was closed before the response was complete.
        Incomplete = "incomplete",
        /// The server provably did not process the request.
        ///
        /// It refused the stream or sent GOAWAY (RFC 9113 §8.7). Or the connection was closed or replaced before the
        /// request was sent.
        NotProcessed = "not_processed",
        /// The handshake failed: invalid certificate, TLS alert, or a proxy that wants other credentials (407).
        ///
        /// Also any other failure to connect that is not known to be temporary.
        Handshake = "handshake",
        /// The request is invalid: bad URL, unsupported scheme, invalid idempotency key or setting.
        Builder = "builder",
        /// There were too many redirects, or a redirect that may not be followed.
        Redirect = "redirect",
        /// The body of the response could not be decoded.
        Decode = "decode",
        /// Another middleware refused the request.
        Middleware = "middleware",
        /// A [`ThrottleMiddleware`](crate::ThrottleMiddleware) refused the attempt: see
        /// [`SteadyError::is_throttled`](crate::SteadyError::is_throttled).
        Throttled = "throttled",
        /// Anything else, for example an error in the body stream of the request.
        Other = "other",
    }
}

impl FailureKind {
    /// Returns whether this kind means that the server did not process the request.
    ///
    /// True for `Dns`, `Connect`, `Handshake`, `NotProcessed`, `Builder` and `Throttled`. A `Timeout` may also happen
    /// while connecting, but its kind alone does not say so.
    ///
    /// This holds for the request that failed. If the client followed a redirect, that is the request after it. If a
    /// middleware sends additional requests, it may be one of those. [`Effect`](crate::Effect) takes both into account.
    ///
    /// ```
    /// use reqwest_steady::observe::FailureKind;
    ///
    /// assert!(FailureKind::Dns.is_unsent());
    /// assert!(!FailureKind::Reset.is_unsent());
    /// ```
    pub fn is_unsent(self) -> bool {
        matches!(
            self,
            Self::Dns
                | Self::Connect
                | Self::Handshake
                | Self::NotProcessed
                | Self::Builder
                | Self::Throttled
        )
    }
}
