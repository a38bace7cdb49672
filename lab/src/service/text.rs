//! Durations, rates and shares as text, in the form of the settings of reqwest-steady.

use std::fmt;
use std::time::Duration;

use jiff::fmt::friendly::{SpanParser, SpanPrinter};
use serde::de::{DeserializeOwned, Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{OutageResponse, ServiceError};

/// Reads TOML. An error has the path of the value.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, ServiceError> {
    let not_toml = |error: toml::de::Error| ServiceError {
        path: String::new(),
        message: format!("the text is not TOML: {}", error.to_string().trim_end()),
    };
    let deserializer = toml::Deserializer::parse(text).map_err(not_toml)?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| ServiceError {
        path: match error.path().to_string().as_str() {
            "." => String::new(),
            path => path.to_owned(),
        },
        message: plain(error.inner().message()),
    })
}

/// Names the types of Rust in words.
fn plain(message: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("expected f64", "expected a number, like 0.5"),
        ("expected u16", "expected a whole number, like 503"),
        ("expected u32", "expected a whole number, like 8"),
        ("expected usize", "expected a whole number, like 100"),
        ("expected struct", "expected a table for"),
    ];
    let replace = |text: String, (rust, words): (&str, &str)| text.replace(rust, words);
    WORDS.into_iter().fold(message.to_owned(), replace)
}

/// A duration, such as `"200ms"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Span(pub Duration);

const SPAN: &str = "a duration with a unit, like \"200ms\", \"1.5s\" or \"1m 30s\"";

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&SpanPrinter::new().unsigned_duration_to_string(&self.0))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor {
            expected: SPAN,
            read: |text| {
                SpanParser::new()
                    .parse_unsigned_duration(text)
                    .ok()
                    .map(Self)
            },
        })
    }
}

/// Requests per second, such as `"10/s"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

const RATE: &str = "a rate with a unit, like \"10/s\", \"600/min\" or \"5000/h\"";

/// The units of rates, from the largest, in seconds.
const UNITS: [(&str, f64); 4] = [("day", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)];

impl Rate {
    fn read(text: &str) -> Option<Self> {
        let (number, unit) = text.split_once('/')?;
        let (_, seconds) = UNITS.into_iter().find(|(name, _)| *name == unit.trim())?;
        let number: f64 = number.trim().parse().ok()?;
        let rate = number / seconds;
        (rate.is_finite() && rate > 0.0).then_some(Self(rate))
    }
}

/// Shows it in the smallest unit in which it is at least 1 and whole, or per second.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |(name, seconds): &(&str, f64)| {
            let number = (self.0 * seconds).round();
            let text = format!("{number}/{name}");
            // Read again, it must be the same number.
            (number >= 1.0 && Self::read(&text) == Some(*self)).then_some(text)
        };
        match UNITS.iter().rev().find_map(exact) {
            Some(text) => f.write_str(&text),
            None => write!(f, "{}/s", self.0),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor {
            expected: RATE,
            read: Self::read,
        })
    }
}

const OUTAGE_RESPONSE: &str = "a status from 400 to 599, or \"refused\"";

impl fmt::Display for OutageResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Refused => f.write_str("refused"),
        }
    }
}

impl Serialize for OutageResponse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Status(status) => serializer.serialize_u16(*status),
            Self::Refused => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for OutageResponse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor {
            expected: OUTAGE_RESPONSE,
            read: |text| match text {
                "refused" => Some(Self::Refused),
                status => {
                    let status = status
                        .parse()
                        .ok()
                        .filter(|status| (400..600).contains(status));
                    status.map(Self::Status)
                }
            },
        })
    }
}

/// Reads a value that is written as text or as a whole number.
struct TextVisitor<T> {
    expected: &'static str,
    read: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let expected = self.expected;
        let value = (self.read)(text.trim());
        value.ok_or_else(|| E::custom(format_args!("invalid value {text:?}: write {expected}")))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let expected = self.expected;
        let value = (self.read)(&number.to_string());
        value.ok_or_else(|| E::custom(format_args!("invalid value {number}: write {expected}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_as_they_are_written() {
        for text in ["10/s", "90/min", "5000/h", "1/day", "0.5/day"] {
            let rate = Rate::read(text).unwrap();
            let shown = rate.to_string();
            assert_eq!(Rate::read(&shown), Some(rate), "{text}: {shown}");
        }
        assert_eq!(Rate::read("90/min").unwrap().to_string(), "90/min");
        assert_eq!(Rate::read("60/min").unwrap().to_string(), "1/s");
        assert_eq!(Rate::read("5000/h").unwrap().to_string(), "5000/h");
        assert_eq!(Rate(0.3).to_string(), "18/min");
        for wrong in [
            "10", "/s", "ten/s", "10/ms", "-1/s", "0/s", "inf/s", "NaN/s",
        ] {
            assert_eq!(Rate::read(wrong), None, "{wrong}");
        }
    }
}
