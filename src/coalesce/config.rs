//! The settings of coalescing in the form that its calls use, and their checks.

use std::time::Duration;

use super::ignored::{Ignored, NEVER_IGNORED};
use crate::config::{ConfigError, ensure, header_name, is_listed, longer_than_zero};
use crate::settings::CoalesceSettings;

/// The settings of coalescing, in the form that calls use.
///
/// Always valid and never changed: [`CoalesceMiddleware::replace`](super::CoalesceMiddleware::replace) makes a new
/// one.
pub(super) struct CoalesceConfig {
    /// The settings from which the other fields were made.
    pub(super) data: CoalesceSettings,
    pub(super) max_body: usize,
    /// Longer than zero.
    pub(super) leader_timeout: Duration,
    pub(super) ignored: Ignored,
}

impl CoalesceConfig {
    /// Brings settings into the form that calls use.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub(super) fn new(data: CoalesceSettings) -> Result<Self, ConfigError> {
        let setting = "ignore_header";
        let mut headers = Vec::new();
        for name in &data.ignore_header {
            let header = header_name(setting, name)?;
            let rule = "should not be a header that selects the response or carries credentials";
            ensure(!is_listed(&header, NEVER_IGNORED), setting, name, rule)?;
            headers.push(header.as_str().into());
        }
        longer_than_zero("leader_timeout", Some(data.leader_timeout))?;
        Ok(Self {
            max_body: data.max_body,
            leader_timeout: data.leader_timeout,
            ignored: Ignored {
                headers,
                extensions: data.ignore_extensions,
            },
            data,
        })
    }
}
