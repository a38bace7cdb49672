//! Reads settings with serde, and says where they are wrong.

use std::fmt::{self, Display};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::config::ConfigError;
use crate::settings::SteadySettings;

/// Reports a setting that cannot be read, or that is invalid.
///
/// [`SteadySettings::read`] returns it. The message names the place, the problem and the way to mend it:
///
/// ```
/// use reqwest_steady::SteadySettings;
///
/// # fn main() -> Result<(), toml::de::Error> {
/// let misspelt = toml::Deserializer::parse("retry.max_retry = 3")?;
/// let error = SteadySettings::read(misspelt).unwrap_err();
/// assert_eq!(error.path(), "retry.max_retry");
/// assert_eq!(error.to_string(), "retry.max_retry is unknown: did you mean `max_retries`?");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    path: String,
    message: String,
}

impl SettingsError {
    /// Returns the place of the invalid setting, like `retry.backoff.base`.
    ///
    /// It is empty if no setting is at fault, for example if the text is not TOML.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn unreadable(path: String, error: &str) -> Self {
        let path = match path.as_str() {
            "." => String::new(),
            _ => path,
        };
        let message = match (UnknownName::find(error), in_plain_words(error)) {
            (Some(unknown), _) => unknown.describe(&path),
            (None, error) if path.is_empty() => error,
            (None, error) => format!("{path}: {error}"),
        };
        Self { path, message }
    }
}

impl From<ConfigError> for SettingsError {
    fn from(error: ConfigError) -> Self {
        Self {
            path: error.setting().to_owned(),
            message: error.to_string(),
        }
    }
}

impl Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SettingsError {}

impl SteadySettings {
    /// Reads settings, and checks them.
    ///
    /// A plain `Deserialize` works, too, for example inside your own configuration. It does not check the values, so
    /// call [`check`](Self::check) after it. Its errors may not name the place.
    ///
    /// ```
    /// use reqwest_steady::SteadySettings;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = r#"{ "throttle": { "max_in_flight": 64 } }"#;
    /// let settings = SteadySettings::read(&mut serde_json::Deserializer::from_str(text))?;
    /// assert_eq!(settings.throttle.max_in_flight, 64);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If a setting is unknown, has another type, or is invalid.
    pub fn read<'de, D>(deserializer: D) -> Result<Self, SettingsError>
    where
        D: Deserializer<'de>,
        D::Error: Display,
    {
        let settings: Self = deserialize(deserializer)?;
        settings.check()?;
        Ok(settings)
    }

    /// Reads settings over your own defaults, and checks them.
    ///
    /// Use it in an SDK whose defaults differ from those of this crate. A setting that the file leaves out has the value
    /// of `defaults`:
    ///
    /// ```
    /// use std::time::Duration;
    /// use reqwest_steady::SteadySettings;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut defaults = SteadySettings::default();
    /// defaults.retry.max_retries = 3;
    /// defaults.retry.deadline = Some(Duration::from_secs(60));
    ///
    /// let file = toml::Deserializer::parse("retry.max_retries = 1")?;
    /// let settings = SteadySettings::read_over(&defaults, file)?;
    /// assert_eq!(settings.retry.max_retries, 1);
    /// assert_eq!(settings.retry.deadline, Some(Duration::from_secs(60)));
    /// # Ok(()) }
    /// ```
    ///
    /// Tables are merged, at every depth: `rate = { limit = "5/s" }` keeps the `burst` of the defaults. Lists and all
    /// other values replace those of the defaults. `null`, in formats that have it, removes an optional value.
    ///
    /// The page [settings](crate::guide::settings#in-your-sdk) of the guide shows it inside the configuration of an SDK.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read). The error names the place, but not the line of the file. A value of `defaults` can
    /// be at fault, too, if it contradicts the file.
    pub fn read_over<'de, D>(defaults: &Self, deserializer: D) -> Result<Self, SettingsError>
    where
        D: Deserializer<'de>,
        D::Error: Display,
    {
        let mut settings = serde_json::to_value(defaults)
            .map_err(|error| SettingsError::unreadable(String::new(), &error.to_string()))?;
        put_over(&mut settings, deserialize(deserializer)?);
        Self::read(settings)
    }
}

/// Deserializes a value. An error has the path of the place.
fn deserialize<'de, D, T>(deserializer: D) -> Result<T, SettingsError>
where
    D: Deserializer<'de>,
    D::Error: Display,
    T: Deserialize<'de>,
{
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        SettingsError::unreadable(path, error.into_inner().to_string().trim_end())
    })
}

/// Replaces words of crates for formats, and adds an advice that they cannot know.
fn in_plain_words(error: &str) -> String {
    let mut lines: Vec<_> = error.lines().collect();
    // A `toml::Value` repeats the place after the message.
    if lines.len() > 1 && lines[lines.len() - 1].starts_with("in `") {
        lines.pop();
    }
    // Only a rate has settings that must be there.
    let is_incomplete = lines.last().is_some_and(|it| it.starts_with("missing "));
    let advice = match is_incomplete {
        true => ": write both, like { limit = \"10/s\", burst = 10 }",
        false => "",
    };
    let error = lines.join("\n") + advice;
    error.replace("expected a string", "expected text")
}

/// Values that are a name or a table with one name. The new one replaces the old one as a whole.
const CHOICES: [&str; 2] = ["jitter", "key_by"];

/// Puts the values of a file over others. Tables are merged, and everything else is replaced.
fn put_over(settings: &mut Value, file: Value) {
    match (settings, file) {
        (Value::Object(settings), Value::Object(file)) => {
            for (name, new) in file {
                match settings.get_mut(&name) {
                    Some(old) if !CHOICES.contains(&name.as_str()) => put_over(old, new),
                    _ => drop(settings.insert(name, new)),
                }
            }
        }
        (old, new) => *old = new,
    }
}

/// An unknown name, as serde reports it: "unknown field `retrys`, expected one of `retry`, `throttle`".
struct UnknownName<'e> {
    name: &'e str,
    expected: Vec<&'e str>,
}

impl<'e> UnknownName<'e> {
    fn find(error: &'e str) -> Option<Self> {
        // TOML shows the line of the file before the message, or the place after it.
        error.lines().rev().find_map(Self::find_in_line)
    }

    fn find_in_line(line: &'e str) -> Option<Self> {
        let start = ["unknown field `", "unknown variant `"]
            .iter()
            .find_map(|start| line.strip_prefix(start))?;
        let (name, list) = start.split_once("`, expected ")?;
        // Names are between backticks. Some formats add the place after the list.
        let mut parts = list.split('`').skip(1);
        let mut expected = Vec::new();
        while let Some(other) = parts.next() {
            expected.push(other);
            if !matches!(parts.next(), Some(", " | " or ")) {
                break;
            }
        }
        Some(Self { name, expected })
    }

    fn describe(&self, path: &str) -> String {
        let Self { name, expected } = self;
        // For an unknown setting, the path ends with its name. For an unknown value, it ends with the setting.
        let what = match path.rsplit('.').next() {
            Some(last) if last == *name => format!("{path} is unknown"),
            _ if path.is_empty() => format!("{name} is unknown"),
            _ => format!("{path} (`{name}`) is unknown"),
        };
        let nearest = expected
            .iter()
            .map(|other| (strsim::damerau_levenshtein(name, other), other))
            .filter(|(distance, other)| *distance <= other.len().max(name.len()) / 2)
            .min();
        match nearest {
            Some((_, nearest)) => format!("{what}: did you mean `{nearest}`?"),
            None => format!("{what}: use one of `{}`", expected.join("`, `")),
        }
    }
}
