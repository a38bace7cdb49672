//! Which requests and responses may be shared by several callers.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, PRAGMA, SET_COOKIE, VARY};
use http::{Extensions, Method};
use reqwest::{Request, Response};

use super::ignored::Ignored;
use crate::handoff::Handoff;
use crate::outcome::{Attempt, FailedReport};
use crate::request::{DEFAULT_HEADER, RequestOptions};

/// Why a request is not compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotShared {
    /// The method is not safe, or the request has a body, or the caller wants a fresh response.
    ByNature,
    /// An inner middleware may act on an extension that this crate does not know.
    UnknownExtensions,
}

/// Whether this request may get the response to another request with the same identity.
pub(super) fn check_request(
    request: &Request,
    extensions: &Extensions,
    ignored: &Ignored,
) -> Result<(), NotShared> {
    let is_safe = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    let has_key = RequestOptions::of(extensions).is_some_and(|options| options.key.is_some());
    if !is_safe || request.body().is_some() || has_key || wants_fresh_response(request.headers()) {
        return Err(NotShared::ByNature);
    }
    if !ignored.extensions && !are_known(extensions) {
        return Err(NotShared::UnknownExtensions);
    }
    Ok(())
}

/// Whether the caller refuses a response that was made for others (RFC 9111 §5.2.1, §5.4), or promised
/// the server that no other request has its key.
fn wants_fresh_response(headers: &HeaderMap) -> bool {
    let has = |name, directives| {
        let mut lines = headers.get_all(name).iter();
        lines.any(|line| lists(line, directives))
    };
    headers.keys().any(|name| match name {
        name if name == CACHE_CONTROL => has(name, &["no-cache", "no-store", "max-age=0"]),
        name if name == PRAGMA => has(name, &["no-cache"]),
        name => name == DEFAULT_HEADER,
    })
}

/// Whether all extensions come from this crate. Extensions cannot be listed, only counted: an extension
/// that a part of this crate adds to requests belongs here.
fn are_known(extensions: &Extensions) -> bool {
    let known = [
        extensions.get::<Arc<RequestOptions>>().is_some(),
        extensions.get::<Attempt>().is_some(),
        extensions.get::<Handoff>().is_some(),
        extensions.get::<FailedReport>().is_some(),
    ];
    extensions.len() == known.into_iter().filter(|known| *known).count()
}

/// Whether status and headers let this response go to every request with the same identity.
pub(super) fn is_shareable(response: &Response, ignored: &Ignored) -> bool {
    let headers = response.headers();
    // After a 101 comes another protocol, not a body.
    !response.status().is_informational()
        // It may hand out a session, which belongs to one caller.
        && !headers.contains_key(SET_COOKIE)
        // "MUST NOT use the response to satisfy any other request" (RFC 9111 §5.2.2.5): a nonce or a
        // one-time link, for example.
        && !has_no_store(headers)
        && !varies_beyond(headers, ignored)
        && !is_endless(headers)
}

fn has_no_store(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CACHE_CONTROL).into_iter();
    lines.any(|line| lists(line, &["no-store"]))
}

/// Whether this comma-separated list contains any of the directives.
fn lists(line: &HeaderValue, directives: &[&str]) -> bool {
    let mut members = line.as_bytes().split(|byte| *byte == b',');
    members.any(|member| {
        let member = member.trim_ascii();
        let mut directives = directives.iter();
        directives.any(|directive| member.eq_ignore_ascii_case(directive.as_bytes()))
    })
}

/// Whether the response depends on a header that was not compared (RFC 9110 §12.5.5).
fn varies_beyond(headers: &HeaderMap, ignored: &Ignored) -> bool {
    let mut lines = headers.get_all(VARY).into_iter();
    lines.any(|line| match line.to_str() {
        Ok(line) => line
            .split(',')
            .map(str::trim)
            .any(|name| name == "*" || ignored.has_name(name)),
        Err(_) => true,
    })
}

