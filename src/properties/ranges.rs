//! Range requests: when a download may ask for the rest, and which responses bring it.

use std::time::{Duration, UNIX_EPOCH};

use arbitrary::{Result, Unstructured};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::download::{FileVersion, Rest};

/// A response brings the rest only if every header says so. Headers of any bytes break nothing.
pub fn ranges(data: &[u8]) {
    let _ = compare(&mut Unstructured::new(data));
    let _ = arbitrary_range(&mut Unstructured::new(data));
}

/// Entity tags. Only the first three are strong.
const TAGS: [&str; 7] = ["\"a\"", "\"b\"", "\"\"", "W/\"a\"", "a", "\"", ""];
const STRONG_TAGS: [&str; 3] = ["\"a\"", "\"b\"", "\"\""];

/// What identifies a version, as headers say it.
#[derive(Clone, Debug, Default)]
struct Marks {
    tags: Vec<&'static str>,
    /// Of `Last-Modified`, in seconds.
    modified: Vec<u64>,
}

impl Marks {
    fn read(input: &mut Unstructured<'_>) -> Result<Self> {
        let mut marks = Self::default();
        for _ in 0..input.int_in_range(0..=2)? {
            marks.tags.push(*input.choose(&TAGS)?);
        }
        for _ in 0..input.int_in_range(0..=2)? {
            marks.modified.push(input.int_in_range(0..=3)? * 59);
        }
        Ok(marks)
    }

    fn write(&self, headers: &mut HeaderMap) {
        for tag in &self.tags {
            headers.append("etag", HeaderValue::from_static(tag));
        }
        for seconds in &self.modified {
            headers.append("last-modified", date(*seconds));
        }
    }

    /// Whether these identify a version, in a response of this date: exactly one strong tag or, without any tag, one
    /// date that is at least a minute old.
    fn are_strong(&self, now: Option<u64>) -> bool {
        match (&self.tags[..], &self.modified[..], now) {
            ([tag], ..) => STRONG_TAGS.contains(tag),
            ([], [modified], Some(now)) => now >= modified + 60,
            _ => false,
        }
    }

    /// Whether a part with these marks is of the version with those.
    fn continue_with(&self, rest: &Self) -> bool {
        match self.tags.is_empty() {
            false => rest.tags == self.tags,
            true => rest.tags.is_empty() && rest.modified == self.modified,
        }
    }
}

fn date(seconds: u64) -> HeaderValue {
    let time = UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds);
    HeaderValue::try_from(httpdate::fmt_http_date(time)).unwrap()
}

/// What a line of `Content-Range` means: the first and the last byte, and the length of the file.
type Meaning = (u64, u64, Option<u64>);

/// Returns a line of `Content-Range`, and what it means. `None` if it is malformed.
fn range_line(input: &mut Unstructured<'_>) -> Result<(String, Option<Meaning>)> {
    let (first, last) = (input.int_in_range(0..=12)?, input.int_in_range(0..=12)?);
    let whole = match input.int_in_range(0..=3)? {
        0 => None,
        1 => Some(input.int_in_range(0..=12)?),
        _ => Some(10),
    };
    let shown = whole.map_or("*".to_owned(), |whole: u64| whole.to_string());
    let meaning = (first <= last).then_some((first, last, whole));
    let well_formed = [
        format!("bytes {first}-{last}/{shown}"),
        format!("Bytes {first}-{last}/{shown}"),
        format!("bytes  {first}-{last}/{shown}"),
        format!("bytes 00{first}-0{last}/{shown}"),
    ];
    let malformed = [
        format!("items {first}-{last}/{shown}"),
        format!("bytes={first}-{last}/{shown}"),
        format!("bytes {first}-{last}"),
        format!("bytes */{shown}"),
        format!("bytes {first}-/{shown}"),
        format!("bytes -{last}/{shown}"),
        format!("bytes +{first}-{last}/{shown}"),
        format!("bytes {first}-{last}/{shown}/{shown}"),
        format!("bytes {first}-{last}/{shown},{first}-{last}/{shown}"),
        format!("bytes {first}-99999999999999999999/*"),
        format!("bytes {first}-{last}/-{shown}"),
        format!("bytes{first}-{last}/{shown}"),
        String::new(),
    ];
    Ok(match input.ratio(1, 5)? {
        true => (input.choose(&malformed)?.clone(), None),
        false => (input.choose(&well_formed)?.clone(), meaning),
    })
}

