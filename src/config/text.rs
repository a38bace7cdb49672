//! How settings are written in files: durations, rates, statuses and levels as text, numbers as numbers or text.
//!
//! Each type is for `#[serde(with = ..)]`. Numbers can be text, because variables of the environment are text.
//! [`schema`](super::schema) describes the same forms.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use http::StatusCode;
use jiff::fmt::friendly::SpanParser;
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Written;
use super::choice::{AnyForm, Choice};

/// A number or a boolean, which a file can have as it is or as text.
pub(crate) trait Number: FromStr + for<'de> Deserialize<'de> {
    /// What to write, for error messages.
    const NAME: &'static str;

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

impl Number for bool {
    const NAME: &'static str = "`true` or `false`";

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*self)
    }
}

impl Number for f64 {
    const NAME: &'static str = "a number";

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(*self)
    }
}

/// Writes integers above `i64::MAX` as text, because TOML does not allow them as numbers.
macro_rules! integer {
    ($type:ty, $name:literal) => {
        impl Number for $type {
            const NAME: &'static str = $name;

            fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match i64::try_from(*self) {
                    Ok(value) => serializer.serialize_i64(value),
                    Err(_) => serializer.collect_str(self),
                }
            }
        }
    };
}

integer!(u32, "a whole number from 0 to 4294967295");
integer!(u64, "a whole number from 0 to 18446744073709551615");
integer!(usize, "a whole number of at least 0");

/// Numbers and switches.
pub(crate) struct NumberOrText<T>(PhantomData<T>);

impl<T: Number> NumberOrText<T> {
    pub(crate) fn serialize<S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        value.write(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(Self(PhantomData))
    }
}

impl<'de, T: Number> Visitor<'de> for NumberOrText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::NAME)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        T::deserialize(value.into_deserializer()).map_err(|_: E| invalid(value, T::NAME))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        T::deserialize(value.into_deserializer()).map_err(|_: E| invalid(value, T::NAME))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        T::deserialize(value.into_deserializer()).map_err(|_: E| invalid(value, T::NAME))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        let refused = |_: E| invalid(format_args!("{:?}", Written(value)), T::NAME);
        T::deserialize(value.into_deserializer()).map_err(refused)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let value = text.trim().parse();
        value.map_err(|_| invalid(format_args!("{text:?}"), T::NAME))
    }
}

/// Durations, like `1m 30s`.
pub(crate) struct DurationText;

impl DurationText {
    pub(crate) fn serialize<S: Serializer>(
        value: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Written(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        deserializer.deserialize_str(Self)
    }
}

impl Visitor<'_> for DurationText {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DURATION)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        let duration = SpanParser::new().parse_unsigned_duration(text.trim());
        duration.map_err(|_| invalid(format_args!("{text:?}"), DURATION))
    }
}

const DURATION: &str =
    "a duration in h, m, s, ms, us or ns, like \"200ms\", \"1.5s\" or \"1m 30s\"";

/// Rates, like `10/s`.
pub(crate) struct RateText;

impl RateText {
    pub(crate) fn serialize<S: Serializer>(
        per_second: &f64,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{per_second}/s"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        deserializer.deserialize_str(Self)
    }
}

impl Visitor<'_> for RateText {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(RATE)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        read_rate(text).ok_or_else(|| invalid(format_args!("{text:?}"), RATE))
    }
}

const RATE: &str = "a rate with a unit, like \"10/s\", \"600/min\", \"1000/h\" or \"5000/day\"";

fn read_rate(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once('/')?;
    let seconds = match unit.trim() {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "day" => 86_400.0,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    Some(number / seconds)
}

/// Durations that may be missing.
pub(crate) struct OptionalDuration;

impl OptionalDuration {
    pub(crate) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => DurationText::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_option(Optional(DurationText))
    }
}

/// Seeds that may be missing.
pub(crate) struct OptionalSeed;

impl OptionalSeed {
    pub(crate) fn serialize<S: Serializer>(
        value: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.write(serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        deserializer.deserialize_option(Optional(NumberOrText(PhantomData)))
    }
}

/// Reads a value that may be missing.
pub(super) struct Optional<V>(pub(super) V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Optional<V> {
    type Value = Option<V::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self.0).map(Some)
    }
}

/// Values by status. The status is the key of a table, and most formats allow only text there.
pub(crate) struct ByStatus<T>(PhantomData<T>);

impl<T> ByStatus<T> {
    pub(crate) fn serialize<S: Serializer>(
        values: &BTreeMap<StatusCode, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error>
    where
        T: Serialize,
    {
        serializer.collect_map((values.iter()).map(|(status, value)| (status.as_str(), value)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<StatusCode, T>, D::Error>
    where
        T: Choice,
    {
        deserializer.deserialize_map(Self(PhantomData))
    }
}

impl<'de, T: Choice> Visitor<'de> for ByStatus<T> {
    type Value = BTreeMap<StatusCode, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of statuses, like { 404 = \"conditional\" }")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut file: A) -> Result<Self::Value, A::Error> {
        let mut values = BTreeMap::new();
        while let Some(status) = file.next_key::<String>()? {
            let value = file.next_value_seed(AnyForm(PhantomData))?;
            let status = status.parse().map_err(|_| {
                A::Error::custom(format_args!(
                    "invalid status `{status}`: write a number from 100 to 999"
                ))
            })?;
            values.insert(status, value);
        }
        Ok(values)
    }
}

/// Reads a list of text.
pub(crate) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_seq(List)
}

struct List;

impl<'de> Visitor<'de> for List {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of text, like [\"x-one\", \"x-two\"]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut file: A) -> Result<Vec<String>, A::Error> {
        let mut list = Vec::new();
        while let Some(text) = file.next_element()? {
            list.push(text);
        }
        Ok(list)
    }
}

fn invalid<E: Error>(value: impl Display, expected: &str) -> E {
    E::custom(format_args!("invalid value {value}: write {expected}"))
}

/// Levels of the log.
#[cfg(feature = "tracing")]
pub(crate) mod level {
    use tracing::level_filters::LevelFilter;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        level: &LevelFilter,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(level)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<LevelFilter, D::Error> {
        deserializer.deserialize_str(LevelText)
    }

    struct LevelText;

    impl Visitor<'_> for LevelText {
        type Value = LevelFilter;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(LEVEL)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<LevelFilter, E> {
            let is_name = text.chars().all(char::is_alphabetic);
            let level = text.parse().ok().filter(|_| is_name);
            level.ok_or_else(|| invalid(format_args!("{text:?}"), LEVEL))
        }
    }

    const LEVEL: &str = "\"off\", \"error\", \"warn\", \"info\", \"debug\" or \"trace\"";
}