/// Whether the body is a stream of events, which may never end.
fn is_endless(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    let media_type = content_type
        .and_then(|value| value.split(|byte| *byte == b';').next())
        .unwrap_or_default()
        .trim_ascii();
    [&b"text/event-stream"[..], b"multipart/x-mixed-replace"]
        .iter()
        .any(|endless| media_type.eq_ignore_ascii_case(endless))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://a.example";

    fn get() -> Request {
        Request::new(Method::GET, URL.parse().unwrap())
    }

    fn with(name: &'static str, value: &'static str) -> Request {
        let mut request = get();
        let value = HeaderValue::from_static(value);
        request.headers_mut().append(name, value);
        request
    }

    fn check(request: &Request) -> Result<(), NotShared> {
        check_request(request, &Extensions::new(), &Ignored::default())
    }

    fn shareable(status: u16, headers: &[(&str, &str)]) -> bool {
        let mut response = http::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        is_shareable(&response.body("").unwrap().into(), &Ignored::default())
    }

    #[test]
    fn a_response_for_one_caller_is_not_shared() {
        for status in [200, 204, 206, 301, 304, 404, 429, 500, 503] {
            assert!(shareable(status, &[]), "{status}");
        }
        assert!(!shareable(101, &[]));
        for (name, value, expected) in [
            ("set-cookie", "session=1", false),
            ("cache-control", "private, max-age=60", true),
            ("cache-control", "no-cache", true),
            ("cache-control", "no-cache,No-Store", false),
            ("vary", "accept, authorization", true),
            ("vary", "*", false),
            ("vary", "accept , *", false),
            ("vary", "accept, X-Request-Id", false),
            ("vary", "accept-\u{e4}", false),
            ("content-type", "application/json", true),
            ("content-type", "Text/Event-Stream; charset=utf-8", false),
            ("content-type", "text/event-stream", false),
            ("content-type", "text/event-streaming", true),
            (
                "content-type",
                "multipart/x-mixed-replace;boundary=b",
                false,
            ),
        ] {
            assert_eq!(
                shareable(200, &[(name, value)]),
                expected,
                "{name}: {value}"
            );
        }
        assert!(!shareable(200, &[("vary", "accept"), ("vary", "*")]));
    }

    #[test]
    fn what_is_not_safe_or_not_known_is_not_compared() {
        let mut methods = [Method::POST, Method::PUT, Method::DELETE].to_vec();
        methods.extend([Method::PATCH, Method::TRACE, Method::CONNECT]);
        methods.push(Method::from_bytes(b"QUERY").unwrap());
        for method in methods {
            let request = Request::new(method, URL.parse().unwrap());
            assert_eq!(check(&request), Err(NotShared::ByNature));
        }
        let mut body = get();
        *body.body_mut() = Some("".into());
        assert_eq!(check(&body), Err(NotShared::ByNature));
        for (name, value) in [
            ("cache-control", "no-store"),
            ("cache-control", "max-age=60, No-Cache"),
            ("cache-control", "Max-Age=0"),
            ("pragma", "no-cache"),
            ("idempotency-key", "key"),
        ] {
            let fresh = with(name, value);
            assert_eq!(check(&fresh), Err(NotShared::ByNature), "{name}: {value}");
        }
        assert_eq!(check(&with("cache-control", "max-age=60")), Ok(()));

        let mut extensions = Extensions::new();
        extensions.insert(Attempt::FIRST);
        extensions.insert(Handoff::default());
        extensions.insert(Arc::new(RequestOptions::default()));
        let mut ignored = Ignored::default();
        assert_eq!(check_request(&get(), &extensions, &ignored), Ok(()));
        extensions.insert("the credentials of a user");
        assert_eq!(
            check_request(&get(), &extensions, &ignored),
            Err(NotShared::UnknownExtensions)
        );
        // No warning, because the request would not be shared anyway.
        let fresh = with("cache-control", "no-cache");
        assert_eq!(
            check_request(&fresh, &extensions, &ignored),
            Err(NotShared::ByNature)
        );
        ignored.extensions = true;
        assert_eq!(check_request(&get(), &extensions, &ignored), Ok(()));
    }

    #[test]
    fn a_request_with_a_key_is_not_compared() {
        let mut extensions = Extensions::new();
        extensions.insert(Arc::new(RequestOptions {
            key: Some("key".try_into().unwrap()),
            ..RequestOptions::default()
        }));
        let keyed = check_request(&get(), &extensions, &Ignored::default());
        assert_eq!(keyed, Err(NotShared::ByNature));
    }
}
