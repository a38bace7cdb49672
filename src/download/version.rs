//! One version of a file, and whether a response to a range request goes on with it.
//!
//! Everything here is pure. A mistake would repeat bytes or leave a gap. So a response that does not clearly fit is
//! refused.

use std::time::Duration;

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG,
    HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED,
};

/// A `Last-Modified` is a strong validator if it is at least this much older than the `Date` of the same response
/// (RFC 9110 §8.8.2.2). Then no later change can have the same date, even if clocks differ a little.
const OLD_ENOUGH: Duration = Duration::from_secs(60);

/// What identifies one version of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileVersion {
    pub(super) length: Option<u64>,
    pub(super) validator: Option<Validator>,
}

/// A strong validator: the value of `If-Range` in a request for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Validator {
    Tag(HeaderValue),
    Date(HeaderValue),
}

impl Validator {
    pub(super) fn value(&self) -> &HeaderValue {
        match self {
            Self::Tag(value) | Self::Date(value) => value,
        }
    }
}

/// Whether a 206 has the rest of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Its body has the bytes from the offset to `end` (exclusive).
    Continues { end: u64 },
    /// Its body has ended before its range, as a body without a length may. It was read before it came here.
    BreaksOff,
    /// It does not, for this reason.
    DoesNotFit(&'static str),
}

impl FileVersion {
    /// Reads the version from the headers of a response with the whole file. `length` is that of its body.
    pub(crate) fn of(headers: &HeaderMap, length: Option<u64>) -> Self {
        let is_usable = length.is_some() && !is_encoded(headers) && !refuses_ranges(headers);
        Self {
            length,
            validator: is_usable.then(|| validator(headers)).flatten(),
        }
    }

    /// Describes a body that cannot be continued.
    pub(super) fn of_length(length: Option<u64>) -> Self {
        Self {
            length,
            validator: None,
        }
    }

    /// Returns the validator and the length, if the rest of this version can be requested.
    ///
    /// Both are necessary. A body that the client decodes has no length, and only this shows that its offsets are not
    /// those of the server.
    pub(crate) fn resumable(&self) -> Option<(&Validator, u64)> {
        Some((self.validator.as_ref()?, self.length?))
    }

    /// Checks a 206 to a request for the bytes from `offset` on. `length` is that of its body.
    pub(crate) fn check_rest(&self, headers: &HeaderMap, length: Option<u64>, offset: u64) -> Rest {
        let Some((validator, whole)) = self.resumable() else {
            return Rest::DoesNotFit("the server has sent a part that was not requested");
        };
        let Some(range) = only_value(headers, &CONTENT_RANGE).and_then(ContentRange::parse) else {
            return Rest::DoesNotFit("the response does not say which bytes it has");
        };
        if is_encoded(headers) {
            return Rest::DoesNotFit("the response has a content encoding");
        }
        if has_several_parts(headers) {
            return Rest::DoesNotFit("the response has several parts");
        }
        if range.first != offset {
            return Rest::DoesNotFit("the response has other bytes");
        }
        if range.last >= whole || range.whole.is_some_and(|other| other != whole) {
            return Rest::DoesNotFit("the file has another length");
        }
        let end = range.last + 1;
        let was_announced = headers.contains_key(CONTENT_LENGTH);
        let breaks_off = length.is_some_and(|length| length < end - offset) && !was_announced;
        if length.is_some_and(|length| length != end - offset) && !breaks_off {
            return Rest::DoesNotFit("the response has a body of another length than its range");
        }
        let is_same = match validator {
            // The server must send it again (RFC 9110 §15.3.7).
            Validator::Tag(tag) => only_value(headers, &ETAG) == Some(tag),
            // A server may leave it out (RFC 9110 §15.3.7), but then it may also have ignored `If-Range`.
            Validator::Date(date) => {
                only_value(headers, &LAST_MODIFIED) == Some(date) && !headers.contains_key(ETAG)
            }
        };
        match (is_same, breaks_off) {
            (false, _) => Rest::DoesNotFit("the file has changed"),
            (true, true) => Rest::BreaksOff,
            (true, false) => Rest::Continues { end },
        }
    }
}

