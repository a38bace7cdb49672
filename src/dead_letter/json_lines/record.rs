//! A letter as a line of JSON.
//!
//! Unknown fields are ignored, so that a later version can add some; what an older one would
//! misunderstand gets a new version number.

use std::borrow::Cow;
use std::io;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::super::{DeadLetter, LetterBody, Redacted};
use crate::outcome::{AttemptOutcome, AttemptReport, FailureKind};

const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct Record<'a> {
    version: u64,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(borrow)]
    redacted: Vec<Place<'a>>,
    #[serde(borrow)]
    headers: Vec<(Cow<'a, str>, Option<Value<'a>>)>,
    #[serde(borrow)]
    body: Content<'a>,
    #[serde(borrow)]
    key: Option<Key<'a>>,
    repeatable: bool,
    #[serde(borrow)]
    attempts: Vec<Tried<'a>>,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    not_before: Cow<'a, str>,
}

/// Where the URL has lost a secret. A header that has is one without a value.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Place<'a> {
    UserInfo,
    #[serde(borrow)]
    Parameter(Cow<'a, str>),
}

/// Readable where it can be.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Value<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Encoded {
        #[serde(borrow)]
        base64: Cow<'a, str>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Content<'a> {
    Empty,
    #[serde(borrow)]
    Text(Cow<'a, str>),
    #[serde(borrow)]
    Base64(Cow<'a, str>),
    TooLarge(u64),
    NotReplayable,
}

#[derive(Serialize, Deserialize)]
struct Key<'a> {
    #[serde(borrow)]
    header: Cow<'a, str>,
    #[serde(borrow)]
    value: Value<'a>,
}

#[derive(Serialize, Deserialize)]
struct Tried<'a> {
    #[serde(borrow)]
    outcome: Cow<'a, str>,
    #[serde(borrow)]
    sent_at: Cow<'a, str>,
    #[serde(borrow)]
    waited: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    hint: Option<Cow<'a, str>>,
}

/// The letter in one line of at most `max` bytes, and a newline at its end.
pub(super) fn line(letter: &DeadLetter, max: u64) -> io::Result<Vec<u8>> {
    let record = Record {
        version: VERSION,
        time: date(letter.time)?,
        method: letter.method.as_str().into(),
        url: letter.url.as_str().into(),
        redacted: (letter.url_redacted.iter()).filter_map(Place::of).collect(),
        headers: (letter.headers.iter())
            .map(|(name, value)| (name.as_str().into(), value.as_ref().map(Value::of)))
            .collect(),
        body: Content::of(&letter.body),
        key: letter.key.as_ref().map(|(name, value)| Key {
            header: name.as_str().into(),
            value: Value::of(value),
        }),
        repeatable: letter.repeatable,
        attempts: letter.attempts.iter().map(Tried::of).collect(),
        reason: letter.reason.as_str().into(),
        not_before: date(letter.not_before)?,
    };
    // JSON writes a newline within a string as `\n`, so there is none before the end.
    let mut line = serde_json::to_vec(&record)?;
    if line.len() as u64 > max {
        return Err(io::Error::other(format!(
            "the letter takes {} bytes, and a line that can be read {max} at most",
            line.len()
        )));
    }
    line.push(b'\n');
    Ok(line)
}

/// Why a line is no letter. It shows nothing of what is in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It ends in the middle.
    Torn,
    Version(u64),
    Syntax {
        column: usize,
    },
    Field(&'static str),
}

/// The letter in a line, without the newline.
pub(super) fn letter(line: &[u8]) -> Result<DeadLetter, Fault> {
    let record: Record<'_> = match serde_json::from_slice(line) {
        Ok(record) => record,
        Err(error) if error.is_eof() => return Err(Fault::Torn),
        // The error's own text shows values.
        Err(error) => {
            let column = error.column();
            return Err(version(line).unwrap_or(Fault::Syntax { column }));
        }
    };
    if record.version != VERSION {
        return Err(Fault::Version(record.version));
    }
    record.letter()
}

/// Whether it cannot be read because it has another version.
fn version(line: &[u8]) -> Option<Fault> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
    }
    let Versioned { version } = serde_json::from_slice(line).ok()?;
    (version != VERSION).then_some(Fault::Version(version))
}

impl Record<'_> {
    fn letter(self) -> Result<DeadLetter, Fault> {
        let url = Url::parse(&self.url).map_err(|_| Fault::Field("url"))?;
        let method = Method::from_bytes(self.method.as_bytes());
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, value) in self.headers {
            let value = value.map(Value::header).transpose()?;
            headers.push((header_name(&name)?, value));
        }
        let mut key = None;
        if let Some(Key { header, value }) = self.key {
            let mut value = value.header()?;
            value.set_sensitive(true);
            key = Some((header_name(&header)?, value));
        }
        let attempts = self.attempts.into_iter().map(Tried::report);
        Ok(DeadLetter {
            time: moment(&self.time).ok_or(Fault::Field("time"))?,
            method: method.map_err(|_| Fault::Field("method"))?,
            url,
            url_redacted: self.redacted.into_iter().map(Place::redacted).collect(),
            headers,
            body: self.body.body()?,
            key,
            repeatable: self.repeatable,
            attempts: attempts
                .collect::<Option<_>>()
                .ok_or(Fault::Field("attempts"))?,
            reason: self.reason.into_owned(),
            not_before: moment(&self.not_before).ok_or(Fault::Field("not_before"))?,
        })
    }
}

