//! Whether an attempt took effect: the rule behind [`Effect`].

use http::StatusCode;
use reqwest::{Response, Url};
use reqwest_middleware::{Error, Result};

use super::StatusClass;
use super::classify::RequestFacts;
use super::transport::Failure;
use crate::host::host_of;
use crate::outcome::{Effect, FailureKind, SteadyError};
use crate::request::without_fragment;

/// Returns the effect of an attempt with this result. `class` is that of its outcome.
///
/// It is `Unknown` unless the result belongs to this very request: not to one after a redirect, nor to a request that
/// another middleware has made.
pub(super) fn effect_of(
    result: &Result<Response>,
    class: StatusClass,
    request: &RequestFacts<'_>,
) -> Effect {
    match result {
        Ok(response) if is_redirected(response, request) => Effect::Unknown,
        Ok(response) => match effect_of_status(response.status(), request.has_key) {
            // The response is doubted.
            Effect::Happened if class != StatusClass::Never => Effect::Unknown,
            effect => effect,
        },
        Err(error) => match is_unsent(error, request) {
            true => Effect::DidNotHappen,
            false => Effect::Unknown,
        },
    }
}

/// Returns what a status says about the effect of the request that it responds to.
fn effect_of_status(status: StatusCode, has_key: bool) -> Effect {
    match status.as_u16() {
        101 | 200..=299 | 303 | 304 => Effect::Happened,
        307 | 308 => Effect::DidNotHappen,
        // Slow or closed connections: nginx sends 499 and AWS load balancers 460, after they passed the request on.
        408 | 460 | 499 => Effect::Unknown,
        // The original with the same key may still be running.
        409 if has_key => Effect::Unknown,
        400..=499 => Effect::DidNotHappen,
        501 | 505 | 511 => Effect::DidNotHappen,
        _ => Effect::Unknown,
    }
}

/// Whether the response may come from a redirect that the client followed.
fn is_redirected(response: &Response, request: &RequestFacts<'_>) -> bool {
    request.follows_redirects
        && !request.is_safe
        && (request.url).is_none_or(|url| !is_same(url, response.url()))
}

/// Whether the request provably had no effect.
fn is_unsent(error: &Error, request: &RequestFacts<'_>) -> bool {
    if let Some(own) = SteadyError::of(error) {
        // A middleware may have sent this request, and then been refused with one to another host. A nested call may
        // have sent it before its deadline was over.
        let is_own = |url| own.host().is_empty() || has_host(url, own.host());
        let is_first = own.is_unsent() && own.attempts() == 0;
        return is_first && (request.is_safe || request.url.is_some_and(is_own));
    }
    let Error::Reqwest(error) = error else {
        return false;
    };
    let Failure { kind, unsent } = Failure::of_reqwest(error);
    if !unsent && kind != FailureKind::Builder {
        return false;
    }
    if request.is_safe {
        return true;
    }
    match request.url {
        // After a redirect, reqwest's error names the first URL, so it does not tell which request failed.
        Some(url) if !request.follows_redirects => error.url().is_some_and(|at| is_same(url, at)),
        _ => false,
    }
}

/// Whether a request to `url` and one to `other` are the same on the wire: fragments are not sent.
fn is_same(url: &str, other: &Url) -> bool {
    let other = match other.fragment() {
        None => other.as_str(),
        Some(_) => without_fragment(other),
    };
    match url.as_bytes().get(other.len()) {
        None => url == other,
        Some(next) => *next == b'#' && url.starts_with(other),
    }
}

fn has_host(url: &str, host: &str) -> bool {
    Url::parse(url).is_ok_and(|url| host_of(&url) == host)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::outcome::{Refusal, RefusalReason};

    const URL: &str = "http://api.example.com/orders";

    fn facts(url: Option<&str>) -> RequestFacts<'_> {
        RequestFacts {
            target: None,
            is_safe: url.is_none(),
            url,
            has_key: false,
            still_running: false,
            follows_redirects: true,
        }
    }

    #[test]
    fn every_status_has_the_effect_of_the_table() {
        use Effect::{DidNotHappen, Happened, Unknown};

        for code in 100..=999 {
            let expected = match code {
                101 | 200..=299 | 303 | 304 => Happened,
                307 | 308 | 400..=407 | 409..=459 | 461..=498 | 501 | 505 | 511 => DidNotHappen,
                _ => Unknown,
            };
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(effect_of_status(status, false), expected, "{code}");
            let expected = if code == 409 { Unknown } else { expected };
            assert_eq!(effect_of_status(status, true), expected, "{code}, key");
        }
    }

    fn response(status: u16, url: &str) -> Result<Response> {
        use reqwest::ResponseBuilderExt;

        let response = http::Response::builder().status(status);
        let response = response.url(url.parse().unwrap()).body("").unwrap();
        Ok(response.into())
    }

    #[test]
    fn a_response_from_another_url_says_nothing_of_a_post() {
        let effect = |status, url: &str, facts: RequestFacts<'_>| {
            effect_of(&response(status, url), StatusClass::Never, &facts)
        };
        let elsewhere = "http://api.example.com/login";
        for status in [200, 404] {
            let trusted = effect_of_status(StatusCode::from_u16(status).unwrap(), false);
            assert_eq!(effect(status, URL, facts(Some(URL))), trusted);
            assert_eq!(effect(status, elsewhere, facts(Some(URL))), Effect::Unknown);
            // A safe method, or a client that follows no redirects: a middleware changed the URL.
            assert_eq!(effect(status, elsewhere, facts(None)), trusted);
            let stays = RequestFacts {
                follows_redirects: false,
                ..facts(Some(URL))
            };
            assert_eq!(effect(status, elsewhere, stays), trusted);
        }
    }

    #[test]
    fn a_fragment_makes_no_other_request() {
        let same = |url: &str, other: &str| is_same(url, &Url::parse(other).unwrap());
        for (url, other, expected) in [
            ("http://a/b?c", "http://a/b?c", true),
            ("http://a/b?c#d", "http://a/b?c", true),
            ("http://a/b?c", "http://a/b?c#d", true),
            ("http://a/b?c#d", "http://a/b?c#e", true),
            ("http://a/b?c", "http://a/b", false),
            ("http://a/bc", "http://a/b", false),
            ("http://a/b", "http://a/b?c", false),
        ] {
            assert_eq!(same(url, other), expected, "{url} {other}");
        }
    }

    #[test]
    fn a_success_that_the_user_retries_is_no_proof() {
        let result = response(200, URL);
        let effect = effect_of(&result, StatusClass::Conditional, &facts(Some(URL)));
        assert_eq!(effect, Effect::Unknown);
    }

    #[test]
    fn a_refusal_proves_something_about_its_own_host_only() {
        let refused = |url: &str| {
            let refusal = Refusal {
                reason: RefusalReason::QueueFull,
                key: "key".to_owned(),
                shows_key: false,
                depth: 1,
                retry_after: std::time::Duration::ZERO,
            };
            let url = Url::parse(url).unwrap();
            let waited = std::time::Duration::ZERO;
            Err(Error::middleware(SteadyError::throttled(
                refusal, &url, waited,
            )))
        };
        let effect = |result| effect_of(&result, StatusClass::Never, &facts(Some(URL)));
        assert_eq!(effect(refused(URL)), Effect::DidNotHappen);
        assert_eq!(
            effect(refused("http://auth.example.com/token")),
            Effect::Unknown
        );
        let reset = io::Error::from(io::ErrorKind::ConnectionRefused);
        let of_another = Err(Error::Middleware(reset.into()));
        assert_eq!(effect(of_another), Effect::Unknown);
    }
}
