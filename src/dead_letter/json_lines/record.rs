//! The format of a dead letter in a file: one JSON object per line.
//!
//! Readers ignore unknown fields, so that a later version can add some. A change that an older reader would
//! misunderstand gets a new version number. `fields` has the types of the nested fields.

mod fields;

use std::borrow::Cow;
use std::io;
use std::time::SystemTime;

use http::{HeaderName, Method};
use jiff::Timestamp;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use self::fields::{AttemptRecord, BodyRecord, KeyRecord, RedactedRecord, ValueRecord};
use crate::dead_letter::DeadLetter;

const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct LetterRecord<'a> {
    version: u64,
    time: Cow<'a, str>,
    method: Cow<'a, str>,
    url: Cow<'a, str>,
    redacted: Vec<RedactedRecord<'a>>,
    /// A redacted header has no value.
    headers: Vec<(Cow<'a, str>, Option<ValueRecord<'a>>)>,
    body: BodyRecord<'a>,
    key: Option<KeyRecord<'a>>,
    repeatable: bool,
    attempts: Vec<AttemptRecord<'a>>,
    reason: Cow<'a, str>,
    not_before: Cow<'a, str>,
}

/// Encodes a letter as one line of at most `max` bytes, followed by a newline.
pub(super) fn encode(letter: &DeadLetter, max: u64) -> io::Result<Vec<u8>> {
    let redacted = letter.url_redacted.iter();
    let headers = letter.headers.iter();
    let record = LetterRecord {
        version: VERSION,
        time: encode_time(letter.time)?,
        method: letter.method.as_str().into(),
        url: letter.url.as_str().into(),
        redacted: redacted.filter_map(RedactedRecord::new).collect(),
        headers: headers
            .map(|(name, value)| (name.as_str().into(), value.as_ref().map(ValueRecord::new)))
            .collect(),
        body: BodyRecord::new(&letter.body),
        key: letter.key.as_ref().map(|(name, value)| KeyRecord {
            header: name.as_str().into(),
            value: ValueRecord::new(value),
        }),
        repeatable: letter.repeatable,
        attempts: letter.attempts.iter().map(AttemptRecord::new).collect(),
        reason: letter.reason.as_str().into(),
        not_before: encode_time(letter.not_before)?,
    };
    // JSON escapes newlines in strings, so the line contains none.
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

/// The reason why a line is not a letter. It contains no data from the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InvalidLine {
    /// The line ends in the middle of the letter.
    Torn,
    Version(u64),
    Syntax {
        column: usize,
    },
    Field(&'static str),
}

/// Decodes a line without its newline.
pub(super) fn decode(line: &[u8]) -> Result<DeadLetter, InvalidLine> {
    let record: LetterRecord<'_> = match serde_json::from_slice(line) {
        Ok(record) => record,
        Err(error) if error.is_eof() => return Err(InvalidLine::Torn),
        // The error is dropped, because its text can show values.
        Err(error) => {
            let column = error.column();
            return Err(other_version(line).unwrap_or(InvalidLine::Syntax { column }));
        }
    };
    if record.version != VERSION {
        return Err(InvalidLine::Version(record.version));
    }
    record.into_letter()
}

/// Returns an error if the line has another version, which explains why it cannot be decoded.
fn other_version(line: &[u8]) -> Option<InvalidLine> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
    }
    let Versioned { version } = serde_json::from_slice(line).ok()?;
    (version != VERSION).then_some(InvalidLine::Version(version))
}

impl LetterRecord<'_> {
    fn into_letter(self) -> Result<DeadLetter, InvalidLine> {
        let url = Url::parse(&self.url).map_err(|_| InvalidLine::Field("url"))?;
        let method = Method::from_bytes(self.method.as_bytes());
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, value) in self.headers {
            let value = value.map(ValueRecord::into_value).transpose()?;
            headers.push((header_name(&name)?, value));
        }
        let mut key = None;
        if let Some(KeyRecord { header, value }) = self.key {
            let mut value = value.into_value()?;
            value.set_sensitive(true);
            key = Some((header_name(&header)?, value));
        }
        let redacted = self.redacted.into_iter();
        let attempts = self.attempts.into_iter().map(AttemptRecord::into_report);
        Ok(DeadLetter {
            time: decode_time(&self.time).ok_or(InvalidLine::Field("time"))?,
            method: method.map_err(|_| InvalidLine::Field("method"))?,
            url,
            url_redacted: redacted.map(RedactedRecord::into_redacted).collect(),
            headers,
            body: self.body.into_body()?,
            key,
            repeatable: self.repeatable,
            attempts: attempts
                .collect::<Option<_>>()
                .ok_or(InvalidLine::Field("attempts"))?,
            reason: self.reason.into_owned(),
            not_before: decode_time(&self.not_before).ok_or(InvalidLine::Field("not_before"))?,
        })
    }
}

fn header_name(name: &str) -> Result<HeaderName, InvalidLine> {
    name.parse().map_err(|_| InvalidLine::Field("headers"))
}

fn encode_time(time: SystemTime) -> io::Result<Cow<'static, str>> {
    let time = Timestamp::try_from(time).map_err(io::Error::other)?;
    Ok(time.to_string().into())
}

fn decode_time(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
