//! What all builders refuse alike.

use std::fmt;
use std::time::Duration;

use http::HeaderName;

/// A setting that makes no sense. The message names the setting and the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    setting: &'static str,
    value: String,
    rule: String,
}

impl ConfigError {
    pub(crate) fn new(
        setting: &'static str,
        value: impl fmt::Display,
        rule: impl fmt::Display,
    ) -> Self {
        Self {
            setting,
            value: value.to_string(),
            rule: rule.to_string(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {}", self.setting, self.value, self.rule)
    }
}

impl std::error::Error for ConfigError {}

pub(crate) fn longer_than_zero(
    setting: &'static str,
    value: Option<Duration>,
) -> Result<(), ConfigError> {
    match value {
        Some(Duration::ZERO) => Err(ConfigError::new(
            setting,
            format_args!("{:?}", Duration::ZERO),
            "should be longer than zero",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn header_name(setting: &'static str, name: &str) -> Result<HeaderName, ConfigError> {
    name.parse().map_err(|_| {
        ConfigError::new(
            setting,
            format_args!("{name:?}"),
            "should be a valid header name",
        )
    })
}