fn header_name(name: &str) -> Result<HeaderName, Fault> {
    name.parse().map_err(|_| Fault::Field("headers"))
}

impl<'a> Place<'a> {
    fn of(place: &'a Redacted) -> Option<Self> {
        match place {
            Redacted::UserInfo => Some(Self::UserInfo),
            Redacted::Parameter(name) => Some(Self::Parameter(name.into())),
            Redacted::Header(_) => None,
        }
    }

    fn redacted(self) -> Redacted {
        match self {
            Self::UserInfo => Redacted::UserInfo,
            Self::Parameter(name) => Redacted::Parameter(name.into_owned()),
        }
    }
}

impl<'a> Value<'a> {
    fn of(value: &'a HeaderValue) -> Self {
        match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Encoded {
                base64: BASE64.encode(value.as_bytes()).into(),
            },
        }
    }

    fn header(self) -> Result<HeaderValue, Fault> {
        let value = match self {
            Self::Text(text) => HeaderValue::from_bytes(text.as_bytes()),
            Self::Encoded { base64 } => {
                let bytes = BASE64
                    .decode(&*base64)
                    .map_err(|_| Fault::Field("headers"))?;
                HeaderValue::from_bytes(&bytes)
            }
        };
        value.map_err(|_| Fault::Field("headers"))
    }
}

impl<'a> Content<'a> {
    fn of(body: &'a LetterBody) -> Self {
        match body {
            LetterBody::Empty => Self::Empty,
            LetterBody::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if !is_shorter_in_base64(text) => Self::Text(text.into()),
                _ => Self::Base64(BASE64.encode(bytes).into()),
            },
            LetterBody::TooLarge(length) => Self::TooLarge(*length),
            LetterBody::NotReplayable => Self::NotReplayable,
        }
    }

    fn body(self) -> Result<LetterBody, Fault> {
        Ok(match self {
            Self::Empty => LetterBody::Empty,
            Self::Text(text) => LetterBody::Bytes(Bytes::from(text.into_owned())),
            Self::Base64(text) => {
                let bytes = BASE64.decode(&*text).map_err(|_| Fault::Field("body"))?;
                LetterBody::Bytes(bytes.into())
            }
            Self::TooLarge(length) => LetterBody::TooLarge(length),
            Self::NotReplayable => LetterBody::NotReplayable,
        })
    }
}

/// Whether it is hardly a text: JSON takes six bytes for most control characters. What it escapes with
/// two does not count, or else a body that is full of quotes, as JSON is, would not be readable.
fn is_shorter_in_base64(text: &str) -> bool {
    let lengths = text.bytes().map(|byte| match byte {
        b'\n' | b'\r' | b'\t' | b'\x08' | b'\x0c' => 1,
        ..b' ' => 6,
        _ => 1,
    });
    text.len().div_ceil(3) * 4 < lengths.sum::<usize>()
}

impl<'a> Tried<'a> {
    fn of(attempt: &'a AttemptReport) -> Self {
        Self {
            outcome: attempt.outcome.to_string().into(),
            sent_at: seconds(attempt.sent_at).into(),
            waited: seconds(attempt.waited).into(),
            hint: attempt.hint.map(|hint| seconds(hint).into()),
        }
    }

    fn report(self) -> Option<AttemptReport> {
        let hint = self.hint.map(|hint| duration(&hint));
        Some(AttemptReport {
            outcome: outcome(&self.outcome)?,
            sent_at: duration(&self.sent_at)?,
            waited: duration(&self.waited)?,
            hint: match hint {
                Some(hint) => Some(hint?),
                None => None,
            },
        })
    }
}

/// A status is a number, and everything else is the label of a failure. A later version may know more
/// of them.
fn outcome(text: &str) -> Option<AttemptOutcome> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let status = StatusCode::from_bytes(text.as_bytes()).ok()?;
        return Some(AttemptOutcome::Status(status));
    }
    let kind = FailureKind::from_label(text).unwrap_or(FailureKind::Other);
    Some(AttemptOutcome::Failure(kind))
}

fn date(time: SystemTime) -> io::Result<Cow<'static, str>> {
    let time = Timestamp::try_from(time).map_err(io::Error::other)?;
    Ok(time.to_string().into())
}

fn moment(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

/// As in `0.38s`: readable, and exact, which a number in JSON is not everywhere.
fn seconds(duration: Duration) -> String {
    let text = format!("{}.{:09}", duration.as_secs(), duration.subsec_nanos());
    let short = text.trim_end_matches('0').trim_end_matches('.');
    format!("{short}s")
}

fn duration(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    Some(Duration::new(whole.parse().ok()?, nanos))
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
