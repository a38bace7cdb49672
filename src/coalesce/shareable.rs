//! Which answers may go to more than one.

use http::header::{CONTENT_TYPE, HeaderMap, SET_COOKIE, VARY};
use reqwest::Response;

use super::identity::{Ignored, has_directive};

/// Whether this answer, as far as its head tells, is the answer to all requests of its identity.
pub(crate) fn is_shareable(response: &Response, ignored: &Ignored) -> bool {
    let headers = response.headers();
    // What follows a 101 is not a body but another protocol.
    !response.status().is_informational()
        // It hands out credentials, a session perhaps, that belong to one.
        && !headers.contains_key(SET_COOKIE)
        // "MUST NOT use the response to satisfy any other request" (RFC 9111 §5.2.2.5): a nonce, a
        // one-time link.
        && !has_directive(headers, "no-store")
        && !varies_beyond(headers, ignored)
        && !is_endless(headers)
}

/// Whether the answer depends on more than what was compared (RFC 9110 §12.5.5).
fn varies_beyond(headers: &HeaderMap, ignored: &Ignored) -> bool {
    headers
        .get_all(VARY)
        .iter()
        .any(|line| match line.to_str() {
            Ok(line) => line
                .split(',')
                .map(str::trim)
                .any(|name| name == "*" || ignored.has(name)),
            Err(_) => true,
        })
}

/// Whether the body is a stream of events, of which nobody should wait for the end.
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

    fn shareable(status: u16, headers: &[(&str, &str)]) -> bool {
        let mut response = http::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        is_shareable(&response.body("").unwrap().into(), &Ignored::default())
    }

    #[test]
    fn an_answer_to_one_is_told_from_an_answer_to_all() {
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
}
