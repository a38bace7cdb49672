//! The nested fields of a letter's record, each with its conversion in both directions.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::InvalidLine;
use crate::dead_letter::{LetterBody, Redacted};
use crate::outcome::{AttemptOutcome, AttemptReport, FailureKind};

/// A part of the URL that was redacted. Redacted headers are headers without a value instead.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RedactedRecord<'a> {
    UserInfo,
    Parameter(Cow<'a, str>),
}

impl<'a> RedactedRecord<'a> {
    pub(super) fn new(redacted: &'a Redacted) -> Option<Self> {
        match redacted {
            Redacted::UserInfo => Some(Self::UserInfo),
            Redacted::Parameter(name) => Some(Self::Parameter(name.into())),
            Redacted::Header(_) => None,
        }
    }

    pub(super) fn into_redacted(self) -> Redacted {
        match self {
            Self::UserInfo => Redacted::UserInfo,
            Self::Parameter(name) => Redacted::Parameter(name.into_owned()),
        }
    }
}

/// A header value: text if it is UTF-8, otherwise Base64.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ValueRecord<'a> {
    Text(Cow<'a, str>),
    Encoded { base64: Cow<'a, str> },
}

impl<'a> ValueRecord<'a> {
    pub(super) fn new(value: &'a HeaderValue) -> Self {
        match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Encoded {
                base64: BASE64.encode(value.as_bytes()).into(),
            },
        }
    }

    pub(super) fn into_value(self) -> Result<HeaderValue, InvalidLine> {
        let value = match self {
            Self::Text(text) => HeaderValue::from_bytes(text.as_bytes()),
            Self::Encoded { base64 } => {
                let bytes = BASE64
                    .decode(&*base64)
                    .map_err(|_| InvalidLine::Field("headers"))?;
                HeaderValue::from_bytes(&bytes)
            }
        };
        value.map_err(|_| InvalidLine::Field("headers"))
    }
}

/// The idempotency key.
#[derive(Serialize, Deserialize)]
pub(super) struct KeyRecord<'a> {
    pub(super) header: Cow<'a, str>,
    pub(super) value: ValueRecord<'a>,
}

/// The body: text if that is readable, otherwise Base64.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BodyRecord<'a> {
    Empty,
    Text(Cow<'a, str>),
    Base64(Cow<'a, str>),
    TooLarge(u64),
    NotReplayable,
}

impl<'a> BodyRecord<'a> {
    pub(super) fn new(body: &'a LetterBody) -> Self {
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

    pub(super) fn into_body(self) -> Result<LetterBody, InvalidLine> {
        Ok(match self {
            Self::Empty => LetterBody::Empty,
            Self::Text(text) => LetterBody::Bytes(Bytes::from(text.into_owned())),
            Self::Base64(text) => {
                let bytes = BASE64
                    .decode(&*text)
                    .map_err(|_| InvalidLine::Field("body"))?;
                LetterBody::Bytes(bytes.into())
            }
            Self::TooLarge(length) => LetterBody::TooLarge(length),
            Self::NotReplayable => LetterBody::NotReplayable,
        })
    }
}

/// Returns whether the text has so many control characters that Base64 is shorter.
///
/// JSON takes six bytes for most control characters. Characters that it escapes with two bytes count as one:
/// otherwise a body full of quotes, such as JSON, would become Base64 and be unreadable.
fn is_shorter_in_base64(text: &str) -> bool {
    let lengths = text.bytes().map(|byte| match byte {
        b'\n' | b'\r' | b'\t' | b'\x08' | b'\x0c' => 1,
        ..b' ' => 6,
        _ => 1,
    });
    text.len().div_ceil(3) * 4 < lengths.sum::<usize>()
}

/// One attempt of the call. Durations are text such as `0.38s`, because JSON numbers are not exact everywhere.
#[derive(Serialize, Deserialize)]
pub(super) struct AttemptRecord<'a> {
    outcome: Cow<'a, str>,
    sent_at: Cow<'a, str>,
    waited: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<Cow<'a, str>>,
}

impl<'a> AttemptRecord<'a> {
    pub(super) fn new(attempt: &'a AttemptReport) -> Self {
        Self {
            outcome: attempt.outcome.to_string().into(),
            sent_at: encode_duration(attempt.sent_at).into(),
            waited: encode_duration(attempt.waited).into(),
            hint: attempt.hint.map(|hint| encode_duration(hint).into()),
        }
    }

    pub(super) fn into_report(self) -> Option<AttemptReport> {
        let hint = match self.hint {
            Some(hint) => Some(decode_duration(&hint)?),
            None => None,
        };
        Some(AttemptReport {
            outcome: decode_outcome(&self.outcome)?,
            sent_at: decode_duration(&self.sent_at)?,
            waited: decode_duration(&self.waited)?,
            hint,
        })
    }
}

/// Decodes a status or the label of a failure. An unknown label comes from a later version and becomes
/// [`FailureKind::Other`].
fn decode_outcome(text: &str) -> Option<AttemptOutcome> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let status = StatusCode::from_bytes(text.as_bytes()).ok()?;
        return Some(AttemptOutcome::Status(status));
    }
    let kind = FailureKind::from_label(text).unwrap_or(FailureKind::Other);
    Some(AttemptOutcome::Failure(kind))
}

fn encode_duration(duration: Duration) -> String {
    let text = format!("{}.{:09}", duration.as_secs(), duration.subsec_nanos());
    let short = text.trim_end_matches('0').trim_end_matches('.');
    format!("{short}s")
}

fn decode_duration(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    Some(Duration::new(whole.parse().ok()?, nanos))
}
