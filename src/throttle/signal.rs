//! What an answer, or the lack of one, tells a throttle.

use http::StatusCode;
use reqwest::Response;
use reqwest_middleware::{Error, Result};

use super::law::{Answer, Ending, Quota};
use crate::clock;
use crate::decide::{Failure, FailureKind, StatusClass, default_class};
use crate::schedule::{quota_left, server_hint};

pub(super) fn read(result: &Result<Response>) -> Answer {
    match result {
        Ok(response) => of_response(response),
        Err(error) => Answer {
            ending: of_error(error),
            hint: None,
            quota: None,
        },
    }
}

fn of_response(response: &Response) -> Answer {
    let (status, headers) = (response.status(), response.headers());
    let quota = quota_left(headers).map(|(left, reset)| Quota { left, reset });
    let hint = || server_hint(status, headers, clock::wall());
    let (ending, hint) = match status {
        StatusCode::TOO_MANY_REQUESTS => (Ending::Refused, hint()),
        StatusCode::GATEWAY_TIMEOUT => (Ending::Late, hint()),
        // Some servers refuse with this, and say for how long.
        StatusCode::FORBIDDEN => match hint() {
            None => (Ending::Accepted, None),
            hint => (Ending::Refused, hint),
        },
        // A plain 4xx is the server at work.
        status if status.is_server_error() && default_class(status) != StatusClass::Never => {
            (Ending::Failed, hint())
        }
        _ => (Ending::Accepted, None),
    };
    Answer {
        ending,
        hint,
        quota,
    }
}

fn of_error(error: &Error) -> Ending {
    match Failure::of(error).kind {
        FailureKind::Dns
        | FailureKind::Connect
        | FailureKind::Reset
        | FailureKind::Incomplete
        | FailureKind::NotProcessed
        | FailureKind::Handshake => Ending::Failed,
        FailureKind::Timeout => Ending::Late,
        // These are about the request, or come from another middleware.
        FailureKind::Builder
        | FailureKind::Redirect
        | FailureKind::Decode
        | FailureKind::Middleware
        | FailureKind::Throttled
        | FailureKind::Other => Ending::Unknown,
    }
}
