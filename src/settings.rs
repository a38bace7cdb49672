//! Settings as plain data, for files and environment variables, and to replace while a client runs.
//!
//! [`SteadySettings`] holds every setting that is data. Functions, sinks, observers, a fleet and a shared budget are
//! not data: set those on the builders. With the feature `serde`, settings can be read and written in formats that
//! mark the type of each value, such as TOML, JSON and YAML.
//!
//! ```
//! # #[cfg(feature = "serde")] fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use reqwest_steady::{Steady, SteadySettings};
//!
//! let settings = SteadySettings::read(toml::Deserializer::parse(
//!     r#"
//!     [retry]
//!     max_retries = 3
//!     attempt_timeout = "10s"
//!     backoff = { base = "100ms", cap = "5s" }
//!
//!     [throttle]
//!     rate = { limit = "50/s", burst = 10 }
//!     "#,
//! )?)?;
//! let steady = Steady::from_settings(&settings)?;
//! assert_eq!(steady.retry().attempt_timeout(), Some(Duration::from_secs(10)));
//!
//! // An error names the setting and its place in the file:
//! let invalid = toml::Deserializer::parse("retry.backoff.multiplier = 0.5")?;
//! assert_eq!(
//!     SteadySettings::read(invalid).unwrap_err().to_string(),
//!     "retry.backoff.multiplier (0.5) should be a finite number of at least 1.0",
//! );
//! # Ok(()) }
//! # #[cfg(not(feature = "serde"))] fn main() {}
//! ```
//!
//! # The form of values
//!
//! | kind | form | examples |
//! |---|---|---|
//! | durations | text with units up to hours | `"200ms"`, `"1m 30s"`, `"1.5s"`, `"2h"` |
//! | rates | requests per `s`, `min`, `h` or `day` | `"10/s"`, `"600/min"` |
//! | numbers and booleans | as the format writes them, or as text | `3`, `"3"`, `true`, `"true"` |
//! | choices | lower case | `jitter = "full"`, `auto_key = "random"` |
//! | choices with a value | a table | `jitter = { additive = "100ms" }`, `key_by = { host_and_path = 1 }` |
//! | levels of the log | lower case | `"warn"`, `"off"` |
//! | lists | lists of text | `header = ["x-tenant"]` |
//!
//! Every setting is optional, and a missing one has its default. Unknown settings are errors, and so is `log_levels`
//! without the feature `tracing`. Any value except a list can be written as text. So environment variables work through
//! a crate that merges them, like `config` or `figment`.
//!
//! If your own defaults differ from those of this crate, merge files into them with [`SteadySettings::read_over`].
//!
//! `docs/steady.toml` in the repository shows every setting with its default, and `docs/steady.schema.json` is the JSON
//! schema. With the feature `schema`, your own configuration can have the schema in its own:
//!
//! ```
//! # #[cfg(feature = "schema")] {
//! use reqwest_steady::SteadySettings;
//!
//! #[derive(schemars::JsonSchema)]
//! struct Config {
//!     token: String,
//!     http: SteadySettings,
//! }
//!
//! let schema = schemars::schema_for!(Config);
//! assert!(schema.pointer("/$defs/RetrySettings/properties/deadline").is_some());
//! # }
//! ```

mod coalesce;
mod retry;
#[cfg(feature = "schema")]
mod schema;
mod throttle;

pub use coalesce::CoalesceSettings;
pub use retry::{BudgetSettings, RetrySettings};
pub use throttle::{KeyChoice, RateLimit, ThrottleSettings};

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

#[cfg(feature = "serde")]
use crate::config::choice;
use crate::presets::Preset;

/// Holds every setting of a [`Steady`](crate::Steady) that is data.
///
/// Use it to read settings from a file, to put them into the configuration of an SDK, or to
/// [replace](crate::Steady::replace) them while a client runs. The [module](self) shows the form of files, and the page
/// [settings](crate::guide::settings) of the guide shows each use.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::{Steady, SteadySettings};
///
/// let mut settings = SteadySettings::default();
/// settings.retry.max_retries = 3;
/// settings.retry.deadline = Some(Duration::from_secs(30));
/// settings.throttle.max_in_flight = 64;
///
/// let steady = Steady::from_settings(&settings)?;
/// assert_eq!(steady.settings(), settings);
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "a table of settings")
)]
#[non_exhaustive]
pub struct SteadySettings {
    /// The service whose errors the client knows.
    ///
    /// Its rules hold where the other settings say nothing. In a file: `preset = "github"`, before the sections.
    ///
    /// Default: none.
    #[cfg_attr(
        feature = "serde",
        serde(
            deserialize_with = "choice::optional",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub preset: Option<Preset>,
    /// The settings of the [`RetryMiddleware`](crate::RetryMiddleware).
    pub retry: RetrySettings,
    /// The settings of the [`ThrottleMiddleware`](crate::ThrottleMiddleware).
    pub throttle: ThrottleSettings,
    /// The settings of the [`CoalesceMiddleware`](crate::CoalesceMiddleware).
    ///
    /// Default: none. Then identical requests are not coalesced.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub coalesce: Option<CoalesceSettings>,
}