/// Returns lines of `Content-Encoding`, and whether they change the bytes.
fn encoding(input: &mut Unstructured<'_>, headers: &mut HeaderMap) -> Result<bool> {
    let (line, is_encoded) = match input.int_in_range(0..=9)? {
        0 => ("gzip", true),
        1 => ("Identity", false),
        2 => ("identity, br", true),
        _ => return Ok(false),
    };
    headers.append("content-encoding", HeaderValue::from_static(line));
    Ok(is_encoded)
}

fn compare(input: &mut Unstructured<'_>) -> Result<()> {
    let mut headers = HeaderMap::new();
    let marks = Marks::read(input)?;
    marks.write(&mut headers);
    let now = input.ratio(3, 4)?.then_some(118);
    if let Some(now) = now {
        headers.insert("date", date(now));
    }
    let is_encoded = encoding(input, &mut headers)?;
    let refuses = input.ratio(1, 8)?;
    if refuses {
        headers.insert("accept-ranges", HeaderValue::from_static("None"));
    }
    let length = input.ratio(7, 8)?.then_some(10);
    let version = FileVersion::of(&headers, length);
    let is_resumable = marks.are_strong(now) && length.is_some() && !is_encoded && !refuses;
    assert_eq!(version.resumable().is_some(), is_resumable, "{headers:?}");

    let offset = input.int_in_range(0..=10)?;
    let mut headers = HeaderMap::new();
    let rest = match input.ratio(2, 3)? {
        true => marks.clone(),
        false => Marks::read(input)?,
    };
    rest.write(&mut headers);
    let is_encoded = encoding(input, &mut headers)?;
    let has_parts = input.ratio(1, 8)?;
    if has_parts {
        let text = "multipart/ByteRanges; boundary=b";
        headers.insert("content-type", HeaderValue::from_static(text));
    }
    let mut ranges = Vec::new();
    for _ in 0..[1, 1, 1, 0, 2][input.int_in_range(0..=4)?] {
        let (line, meaning) = range_line(input)?;
        let name = HeaderName::from_static("content-range");
        headers.append(name, HeaderValue::try_from(line).unwrap());
        ranges.push(meaning);
    }
    let body = input.ratio(3, 4)?.then_some(input.int_in_range(0..=10)?);
    let expected = match ranges[..] {
        [Some((first, last, whole))] if is_resumable => {
            let fits = first == offset
                && last < 10
                && whole.is_none_or(|whole| whole == 10)
                && body.is_none_or(|body| body == last + 1 - first)
                && !is_encoded
                && !has_parts
                && marks.continue_with(&rest);
            fits.then_some(last + 1)
        }
        _ => None,
    };
    let found = match version.check_rest(&headers, body, offset) {
        Rest::Continues { end } => Some(end),
        Rest::BreaksOff | Rest::DoesNotFit(_) => None,
    };
    assert_eq!(found, expected, "{offset} {version:?} {headers:?} {body:?}");
    Ok(())
}

/// Whatever the line is, a response that fits has at least one byte, and none behind the end of the file.
fn arbitrary_range(input: &mut Unstructured<'_>) -> Result<()> {
    let (offset, length): (u64, u64) = input.arbitrary()?;
    let mut headers = HeaderMap::new();
    headers.insert("etag", HeaderValue::from_static("\"a\""));
    let version = FileVersion::of(&headers, Some(length));
    let line: &[u8] = match input.ratio(1, 2)? {
        true => input.bytes(input.len())?,
        false => &format!("bytes {offset}-{}/{length}", length.wrapping_sub(1)).into_bytes(),
    };
    let Ok(value) = HeaderValue::from_bytes(line) else {
        return Ok(());
    };
    headers.insert("content-range", value);
    if let Rest::Continues { end } = version.check_rest(&headers, None, offset) {
        assert!(
            offset < end && end <= length,
            "{offset} {length} {headers:?}"
        );
    }
    Ok(())
}