/// Returns the strong validator of a response, if it has one (RFC 9110 §13.1.5).
///
/// A response with a weak `ETag` has none, because `If-Range` must not have a date then.
fn validator(headers: &HeaderMap) -> Option<Validator> {
    if headers.contains_key(ETAG) {
        let tag = only_value(headers, &ETAG).filter(|tag| is_strong(tag.as_bytes()));
        return tag.cloned().map(Validator::Tag);
    }
    let modified = only_value(headers, &LAST_MODIFIED)?;
    let date = |value: &HeaderValue| httpdate::parse_http_date(value.to_str().ok()?).ok();
    let age = date(only_value(headers, &DATE)?)?.duration_since(date(modified)?);
    let is_old_enough = age.is_ok_and(|age| age >= OLD_ENOUGH);
    is_old_enough.then(|| Validator::Date(modified.clone()))
}

fn is_strong(tag: &[u8]) -> bool {
    tag.len() >= 2 && tag.starts_with(b"\"") && tag.ends_with(b"\"")
}

/// Returns the value of a header that has exactly one.
fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let only = values.next();
    only.filter(|_| values.next().is_none())
}

fn is_encoded(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    values.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether the body is a list of parts with headers between them (RFC 9110 §14.6).
fn has_several_parts(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    values.any(|value| {
        let media_type = value.as_bytes().split(|byte| *byte == b';').next();
        media_type
            .unwrap_or_default()
            .trim_ascii()
            .eq_ignore_ascii_case(b"multipart/byteranges")
    })
}

fn refuses_ranges(headers: &HeaderMap) -> bool {
    let value = headers.get(ACCEPT_RANGES);
    value.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"none"))
}

/// The value of a `Content-Range` header: `bytes 5-9/10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContentRange {
    first: u64,
    /// At least `first`.
    last: u64,
    /// `None` for `*`.
    whole: Option<u64>,
}

impl ContentRange {
    fn parse(value: &HeaderValue) -> Option<Self> {
        let (unit, range) = value.to_str().ok()?.trim().split_once(' ')?;
        let (bytes, whole) = range.trim().split_once('/')?;
        let (first, last) = bytes.split_once('-')?;
        let whole = match whole {
            "*" => None,
            whole => Some(number(whole)?),
        };
        let (first, last) = (number(first)?, number(last)?);
        let is_valid = unit.eq_ignore_ascii_case("bytes") && first <= last && last < u64::MAX;
        is_valid.then_some(Self { first, last, whole })
    }
}

