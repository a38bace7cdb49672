//! The settings of the throttle, as plain data.

use std::time::Duration;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

#[cfg(feature = "serde")]
use crate::config::{
    choice::{Choice, choice},
    text,
};
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;

/// Holds the settings of a [`ThrottleMiddleware`](crate::ThrottleMiddleware).
///
/// Each field has the name of a method of [`ThrottleMiddlewareBuilder`](crate::ThrottleMiddlewareBuilder), which
/// explains it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "a table of settings")
)]
#[non_exhaustive]
pub struct ThrottleSettings {
    /// The most requests in flight per key.
    ///
    /// Default: 1024.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<u32>"))]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub max_in_flight: u32,
    /// The most calls in the queue of one key.
    ///
    /// Default: 10,000.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<usize>"))]
    pub max_queue: usize,
    /// The longest time of one call in the queue.
    ///
    /// Default: 30 s.
    #[cfg_attr(feature = "serde", serde(with = "text::DurationText"))]
    pub max_queue_wait: Duration,
    /// The fixed rate per key.
    ///
    /// Default: none.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub rate: Option<RateLimit>,
    /// Whether the throttle learns from responses.
    ///
    /// Default: `true`.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<bool>"))]
    pub adaptive: bool,
    /// Which requests share one gate.
    ///
    /// Default: [`KeyChoice::Host`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "choice"))]
    pub key_by: KeyChoice,
    /// The log level of each kind of event. The throttle uses only `pause`, `pace` and `refusal`.
    ///
    /// Default: the levels of [`LogLevels::default`].
    #[cfg(feature = "tracing")]
    pub log_levels: LogLevels,
    /// The seed of all jitter. Only for tests and simulations.
    ///
    /// Default: none.
    #[cfg_attr(
        feature = "serde",
        serde(with = "text::OptionalSeed", skip_serializing_if = "Option::is_none")
    )]
    pub seed: Option<u64>,
}

impl Default for ThrottleSettings {
    fn default() -> Self {
        Self {
            max_in_flight: 1024,
            max_queue: 10_000,
            max_queue_wait: Duration::from_secs(30),
            rate: None,
            adaptive: true,
            key_by: KeyChoice::Host,
            #[cfg(feature = "tracing")]
            log_levels: LogLevels::default(),
            seed: None,
        }
    }
}

/// Holds a fixed rate of requests.
///
/// In a file: `rate = { limit = "10/s", burst = 20 }`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(
    feature = "serde",
    serde(
        deny_unknown_fields,
        expecting = "a table with `limit` and `burst`, like { limit = \"10/s\", burst = 10 }"
    )
)]
pub struct RateLimit {
    /// The requests per second. In a file, this is `limit` with a unit: `"10/s"`.
    #[cfg_attr(feature = "serde", serde(rename = "limit", with = "text::RateText"))]
    pub per_second: f64,
    /// How many requests can go at once after idling.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<u32>"))]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub burst: u32,
}

/// Selects which requests share a gate: a [`KeyBy`](crate::KeyBy) as data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum KeyChoice {
    /// By host.
    ///
    /// As [`KeyBy::Host`](crate::KeyBy::Host).
    #[default]
    Host,
    /// By host, and by this many segments of the path.
    ///
    /// As [`KeyBy::HostAndPath`](crate::KeyBy::HostAndPath). In a file: `key_by = { host_and_path = 2 }`.
    HostAndPath(#[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<usize>"))] usize),
    /// By a function in the code of the program. Without one, this is an error.
    ///
    /// The builder gets it by [`KeyBy::from_fn`](crate::KeyBy::from_fn).
    FromFn,
}

#[cfg(feature = "serde")]
impl Choice for KeyChoice {
    const FORMS: &'static str = "\"host\", \"from_fn\" or { host_and_path = 1 }";
    const WITH_VALUE: Option<(&'static str, &'static str)> = Some((
        "host_and_path",
        "`host_and_path` needs a number of segments: write { host_and_path = 1 }",
    ));
}
