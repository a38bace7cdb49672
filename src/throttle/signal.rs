//! Signals: what a response, or the error in its place, tells the throttle about the server.

use std::time::Duration;

use http::StatusCode;
use reqwest::Response;
use reqwest_middleware::{Error, Result};

use crate::clock;
use crate::decide::{Failure, StatusClass, default_class};
use crate::outcome::FailureKind;
use crate::schedule::{pause_hint, quota_left, server_hint};

/// What a response, or an error in its place, says about the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signal {
    pub(crate) kind: SignalKind,
    /// How long the server asks to pause.
    pub(crate) hint: Option<Duration>,
    pub(crate) quota: Option<Quota>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalKind {
    /// The server did its part.
    Accepted,
    /// The server says that there are too many requests.
    Refused,
    /// The server is overloaded, down, or refuses for its rate: 503.
    Unavailable,
    /// The server failed, or no response came.
    Failed,
    /// The server took too long.
    Late,
    /// The error says nothing about the server.
    Unknown,
}

/// How many requests are left until the server renews its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) left: u64,
    pub(crate) reset: Duration,
}

/// Reads the signal of one request.
pub(super) fn read(result: &Result<Response>) -> Signal {
    match result {
        Ok(response) => of_response(response),
        Err(error) => Signal {
            kind: of_error(error),
            hint: None,
            quota: None,
        },
    }
}

fn of_response(response: &Response) -> Signal {
    let (status, headers) = (response.status(), response.headers());
    let quota = quota_left(headers).map(|(left, reset)| Quota { left, reset });
    let hint = || pause_hint(status, headers, clock::wall());
    let (kind, hint) = match status {
        StatusCode::TOO_MANY_REQUESTS => (SignalKind::Refused, hint()),
        StatusCode::SERVICE_UNAVAILABLE => (SignalKind::Unavailable, hint()),
        StatusCode::GATEWAY_TIMEOUT => (SignalKind::Late, hint()),
        // Some servers refuse with 403 and a hint.
        StatusCode::FORBIDDEN if server_hint(status, headers, clock::wall()).is_some() => {
            (SignalKind::Refused, hint())
        }
        // A plain 4xx is a server that works.
        status if status.is_server_error() && default_class(status) != StatusClass::Never => {
            (SignalKind::Failed, hint())
        }
        _ => (SignalKind::Accepted, None),
    };
    Signal { kind, hint, quota }
}

fn of_error(error: &Error) -> SignalKind {
    match Failure::of(error).kind {
        FailureKind::Dns
        | FailureKind::Connect
        | FailureKind::Reset
        | FailureKind::Incomplete
        | FailureKind::NotProcessed
        | FailureKind::Handshake => SignalKind::Failed,
        FailureKind::Timeout => SignalKind::Late,
        // The request itself is at fault, or another middleware.
        FailureKind::Builder
        | FailureKind::Redirect
        | FailureKind::Decode
        | FailureKind::Middleware
        | FailureKind::Throttled
        | FailureKind::Other => SignalKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn signal(status: u16, headers: &[(&str, &str)]) -> Signal {
        let mut response = http::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        read(&Ok(response.body("").unwrap().into()))
    }

    #[test]
    fn a_status_says_whether_the_server_is_well() {
        for (status, kind) in [
            (200, SignalKind::Accepted),
            (304, SignalKind::Accepted),
            (404, SignalKind::Accepted),
            (408, SignalKind::Accepted),
            (429, SignalKind::Refused),
            (500, SignalKind::Failed),
            (501, SignalKind::Accepted),
            (503, SignalKind::Unavailable),
            (504, SignalKind::Late),
            (529, SignalKind::Failed),
        ] {
            assert_eq!(signal(status, &[]).kind, kind, "{status}");
        }
    }

    #[test]
    fn a_403_with_a_hint_is_a_refusal() {
        assert_eq!(signal(403, &[]).kind, SignalKind::Accepted);
        let with_hint = signal(403, &[("retry-after", "60")]);
        assert_eq!(with_hint.kind, SignalKind::Refused);
        assert_eq!(with_hint.hint, Some(Duration::from_secs(60)));
        let spent = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "60")];
        assert_eq!(signal(403, &spent).kind, SignalKind::Refused);
        let soon = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1")];
        assert_eq!(signal(403, &soon).kind, SignalKind::Refused);
        assert_eq!(
            signal(403, &soon).hint,
            None,
            "a second may mean any moment"
        );
        let left = [("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "60")];
        assert_eq!(signal(403, &left).kind, SignalKind::Accepted);
    }

    #[test]
    fn a_window_with_quota_left_is_counted_and_asks_for_no_pause() {
        let reset = Duration::from_secs(900);
        for status in [200, 429, 500, 503, 504] {
            let left = signal(status, &[("ratelimit", "\"100-in-15min\";r=98;t=900")]);
            assert_eq!(left.hint, None, "{status}");
            assert_eq!(left.quota, Some(Quota { left: 98, reset }), "{status}");
        }
        for status in [429, 500, 503, 504] {
            let spent = signal(status, &[("ratelimit", "\"100-in-15min\";r=0;t=900")]);
            assert_eq!(spent.hint, Some(reset), "{status}");
        }
    }

    #[test]
    fn a_hint_counts_after_a_refusal_and_a_quota_always() {
        let headers = [
            ("retry-after", "5"),
            ("ratelimit", "\"day\";r=900;t=86400, \"minute\";r=7;t=30"),
        ];
        let quota = Some(Quota {
            left: 7,
            reset: Duration::from_secs(30),
        });
        for (status, hint) in [(200, None), (404, None), (503, Some(5)), (429, Some(5))] {
            let signal = signal(status, &headers);
            assert_eq!(signal.hint, hint.map(Duration::from_secs), "{status}");
            assert_eq!(signal.quota, quota, "{status}");
        }
    }

    #[test]
    fn a_failure_counts_if_it_is_the_servers() {
        let kind = |error: Error| read(&Err(error)).kind;
        let io = |kind| Error::middleware(io::Error::from(kind));
        assert_eq!(
            kind(io(io::ErrorKind::ConnectionRefused)),
            SignalKind::Failed
        );
        assert_eq!(kind(io(io::ErrorKind::ConnectionReset)), SignalKind::Failed);
        assert_eq!(kind(io(io::ErrorKind::TimedOut)), SignalKind::Late);
        let other = Error::Middleware(anyhow::anyhow!("no token"));
        assert_eq!(kind(other), SignalKind::Unknown);
    }
}
