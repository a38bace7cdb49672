//! Recognises why an attempt failed without a response, and whether the request was sent.
//!
//! It matches error types along the source chain, not texts:
//! `reqwest::Error` → hyper-util's client error → `hyper::Error` → `h2::Error` or `io::Error`.
//! `by_text.rs` recognises the errors whose types are private.

use std::error::Error as StdError;
use std::io;

use reqwest_middleware::Error;

use super::{StatusClass, by_text};
use crate::outcome::{FailureKind, SteadyError};

/// Returns the class of a failure: whether another attempt could end differently.
pub(crate) fn failure_class(kind: FailureKind) -> StatusClass {
    match kind {
        FailureKind::Dns
        | FailureKind::Connect
        | FailureKind::Timeout
        | FailureKind::Reset
        | FailureKind::Incomplete
        | FailureKind::NotProcessed => StatusClass::Conditional,
        FailureKind::Handshake
        | FailureKind::Builder
        | FailureKind::Redirect
        | FailureKind::Decode
        | FailureKind::Middleware
        | FailureKind::Throttled
        | FailureKind::Other => StatusClass::Never,
    }
}

/// Why an attempt failed, and whether the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The request provably had no effect: it never left, or the server did not process it.
    pub(crate) unsent: bool,
}

impl Failure {
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Reqwest(error) => Self::of_reqwest(error),
            Error::Middleware(error) => Self {
                kind: error
                    .chain()
                    .find_map(kind_within_middleware)
                    .unwrap_or(FailureKind::Middleware),
                // The middleware may have sent this request before it failed.
                unsent: false,
            },
        }
    }

    pub(super) fn of_reqwest(error: &reqwest::Error) -> Self {
        let connecting = error.is_connect();
        let kind = if error.is_builder() {
            FailureKind::Builder
        } else if error.is_redirect() {
            FailureKind::Redirect
        } else if error.is_timeout() {
            FailureKind::Timeout
        } else if error.is_dns() {
            FailureKind::Dns
        } else {
            match chain(error).find_map(kind_of_link) {
                // The peer closed the connection before the request was written.
                Some(FailureKind::Reset | FailureKind::Incomplete) if connecting => {
                    FailureKind::Connect
                }
                Some(kind) => kind,
                None if connecting && chain(error).any(by_text::is_transient) => {
                    FailureKind::Connect
                }
                None if connecting => FailureKind::Handshake,
                None if error.source().is_some_and(by_text::is_cancelled_for_http2) => {
                    FailureKind::NotProcessed
                }
                #[cfg(feature = "http2")]
                None if error.is_decode() && chain(error).any(has_wrong_length) => {
                    FailureKind::Incomplete
                }
                None if error.is_decode() => FailureKind::Decode,
                None => FailureKind::Other,
            }
        };
        Self {
            kind,
            unsent: connecting || kind == FailureKind::NotProcessed,
        }
    }
}

impl FailureKind {
    /// Names any error of a call: of reqwest, of this crate or of another middleware.
    ///
    /// Both a timeout of reqwest and one of this crate are a `Timeout`.
    ///
    /// ```
    /// use reqwest_steady::observe::FailureKind;
    ///
    /// fn took_too_long(error: &reqwest_middleware::Error) -> bool {
    ///     FailureKind::of(error) == FailureKind::Timeout
    /// }
    /// ```
    pub fn of(error: &Error) -> Self {
        Failure::of(error).kind
    }
}

/// Iterates over an error and its sources.
pub(crate) fn chain<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        match wrapped {
            // `io::Error::source` skips the error that it wraps.
            Some(wrapped) => Some(wrapped as &(dyn StdError + 'static)),
            None => error.source(),
        }
    })
}

