//! The format of a dead letter in a file: one JSON object per line.
//!
//! Readers ignore unknown fields, so that a later version can add some. A change that an older reader would
//! misunderstand gets a new version number. `fields` has the types of the nested fields.

mod fields;

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::fields::{AttemptRecord, BodyRecord, KeyRecord, RedactedRecord, ValueRecord};
use super::MAX_LINE;
use crate::dead_letter::DeadLetter;

const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct LetterRecord {
    version: u64,
    time: String,
    method: String,
    url: String,
    redacted: Vec<RedactedRecord>,
    /// A redacted header has no value.
    headers: Vec<(String, Option<ValueRecord>)>,
    body: BodyRecord,
    key: Option<KeyRecord>,
    repeatable: bool,
    attempts: Vec<AttemptRecord>,
    reason: String,
    not_before: String,
}

/// Encodes a letter as one line of at most `max` bytes, followed by a newline.
pub(super) fn encode(letter: &DeadLetter, max: u64) -> io::Result<Vec<u8>> {
    let redacted = letter.url_redacted.iter().cloned();
    let headers = letter.headers.iter();
    let record = LetterRecord {
        version: VERSION,
        time: encode_time(letter.time)?,
        method: letter.method.to_string(),
        url: letter.url.to_string(),
        redacted: redacted.map(RedactedRecord).collect(),
        headers: headers
            .map(|(name, value)| (name.to_string(), value.as_ref().map(ValueRecord::new)))
            .collect(),
        body: BodyRecord::new(&letter.body),
        key: letter.key.as_ref().map(KeyRecord::new),
        repeatable: letter.repeatable,
        attempts: letter.attempts.iter().map(AttemptRecord::new).collect(),
        reason: letter.reason.clone(),
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
    TooLong,
    Version(u64),
    Syntax {
        column: usize,
    },
    Field(&'static str),
}

impl fmt::Display for InvalidLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn => f.write_str("is cut off in the middle"),
            Self::TooLong => write!(f, "is longer than {MAX_LINE} bytes"),
            Self::Version(version) => {
                write!(f, "has the version {version}, which is not known here")
            }
            Self::Syntax { column } => write!(f, "is no dead letter, from column {column} on"),
            Self::Field(name) => {
                write!(f, "is no dead letter: its field {name:?} makes no sense")
            }
        }
    }
}

/// The only field that all versions have.
#[derive(Deserialize)]
struct LetterVersion {
    version: u64,
}

/// Decodes a line without its newline.
pub(super) fn decode(line: &[u8]) -> Result<DeadLetter, InvalidLine> {
    match read::<LetterVersion>(line)?.version {
        VERSION => read::<LetterRecord>(line)?.into_letter(),
        other => Err(InvalidLine::Version(other)),
    }
}

fn read<T: DeserializeOwned>(line: &[u8]) -> Result<T, InvalidLine> {
    // The error is dropped, because its text can show values.
    serde_json::from_slice(line).map_err(|error| match error.column() {
        _ if error.is_eof() => InvalidLine::Torn,
        column => InvalidLine::Syntax { column },
    })
}

impl LetterRecord {
    fn into_letter(self) -> Result<DeadLetter, InvalidLine> {
        let redacted = self.redacted.into_iter();
        let headers = self.headers.into_iter().map(|(name, value)| {
            let value = value.map(ValueRecord::into_value).transpose()?;
            Ok((parse("headers", &name)?, value))
        });
        let attempts = self.attempts.into_iter().map(AttemptRecord::into_report);
        Ok(DeadLetter {
            time: parse::<Timestamp>("time", &self.time)?.into(),
            method: parse("method", &self.method)?,
            url: parse("url", &self.url)?,
            url_redacted: redacted.map(|RedactedRecord(place)| place).collect(),
            headers: headers.collect::<Result<_, _>>()?,
            body: self.body.into_body()?,
            key: self.key.map(KeyRecord::into_key).transpose()?,
            repeatable: self.repeatable,
            attempts: attempts
                .collect::<Option<_>>()
                .ok_or(InvalidLine::Field("attempts"))?,
            reason: self.reason,
            not_before: parse::<Timestamp>("not_before", &self.not_before)?.into(),
        })
    }
}

fn encode_time(time: SystemTime) -> io::Result<String> {
    let time = Timestamp::try_from(time).map_err(io::Error::other)?;
    Ok(time.to_string())
}

/// Parses the text of a field.
fn parse<T: FromStr>(field: &'static str, text: &str) -> Result<T, InvalidLine> {
    text.parse().map_err(|_| InvalidLine::Field(field))
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
