//! Your settings: read from TOML, and written as TOML or Rust with only what differs from the defaults.

mod rust;

use std::fmt;

use reqwest_steady::{ConfigError, SettingsError, Steady, SteadySettings};
use toml::{Table, Value};

/// Valid settings of a client.
pub(crate) struct Yours {
    settings: SteadySettings,
    /// The same as data, with defaults.
    all: Table,
}

/// Says which setting is invalid, and why.
#[derive(Debug, PartialEq)]
pub(crate) struct InvalidSettings {
    /// The place in the file, such as `retry.deadline`. Empty if the file is not TOML.
    pub(crate) path: String,
    /// What is wrong, with the place.
    pub(crate) message: String,
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InvalidSettings {}

impl From<SettingsError> for InvalidSettings {
    fn from(error: SettingsError) -> Self {
        Self {
            path: error.path().to_owned(),
            message: error.to_string(),
        }
    }
}

impl From<ConfigError> for InvalidSettings {
    fn from(error: ConfigError) -> Self {
        SettingsError::from(error).into()
    }
}

impl Default for Yours {
    fn default() -> Self {
        Self::new(SteadySettings::default()).expect("the defaults are valid")
    }
}

impl Yours {
    /// Reads a file, as [`SteadySettings::read`] does.
    pub(crate) fn from_toml(text: &str) -> Result<Self, InvalidSettings> {
        let file = toml::Deserializer::parse(text).map_err(|error| InvalidSettings {
            path: String::new(),
            message: format!("the text is not TOML: {}", error.to_string().trim_end()),
        })?;
        Self::new(SteadySettings::read(file)?)
    }

    /// Reads a table. Errors have no lines of a file.
    pub(crate) fn from_table(table: &Table) -> Result<Self, InvalidSettings> {
        // Errors of TOML would repeat the place in a line below.
        let json = serde_json::to_value(table).expect("tables with names");
        Self::new(SteadySettings::read(json)?)
    }

    fn new(settings: SteadySettings) -> Result<Self, InvalidSettings> {
        // A function for keys is valid in a file, but only a program has one.
        Steady::from_settings(&settings)?;
        let all = table(&settings);
        Ok(Self { settings, all })
    }

    /// Builds the bundle of one client. This seed replaces those of the settings.
    pub(crate) fn steady(&self, seed: u64) -> Steady {
        let mut settings = self.settings.clone();
        settings.retry.seed = Some(seed);
        settings.throttle.seed = Some(seed);
        Steady::from_settings(&settings).expect("the settings were checked")
    }

    /// Returns all settings that are set or have a default.
    pub(crate) fn all(&self) -> &Table {
        &self.all
    }

    /// Returns the settings that differ from their defaults.
    pub(crate) fn changes(&self) -> Table {
        difference(&self.all, Self::default().all())
    }

    /// Writes the changes as TOML.
    pub(crate) fn to_toml(&self) -> String {
        to_toml(&self.changes())
    }

    /// Writes the changes as a function in Rust.
    pub(crate) fn to_rust(&self) -> String {
        rust::function(&self.changes())
    }
}

pub(crate) fn to_toml(table: &Table) -> String {
    toml::to_string(table).expect("tables, texts and numbers")
}

fn table(settings: &SteadySettings) -> Table {
    Table::try_from(settings).expect("settings are tables, texts, numbers and lists")
}

/// Returns the values of a table that are not in another one.
fn difference(table: &Table, other: &Table) -> Table {
    let differs = |(name, value): (&String, &Value)| {
        let value = match (value, other.get(name)) {
            (Value::Table(inner), Some(Value::Table(other))) => {
                let rest = difference(inner, other);
                (!rest.is_empty()).then_some(Value::Table(rest))
            }
            (value, other) => (other != Some(value)).then(|| value.clone()),
        };
        value.map(|value| (name.clone(), value))
    };
    table.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn read(text: &str) -> Yours {
        Yours::from_toml(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn only_what_differs_from_the_defaults_is_written() {
        for text in ["", "retry.max_retries = 5\nthrottle.adaptive = 'true'"] {
            assert_eq!(read(text).to_toml(), "", "{text}");
        }
        let text = "preset = \"github\"\n\n[retry]\nmax_retries = 3\n\n[retry.backoff]\nbase = \"100ms\"\n\n\
                    [retry.status]\n404 = \"conditional\"\n\n[throttle]\nkey_by = \"host\"\nmax_in_flight = 8\n";
        let written = read(text).to_toml();
        assert_eq!(written, text.replace("key_by = \"host\"\n", ""));
        assert_eq!(read(&written).settings, read(text).settings);
    }

    #[test]
    fn the_file_with_all_defaults_changes_nothing() {
        assert_eq!(read(include_str!("../../docs/steady.toml")).to_toml(), "");
    }

    #[test]
    fn all_settings_survive_being_written() {
        let yours = read(rust::tests::EVERY_SETTING);
        assert_eq!(read(&yours.to_toml()).settings, yours.settings);
    }

    #[test]
    fn a_bad_file_gets_the_error_of_the_crate() {
        for (text, path, message) in [
            (
                "retry.max_retry = 3",
                "retry.max_retry",
                "retry.max_retry is unknown: did you mean `max_retries`?",
            ),
            (
                "retry.backoff.multiplier = 0.5",
                "retry.backoff.multiplier",
                "retry.backoff.multiplier (0.5) should be a finite number of at least 1.0",
            ),
            (
                "throttle.key_by = 'from_fn'",
                "throttle.key_by",
                "throttle.key_by (",
            ),
            (
                "retry.deadline = 5",
                "retry.deadline",
                "retry.deadline: TOML parse error at line 1",
            ),
            ("[retry", "", "the text is not TOML: "),
        ] {
            let Err(error) = Yours::from_toml(text) else {
                panic!("{text} is valid");
            };
            assert_eq!(error.path, path, "{text}");
            assert!(error.message.starts_with(message), "{text}: {error}");
        }
    }

    /// Otherwise, the same file would give other figures each time, and all clients of a run the same jitter.
    #[test]
    fn the_seed_of_the_run_replaces_those_of_the_file() {
        for text in ["", "retry.seed = 5\nthrottle.seed = 6"] {
            let settings = read(text).steady(9).settings();
            assert_eq!(
                (settings.retry.seed, settings.throttle.seed),
                (Some(9), Some(9))
            );
        }
    }
}
