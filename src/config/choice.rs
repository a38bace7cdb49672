//! How choices are written in files: by name, or as a table of a name and its value.
//!
//! Derived code asks a format for an enum, and each format has its own words for a bad one. The crate `config` even
//! panics if a value is missing. So a choice is read here as any value, and only then as an enum.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, Unexpected,
    Visitor,
};

use super::text::Optional;

/// An enum that derives `Deserialize`, in the form that files have.
pub(crate) trait Choice: DeserializeOwned {
    /// What to write, for error messages.
    const FORMS: &'static str;

    /// The name of the choice that has a value, and what an error says if the value is missing.
    const WITH_VALUE: Option<(&'static str, &'static str)> = None;
}

/// Reads a choice.
pub(crate) fn choice<'de, T: Choice, D: Deserializer<'de>>(file: D) -> Result<T, D::Error> {
    AnyForm(PhantomData).deserialize(file)
}

/// Reads a choice that may be missing.
pub(crate) fn optional<'de, T, D>(file: D) -> Result<Option<T>, D::Error>
where
    T: Choice,
    D: Deserializer<'de>,
{
    file.deserialize_option(Optional(AnyForm(PhantomData)))
}

/// Reads a choice in any of its forms.
pub(super) struct AnyForm<T>(pub(super) PhantomData<T>);

impl<'de, T: Choice> DeserializeSeed<'de> for AnyForm<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, file: D) -> Result<T, D::Error> {
        file.deserialize_any(self)
    }
}

impl<'de, T: Choice> Visitor<'de> for AnyForm<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::FORMS)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
        match T::WITH_VALUE {
            Some((with_value, advice)) if name == with_value => Err(E::custom(advice)),
            _ => T::deserialize(name.into_deserializer()),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut file: A) -> Result<T, A::Error> {
        let Some(name) = file.next_key::<String>()? else {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        };
        let by_name: StrDeserializer<'_, A::Error> = name.as_str().into_deserializer();
        if T::deserialize(by_name).is_ok() {
            let advice = format!("`{name}` has no value: write \"{name}\"");
            return Err(A::Error::custom(advice));
        }
        let read = AfterName {
            name: Some(name),
            file: &mut file,
        };
        let choice = T::deserialize(MapAccessDeserializer::new(read))?;
        match file.next_key::<IgnoredAny>()? {
            Some(_) => Err(A::Error::custom(format_args!(
                "only one choice is possible: write {}",
                T::FORMS
            ))),
            None => Ok(choice),
        }
    }
}

/// A table whose first name is read already.
struct AfterName<'f, A> {
    name: Option<String>,
    file: &'f mut A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for AfterName<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.name.take() {
            Some(name) => seed.deserialize(name.into_deserializer()).map(Some),
            None => self.file.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.file.next_value_seed(seed)
    }
}
