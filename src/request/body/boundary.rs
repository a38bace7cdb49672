//! Refuses a multipart body that does not begin with the boundary of its `Content-Type`.
//!
//! A function of `body_with` that makes a new form for each attempt also makes a new boundary. But the header keeps the
//! first boundary, so the server could not read the retries.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body::Body as _;
use reqwest::Body;

use crate::config::ConfigError;

/// Builds a body for comparison, if the headers announce a boundary. Reads only what is available without waiting.
pub(super) fn check(headers: &HeaderMap, build: impl Fn() -> Body) -> Result<(), ConfigError> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let Some(announced) = content_type.and_then(boundary_of) else {
        return Ok(());
    };
    match first_bytes(build()).and_then(|first| other_boundary(&first, &announced)) {
        None => Ok(()),
        Some(built) => Err(ConfigError::new(
            "body_with",
            format_args!("boundary {built:?} in the body, {announced:?} in Content-Type"),
            "should use one boundary: use `multipart_with`, which sends each form with its own header",
        )),
    }
}

/// Returns the boundary of a multipart type (RFC 2046 §5.1.1).
fn boundary_of(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    let (kind, _) = kind.trim().split_once('/')?;
    if !kind.eq_ignore_ascii_case("multipart") {
        return None;
    }
    // A boundary never contains a `;`, so splitting cannot cut one.
    let mut parameters = parameters.split(';').filter_map(|it| it.split_once('='));
    let (_, value) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    Some(value.trim().trim_matches('"').to_owned())
}

fn first_bytes(mut body: Body) -> Option<bytes::Bytes> {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(&mut body).poll_frame(&mut context) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
        _ => None,
    }
}

/// Returns the boundary with which the bytes begin, if it is another one. If a preamble comes first, there is nothing
/// to compare.
fn other_boundary(first: &[u8], announced: &str) -> Option<String> {
    let rest = first.strip_prefix(b"--")?;
    let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    let line = rest[..end.unwrap_or(rest.len())].trim_ascii_end();
    let announced = announced.as_bytes();
    let is_same = match end {
        // The closing delimiter has two more dashes.
        Some(_) => line == announced || line.strip_suffix(b"--") == Some(announced),
        // Only a part of the line is there.
        None => announced.starts_with(line) || line.starts_with(announced),
    };
    (!is_same).then(|| String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_multipart_types_have_a_boundary() {
        for (content_type, boundary) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            (
                "Multipart/Mixed;charset=utf-8 ; Boundary=\"a b\"",
                Some("a b"),
            ),
            ("multipart/form-data", None),
            ("text/plain; boundary=abc", None),
            ("multipart; boundary=abc", None),
        ] {
            assert_eq!(
                boundary_of(content_type).as_deref(),
                boundary,
                "{content_type}"
            );
        }
    }

    #[test]
    fn another_boundary_is_found_and_a_preamble_allowed() {
        for first in [
            "",
            "-",
            "--",
            "--ab",
            "--abc",
            "--abc\r\n",
            "--abc \r\n",
            "--abc--\r\n",
            "text",
            "\r\n--x",
        ] {
            assert_eq!(other_boundary(first.as_bytes(), "abc"), None, "{first:?}");
        }
        for (first, other) in [
            ("--x", "x"),
            ("--abcd\r\n", "abcd"),
            ("--ab\r\n", "ab"),
            ("--\n", ""),
        ] {
            assert_eq!(
                other_boundary(first.as_bytes(), "abc").as_deref(),
                Some(other)
            );
        }
    }
}
