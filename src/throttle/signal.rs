//! What an answer, or the lack of one, tells a throttle.

use http::StatusCode;
use reqwest::Response;
use reqwest_middleware::{Error, Result};

use super::law::{Answer, Ending, Quota};
use crate::clock;
use crate::decide::{Failure, StatusClass, default_class};
use crate::outcome::FailureKind;
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)]) -> Answer {
        let mut response = http::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        read(&Ok(response.body("").unwrap().into()))
    }

    #[test]
    fn a_status_says_whether_the_server_is_well() {
        for (status, ending) in [
            (200, Ending::Accepted),
            (304, Ending::Accepted),
            (404, Ending::Accepted),
            (408, Ending::Accepted),
            (429, Ending::Refused),
            (500, Ending::Failed),
            (501, Ending::Accepted),
            (503, Ending::Failed),
            (504, Ending::Late),
            (529, Ending::Failed),
        ] {
            assert_eq!(answer(status, &[]).ending, ending, "{status}");
        }
    }

    #[test]
    fn a_403_is_a_refusal_if_it_says_for_how_long() {
        assert_eq!(answer(403, &[]).ending, Ending::Accepted);
        let told = answer(403, &[("retry-after", "60")]);
        assert_eq!(told.ending, Ending::Refused);
        assert_eq!(told.hint, Some(Duration::from_secs(60)));
        let spent = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "60")];
        assert_eq!(answer(403, &spent).ending, Ending::Refused);
        let left = [("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "60")];
        assert_eq!(answer(403, &left).ending, Ending::Accepted);
    }

    #[test]
    fn a_window_with_quota_left_is_counted_and_asks_for_no_pause() {
        let reset = Duration::from_secs(900);
        for status in [200, 429, 500, 503, 504] {
            let left = answer(status, &[("ratelimit", "\"100-in-15min\";r=98;t=900")]);
            assert_eq!(left.hint, None, "{status}");
            assert_eq!(left.quota, Some(Quota { left: 98, reset }), "{status}");
        }
        for status in [429, 500, 503, 504] {
            let spent = answer(status, &[("ratelimit", "\"100-in-15min\";r=0;t=900")]);
            assert_eq!(spent.hint, Some(reset), "{status}");
        }
    }

    #[test]
    fn a_hint_counts_where_the_server_refuses_and_a_quota_everywhere() {
        let headers = [
            ("retry-after", "5"),
            ("ratelimit", "\"day\";r=900;t=86400, \"minute\";r=7;t=30"),
        ];
        let quota = Some(Quota {
            left: 7,
            reset: Duration::from_secs(30),
        });
        for (status, hint) in [(200, None), (404, None), (503, Some(5)), (429, Some(5))] {
            let answer = answer(status, &headers);
            assert_eq!(answer.hint, hint.map(Duration::from_secs), "{status}");
            assert_eq!(answer.quota, quota, "{status}");
        }
    }

    #[test]
    fn a_failure_counts_if_it_is_the_servers() {
        let ending = |error: Error| read(&Err(error)).ending;
        let io = |kind| Error::middleware(io::Error::from(kind));
        assert_eq!(ending(io(io::ErrorKind::ConnectionRefused)), Ending::Failed);
        assert_eq!(ending(io(io::ErrorKind::ConnectionReset)), Ending::Failed);
        assert_eq!(ending(io(io::ErrorKind::TimedOut)), Ending::Late);
        let other = Error::Middleware(anyhow::anyhow!("no token"));
        assert_eq!(ending(other), Ending::Unknown);
    }
}
