//! Reads the settings of a coalescing middleware back.

use std::fmt;
use std::time::Duration;

use super::builder::CoalesceSettings;
use super::{CoalesceMiddleware, CoalesceMiddlewareBuilder};
use crate::config::ShownSettings;

/// # Settings
///
/// Each has the name of its method in [`CoalesceMiddlewareBuilder`].
impl CoalesceMiddleware {
    /// Returns the most bytes of a shared body.
    pub fn max_body(&self) -> usize {
        self.settings.max_body
    }

    /// Returns how long waiting callers wait for one request.
    pub fn leader_timeout(&self) -> Duration {
        self.settings.leader_timeout
    }

    /// Iterates over the headers that are not compared, besides those for tracing.
    pub fn ignored_headers(&self) -> impl Iterator<Item = &str> {
        self.settings.ignored.headers.iter().map(|name| &**name)
    }

    /// Returns whether requests with unknown extensions are shared.
    pub fn ignore_extensions(&self) -> bool {
        self.settings.ignored.extensions
    }
}

/// Shows the number of requests in flight and not what they are, because that may be secret.
impl fmt::Debug for CoalesceMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = ShownSettings::new(f, "CoalesceMiddleware");
        self.settings.show(&mut shown);
        shown.setting("in_flight", self.flights.count()).finish()
    }
}

impl fmt::Debug for CoalesceMiddlewareBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = ShownSettings::new(f, "CoalesceMiddlewareBuilder");
        self.settings.show(&mut shown);
        shown.finish()
    }
}

impl CoalesceSettings {
    fn show(&self, shown: &mut ShownSettings<'_, '_>) {
        shown
            .setting("max_body", self.max_body)
            .setting("leader_timeout", self.leader_timeout)
            .setting("ignored_headers", &self.ignored.headers)
            .setting("ignore_extensions", self.ignored.extensions);
    }
}
