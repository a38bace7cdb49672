//! The settings of coalescing.

use std::time::Duration;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

#[cfg(feature = "serde")]
use crate::config::text;

/// Holds the settings of a [`CoalesceMiddleware`](crate::CoalesceMiddleware).
///
/// Each field has the name of a method of [`CoalesceMiddlewareBuilder`](crate::CoalesceMiddlewareBuilder), which
/// explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "a table of settings")
)]
#[non_exhaustive]
pub struct CoalesceSettings {
    /// The most bytes of a response body that callers share.
    ///
    /// Default: 1 MiB.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<usize>"))]
    pub max_body: usize,
    /// How long waiting callers wait for one request.
    ///
    /// Default: 75 s.
    #[cfg_attr(feature = "serde", serde(with = "text::DurationText"))]
    pub leader_timeout: Duration,
    /// The headers that are not compared, besides those for tracing.
    ///
    /// Default: none.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "text::list"))]
    pub ignore_header: Vec<String>,
    /// Whether requests with unknown extensions are shared.
    ///
    /// Default: `false`.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<bool>"))]
    pub ignore_extensions: bool,
}

impl Default for CoalesceSettings {
    fn default() -> Self {
        Self {
            max_body: 1024 * 1024,
            leader_timeout: Duration::from_secs(75),
            ignore_header: Vec::new(),
            ignore_extensions: false,
        }
    }
}
