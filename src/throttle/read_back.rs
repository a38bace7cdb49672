//! Reads the settings of a throttle back.

use std::fmt;
use std::time::Duration;

use super::builder::ThrottleSettings;
use super::{KeyBy, ThrottleMiddleware, ThrottleMiddlewareBuilder};
use crate::config::ShownSettings;
use crate::fleet::{FleetLimits, SharedRate};
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;

/// # Settings
///
/// Each has the name of its method in [`ThrottleMiddlewareBuilder`].
impl ThrottleMiddleware {
    /// Returns the most requests in flight per key.
    pub fn max_in_flight(&self) -> u32 {
        self.throttle.settings.max_in_flight
    }

    /// Returns the most calls in the queue of one key.
    pub fn max_queue(&self) -> usize {
        self.throttle.settings.max_queue
    }

    /// Returns the longest time of one call in the queue.
    pub fn max_queue_wait(&self) -> Duration {
        self.throttle.settings.max_queue_wait
    }

    /// Returns the fixed rate per key: requests per second, and burst.
    pub fn rate(&self) -> Option<(f64, u32)> {
        let rate = self.throttle.settings.rate;
        rate.map(|SharedRate { per_second, burst }| (per_second, burst))
    }

    /// Returns the fleet that shares the limits.
    pub fn fleet(&self) -> Option<&FleetLimits> {
        self.throttle.settings.fleet.as_ref()
    }

    /// Returns whether the throttle learns from responses.
    pub fn adaptive(&self) -> bool {
        self.throttle.settings.adaptive
    }

    /// Returns which requests share one gate.
    pub fn key_by(&self) -> &KeyBy {
        &self.throttle.settings.key_by
    }

    /// Returns the log level of each kind of event.
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn log_levels(&self) -> LogLevels {
        self.throttle.settings.levels
    }

    /// Returns the seed of all jitter. `None` outside tests.
    pub fn seed(&self) -> Option<u64> {
        self.throttle.settings.seed
    }
}

impl fmt::Debug for ThrottleMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.throttle.settings.show(f, "ThrottleMiddleware")
    }
}

impl fmt::Debug for ThrottleMiddlewareBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.show(f, "ThrottleMiddlewareBuilder")
    }
}

impl ThrottleSettings {
    fn show(&self, f: &mut fmt::Formatter<'_>, type_name: &str) -> fmt::Result {
        let mut shown = ShownSettings::new(f, type_name);
        shown
            .setting("max_in_flight", self.max_in_flight)
            .setting("max_queue", self.max_queue)
            .setting("max_queue_wait", self.max_queue_wait)
            .optional("rate", self.rate)
            .setting("adaptive", self.adaptive)
            .setting("key_by", &self.key_by)
            .optional("fleet", self.fleet.as_ref())
            .unless(0, "observers", self.observers.count());
        #[cfg(feature = "tracing")]
        shown.unless(LogLevels::default(), "log_levels", self.levels);
        shown.optional("seed", self.seed).finish()
    }
}