/// Returns the kind of a transport failure inside the error of another middleware.
fn kind_within_middleware(link: &(dyn StdError + 'static)) -> Option<FailureKind> {
    if let Some(error) = link.downcast_ref::<Error>() {
        return Some(Failure::of(error).kind);
    }
    if let Some(error) = link.downcast_ref::<reqwest::Error>() {
        return Some(Failure::of_reqwest(error).kind);
    }
    if let Some(error) = link.downcast_ref::<SteadyError>() {
        return Some(kind_of_own(error));
    }
    if link.is::<tokio::time::error::Elapsed>() {
        return Some(FailureKind::Timeout);
    }
    kind_of_link(link)
}

fn kind_of_own(error: &SteadyError) -> FailureKind {
    if error.is_timeout() {
        FailureKind::Timeout
    } else if error.is_throttled() {
        FailureKind::Throttled
    } else {
        FailureKind::Builder
    }
}

/// Returns the kind that one link of the chain proves by its type. `None`: look at the next link.
fn kind_of_link(link: &(dyn StdError + 'static)) -> Option<FailureKind> {
    #[cfg(feature = "http2")]
    if let Some(error) = link.downcast_ref::<h2::Error>() {
        return kind_of_h2(error);
    }
    if let Some(error) = link.downcast_ref::<hyper::Error>() {
        return kind_of_hyper(error);
    }
    link.downcast_ref::<io::Error>().and_then(kind_of_io)
}

fn kind_of_hyper(error: &hyper::Error) -> Option<FailureKind> {
    if by_text::is_without_dispatcher(error) {
        Some(FailureKind::Reset)
    } else if error.is_user() {
        // The caller's body stream failed. Its sources are not network errors.
        Some(FailureKind::Other)
    } else if error.is_canceled() {
        Some(FailureKind::NotProcessed)
    } else if error.is_incomplete_message() || error.is_closed() {
        Some(FailureKind::Incomplete)
    } else {
        let cause = error.source()?.downcast_ref::<io::Error>();
        cause.and_then(kind_of_broken_connection)
    }
}

#[cfg(feature = "http2")]
fn kind_of_h2(error: &h2::Error) -> Option<FailureKind> {
    let by_peer = error.is_remote();
    match error.reason() {
        // RFC 9113 §8.7: neither was processed. A GOAWAY with an error code may also end streams that the
        // server processed.
        Some(h2::Reason::REFUSED_STREAM) if by_peer && error.is_reset() => {
            Some(FailureKind::NotProcessed)
        }
        Some(h2::Reason::NO_ERROR) if by_peer && error.is_go_away() => {
            Some(FailureKind::NotProcessed)
        }
        // The peer does not speak HTTP/2, and will not on the next attempt.
        Some(h2::Reason::FRAME_SIZE_ERROR) if !by_peer => None,
        // A protocol violation that `h2` finds on any stream ends the whole connection.
        Some(_) if by_peer || error.is_go_away() => Some(FailureKind::Reset),
        _ => error.get_io().and_then(kind_of_broken_connection),
    }
}

/// Whether `h2` reset the stream because the body does not have its announced length (RFC 9113 §8.1.1).
///
/// Over HTTP/1.1 the same response is incomplete.
#[cfg(feature = "http2")]
fn has_wrong_length(link: &(dyn StdError + 'static)) -> bool {
    link.downcast_ref::<h2::Error>().is_some_and(|error| {
        let by_h2 = error.is_library() && error.is_reset();
        by_h2 && error.reason() == Some(h2::Reason::PROTOCOL_ERROR)
    })
}

/// Returns the kind of an I/O error on an established connection.
///
/// A connection that ends inside an HTTP/2 frame gives `ErrorKind::Other` without an inner error.
fn kind_of_broken_connection(error: &io::Error) -> Option<FailureKind> {
    let inner = || error.get_ref()?.downcast_ref::<io::Error>();
    match error.kind() {
        io::ErrorKind::Other => match inner() {
            Some(inner) => kind_of_io(inner),
            None => Some(FailureKind::Reset),
        },
        _ => kind_of_io(error),
    }
}

fn kind_of_io(error: &io::Error) -> Option<FailureKind> {
    use io::ErrorKind;

    match error.kind() {
        ErrorKind::ConnectionRefused
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrInUse
        | ErrorKind::AddrNotAvailable => Some(FailureKind::Connect),
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::NotConnected
        | ErrorKind::BrokenPipe => Some(FailureKind::Reset),
        ErrorKind::UnexpectedEof => Some(FailureKind::Incomplete),
        ErrorKind::TimedOut => Some(FailureKind::Timeout),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_another_middleware_is_final() {
        let error = Error::Middleware(anyhow::anyhow!("no token"));
        let failure = Failure::of(&error);
        assert_eq!(failure.kind, FailureKind::Middleware);
        assert_eq!(failure_class(failure.kind), StatusClass::Never);
    }

    #[test]
    fn a_failure_inside_another_middlewares_error_proves_nothing() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = Error::Middleware(anyhow::Error::new(refused).context("fetching a token"));
        assert_eq!(
            Failure::of(&error),
            Failure {
                kind: FailureKind::Connect,
                unsent: false
            }
        );
    }

    #[test]
    fn an_error_inside_an_io_error_is_seen() {
        let inner = io::Error::from(io::ErrorKind::ConnectionReset);
        let outer = io::Error::other(inner);
        assert_eq!(
            chain(&outer).find_map(kind_of_link),
            Some(FailureKind::Reset)
        );
    }
}
