//! The nested fields of a letter's record, each with its conversion in both directions.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::{InvalidLine, parse};
use crate::dead_letter::{LetterBody, Redacted};
use crate::outcome::{AttemptOutcome, AttemptReport, Effect, FailureKind, WaitReason};

/// A part of the URL that was redacted. Redacted headers are headers without a value instead.
#[derive(Serialize, Deserialize)]
pub(super) struct RedactedRecord(#[serde(with = "RedactedForm")] pub(super) Redacted);

/// Tells serde how to write and read a [`Redacted`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "Redacted", rename_all = "snake_case")]
enum RedactedForm {
    UserInfo,
    #[serde(skip)]
    Header(HeaderName),
    Parameter(String),
}

/// A header value: text if it is UTF-8, otherwise Base64.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ValueRecord {
    Text(String),
    Encoded { base64: String },
}

impl ValueRecord {
    pub(super) fn new(value: &HeaderValue) -> Self {
        match String::from_utf8(value.as_bytes().to_vec()) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Encoded {
                base64: BASE64.encode(value),
            },
        }
    }

    pub(super) fn into_value(self) -> Result<HeaderValue, InvalidLine> {
        let bytes = match self {
            Self::Text(text) => Some(text.into_bytes()),
            Self::Encoded { base64 } => BASE64.decode(base64).ok(),
        };
        let value = bytes.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok());
        value.ok_or(InvalidLine::Field("headers"))
    }
}

/// The idempotency key.
#[derive(Serialize, Deserialize)]
pub(super) struct KeyRecord {
    header: String,
    value: ValueRecord,
}

impl KeyRecord {
    pub(super) fn new((header, value): &(HeaderName, HeaderValue)) -> Self {
        Self {
            header: header.to_string(),
            value: ValueRecord::new(value),
        }
    }

    pub(super) fn into_key(self) -> Result<(HeaderName, HeaderValue), InvalidLine> {
        Ok((parse("headers", &self.header)?, self.value.into_value()?))
    }
}

/// The body: text if that is readable, otherwise Base64.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BodyRecord {
    Empty,
    Text(String),
    Base64(String),
    TooLarge(u64),
    NotReplayable,
}

impl BodyRecord {
    pub(super) fn new(body: &LetterBody) -> Self {
        match body {
            LetterBody::Empty => Self::Empty,
            LetterBody::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if !is_shorter_in_base64(text) => Self::Text(text.to_owned()),
                _ => Self::Base64(BASE64.encode(bytes)),
            },
            LetterBody::TooLarge(length) => Self::TooLarge(*length),
            LetterBody::NotReplayable => Self::NotReplayable,
        }
    }

    pub(super) fn into_body(self) -> Result<LetterBody, InvalidLine> {
        Ok(match self {
            Self::Empty => LetterBody::Empty,
            Self::Text(text) => LetterBody::Bytes(Bytes::from(text)),
            Self::Base64(text) => {
                let bytes = BASE64.decode(text);
                LetterBody::Bytes(bytes.map_err(|_| InvalidLine::Field("body"))?.into())
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
pub(super) struct AttemptRecord {
    outcome: String,
    sent_at: String,
    waited: String,
    /// Older files have none, and the first attempt has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait_reason: Option<String>,
    /// Older files have none.
    #[serde(default = "no_time")]
    took: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Older files have none. What a later version adds is unknown here, too.
    #[serde(default)]
    effect: String,
}

fn no_time() -> String {
    encode_duration(Duration::ZERO)
}

impl AttemptRecord {
    pub(super) fn new(attempt: &AttemptReport) -> Self {
        Self {
            outcome: attempt.outcome.to_string(),
            sent_at: encode_duration(attempt.sent_at),
            waited: encode_duration(attempt.waited),
            wait_reason: attempt.wait_reason.map(|reason| reason.to_string()),
            took: encode_duration(attempt.took),
            hint: attempt.hint.map(encode_duration),
            effect: attempt.effect.to_string(),
        }
    }

    pub(super) fn into_report(self) -> Option<AttemptReport> {
        Some(AttemptReport {
            outcome: decode_outcome(&self.outcome)?,
            sent_at: decode_duration(&self.sent_at)?,
            waited: decode_duration(&self.waited)?,
            // A later version may have other reasons.
            wait_reason: (self.wait_reason).and_then(|reason| WaitReason::from_label(&reason)),
            took: decode_duration(&self.took)?,
            hint: match self.hint {
                Some(hint) => Some(decode_duration(&hint)?),
                None => None,
            },
            effect: Effect::from_label(&self.effect).unwrap_or(Effect::Unknown),
        })
    }
}

/// Decodes a status or the label of a failure. An unknown label comes from a later version and becomes
/// [`FailureKind::Other`].
fn decode_outcome(text: &str) -> Option<AttemptOutcome> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return text.parse().ok().map(AttemptOutcome::Status);
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