/// Reads a number of digits only, because `parse` would also accept a sign.
fn number(digits: &str) -> Option<u64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_a_strong_validator_allows_to_go_on() {
        let monday = ("last-modified", "Mon, 16 Nov 2026 10:00:00 GMT");
        let later = ("date", "Mon, 16 Nov 2026 10:01:00 GMT");
        let sooner = ("date", "Mon, 16 Nov 2026 10:00:59 GMT");
        for (lines, expected) in [
            (&[("etag", "\"a\"")][..], true),
            (&[("etag", "\"\"")], true),
            (&[("etag", "W/\"a\"")], false),
            (&[("etag", "a")], false),
            (&[("etag", "\"")], false),
            (&[("etag", "\"a\""), ("etag", "\"b\"")], false),
            (&[("etag", "\"a\""), ("accept-ranges", "none")], false),
            (&[("etag", "\"a\""), ("accept-ranges", "bytes")], true),
            (&[("etag", "\"a\""), ("content-encoding", "gzip")], false),
            (&[("etag", "\"a\""), ("content-encoding", "identity")], true),
            (&[monday, later], true),
            (&[monday, sooner], false),
            (&[monday], false),
            (&[later, ("last-modified", "yesterday")], false),
            (&[monday, later, ("etag", "W/\"a\"")], false),
            (&[], false),
        ] {
            let version = FileVersion::of(&headers(lines), Some(10));
            assert_eq!(version.resumable().is_some(), expected, "{lines:?}");
            let endless = FileVersion::of(&headers(lines), None);
            assert!(endless.resumable().is_none(), "{lines:?}");
        }
    }

    #[test]
    fn only_the_rest_of_the_same_file_fits() {
        let tag = ("etag", "\"a\"");
        let version = FileVersion::of(&headers(&[tag]), Some(10));
        let fits = |lines: &[_], length| {
            let rest = version.check_rest(&headers(lines), length, 4);
            match rest {
                Rest::Continues { end } => Some(end),
                Rest::BreaksOff | Rest::DoesNotFit(_) => None,
            }
        };
        assert_eq!(
            fits(&[tag, ("content-range", "bytes 4-9/10")], Some(6)),
            Some(10)
        );
        assert_eq!(
            fits(&[tag, ("content-range", "bytes 4-9/10")], None),
            Some(10)
        );
        assert_eq!(
            fits(&[tag, ("content-range", "Bytes 4-9/*")], Some(6)),
            Some(10)
        );
        assert_eq!(
            fits(&[tag, ("content-range", "bytes 4-6/10")], Some(3)),
            Some(7)
        );
        for lines in [
            &[tag, ("content-range", "bytes 0-9/10")][..],
            &[tag, ("content-range", "bytes 5-9/10")],
            &[tag, ("content-range", "bytes 4-9/11")],
            &[tag, ("content-range", "bytes 4-10/10")],
            &[tag, ("content-range", "bytes 4-10/*")],
            &[tag, ("content-range", "bytes 4-3/10")],
            &[tag, ("content-range", "bytes 4-/10")],
            &[tag, ("content-range", "bytes +4-9/10")],
            &[tag, ("content-range", "bytes 4-9")],
            &[tag, ("content-range", "bytes */10")],
            &[tag, ("content-range", "items 4-9/10")],
            &[tag, ("content-range", "bytes 4-18446744073709551615/*")],
            &[tag, ("content-range", "bytes 4-99999999999999999999/10")],
            &[tag, ("content-type", "multipart/byteranges; boundary=b")],
            &[
                tag,
                ("content-range", "bytes 4-9/10"),
                ("content-range", "bytes 4-9/10"),
            ],
            &[
                tag,
                ("content-range", "bytes 4-9/10"),
                ("content-encoding", "gzip"),
            ],
            &[
                tag,
                ("content-range", "bytes 4-9/10"),
                ("content-type", "Multipart/ByteRanges ; boundary=b"),
            ],
            &[("content-range", "bytes 4-9/10")],
            &[("etag", "\"b\""), ("content-range", "bytes 4-9/10")],
            &[("etag", "W/\"a\""), ("content-range", "bytes 4-9/10")],
        ] {
            assert_eq!(fits(lines, None), None, "{lines:?}");
        }
        for length in [5, 7] {
            assert_eq!(
                fits(&[tag, ("content-range", "bytes 4-9/10")], Some(length)),
                None
            );
        }
    }

    #[test]
    fn a_date_must_be_the_same_in_the_rest() {
        let monday = ("last-modified", "Mon, 16 Nov 2026 10:00:00 GMT");
        let date = ("date", "Tue, 17 Nov 2026 10:00:00 GMT");
        let version = FileVersion::of(&headers(&[monday, date]), Some(10));
        let range = ("content-range", "bytes 4-9/10");
        let tuesday = ("last-modified", "Tue, 17 Nov 2026 10:00:00 GMT");
        for (lines, expected) in [
            (&[range][..], false),
            (&[range, monday], true),
            (&[range, tuesday], false),
            (&[range, monday, tuesday], false),
            (&[range, monday, monday], false),
            (&[range, monday, ("etag", "\"a\"")], false),
        ] {
            let rest = version.check_rest(&headers(lines), None, 4);
            assert_eq!(rest == Rest::Continues { end: 10 }, expected, "{lines:?}");
        }
    }
}
