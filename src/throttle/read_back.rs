//! Reads the settings of a throttle back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::config::{ThrottleConfig, ThrottleParts};
use super::{KeyBy, ThrottleMiddleware, ThrottleMiddlewareBuilder};
use crate::config::ShownSettings;
use crate::fleet::FleetLimits;
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::settings::ThrottleSettings;

/// # Settings
///
/// Each has the name of its method in [`ThrottleMiddlewareBuilder`].
impl ThrottleMiddleware {
    /// Returns the settings that are data.
    pub fn settings(&self) -> ThrottleSettings {
        self.config().data.clone()
    }

    /// What a request that begins now would use.
    pub(super) fn config(&self) -> Arc<ThrottleConfig> {
        self.throttle.config.get()
    }

    /// Returns the most requests in flight per key.
    pub fn max_in_flight(&self) -> u32 {
        self.config().max_in_flight
    }

    /// Returns the most calls in the queue of one key.
    pub fn max_queue(&self) -> usize {
        self.config().max_queue
    }

    /// Returns the longest time of one call in the queue.
    pub fn max_queue_wait(&self) -> Duration {
        self.config().max_queue_wait
    }

    /// Returns the fixed rate per key: requests per second, and burst.
    pub fn rate(&self) -> Option<(f64, u32)> {
        let rate = self.config().data.rate;
        rate.map(|rate| (rate.per_second, rate.burst))
    }

    /// Returns the fleet that shares the limits.
    pub fn fleet(&self) -> Option<&FleetLimits> {
        self.throttle.parts.fleet.as_ref()
    }

    /// Returns whether the throttle learns from responses.
    pub fn adaptive(&self) -> bool {
        self.config().adaptive
    }

    /// Returns which requests share one gate.
    pub fn key_by(&self) -> KeyBy {
        self.config().key_by.clone()
    }

    /// Returns the log level of each kind of event.
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn log_levels(&self) -> LogLevels {
        self.config().levels
    }

    /// Returns the seed of all jitter. `None` outside tests.
    pub fn seed(&self) -> Option<u64> {
        self.config().data.seed
    }
}

impl fmt::Debug for ThrottleMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (config, parts) = (self.config(), &self.throttle.parts);
        show(f, "ThrottleMiddleware", &config.data, &config.key_by, parts)
    }
}

impl fmt::Debug for ThrottleMiddlewareBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: &dyn fmt::Debug = match &self.parts.key_fn {
            Some(key_by) => key_by,
            None => &self.data.key_by,
        };
        show(
            f,
            "ThrottleMiddlewareBuilder",
            &self.data,
            shown,
            &self.parts,
        )
    }
}

fn show(
    f: &mut fmt::Formatter<'_>,
    type_name: &str,
    data: &ThrottleSettings,
    key_by: &dyn fmt::Debug,
    parts: &ThrottleParts,
) -> fmt::Result {
    let mut shown = ShownSettings::new(f, type_name);
    shown
        .setting("max_in_flight", data.max_in_flight)
        .setting("max_queue", data.max_queue)
        .setting("max_queue_wait", data.max_queue_wait)
        .optional("rate", data.rate)
        .setting("adaptive", data.adaptive)
        .setting("key_by", key_by)
        .optional("fleet", parts.fleet.as_ref())
        .unless(0, "observers", parts.observers.count());
    #[cfg(feature = "tracing")]
    shown.unless(LogLevels::default(), "log_levels", data.log_levels);
    shown.optional("seed", data.seed).finish()
}
