//! Reads the settings of a coalescing middleware back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::config::CoalesceConfig;
use super::{CoalesceMiddleware, CoalesceMiddlewareBuilder};
use crate::config::ShownSettings;
use crate::settings::CoalesceSettings;

/// # Settings
///
/// Each has the name of its method in [`CoalesceMiddlewareBuilder`].
impl CoalesceMiddleware {
    /// Returns the settings that are data, which are all.
    pub fn settings(&self) -> CoalesceSettings {
        self.config().data.clone()
    }

    /// What a call that begins now would use.
    fn config(&self) -> Arc<CoalesceConfig> {
        self.config.get()
    }

    /// Returns the most bytes of a shared body.
    pub fn max_body(&self) -> usize {
        self.config().max_body
    }

    /// Returns how long waiting callers wait for one request.
    pub fn leader_timeout(&self) -> Duration {
        self.config().leader_timeout
    }

    /// Returns the headers that are not compared, besides those for tracing.
    pub fn ignored_headers(&self) -> Vec<String> {
        let config = self.config();
        config
            .ignored
            .headers
            .iter()
            .map(|name| name.to_string())
            .collect()
    }

    /// Returns whether requests with unknown extensions are shared.
    pub fn ignore_extensions(&self) -> bool {
        self.config().ignored.extensions
    }
}

/// Shows the number of requests in flight and not what they are, because that may be secret.
impl fmt::Debug for CoalesceMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = ShownSettings::new(f, "CoalesceMiddleware");
        show(&mut shown, &self.config().data);
        shown.setting("in_flight", self.flights.count()).finish()
    }
}

impl fmt::Debug for CoalesceMiddlewareBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = ShownSettings::new(f, "CoalesceMiddlewareBuilder");
        show(&mut shown, &self.data);
        shown.finish()
    }
}

fn show(shown: &mut ShownSettings<'_, '_>, data: &CoalesceSettings) {
    shown
        .setting("max_body", data.max_body)
        .setting("leader_timeout", data.leader_timeout)
        .setting("ignored_headers", &data.ignore_header)
        .setting("ignore_extensions", data.ignore_extensions);
}
