//! The settings of a throttle in the form that its requests use, and their checks.

use std::time::Duration;

use super::key::KeyBy;
use crate::config::{ConfigError, Written, ensure};
use crate::fleet::{FleetLimits, SharedRate};
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::observe::{Event, Observers};
use crate::settings::{KeyChoice, ThrottleSettings};

/// What a builder gets that is not data: a function, and what is shared with other middlewares.
#[derive(Clone, Default)]
pub(super) struct ThrottleParts {
    /// Always a [`KeyBy::FromFn`].
    pub(super) key_fn: Option<KeyBy>,
    pub(super) fleet: Option<FleetLimits>,
    pub(super) observers: Observers,
}

/// The settings of a throttle, in the form that requests use.
///
/// Always valid and never changed: [`ThrottleMiddleware::replace`](super::ThrottleMiddleware::replace) makes a new
/// one.
#[derive(Clone)]
pub(super) struct ThrottleConfig {
    /// The settings from which the other fields were made.
    pub(super) data: ThrottleSettings,
    pub(super) max_in_flight: u32,
    pub(super) max_queue: usize,
    pub(super) max_queue_wait: Duration,
    /// The fixed rate: of all workers together if there is a `fleet`, otherwise of this client alone.
    pub(super) rate: Option<SharedRate>,
    pub(super) fleet: Option<FleetLimits>,
    pub(super) adaptive: bool,
    pub(super) key_by: KeyBy,
    pub(super) observers: Observers,
    #[cfg(feature = "tracing")]
    pub(super) levels: LogLevels,
}

impl ThrottleConfig {
    /// Brings settings into the form that requests use.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub(super) fn new(data: ThrottleSettings, parts: &ThrottleParts) -> Result<Self, ConfigError> {
        let key_by = match data.key_by {
            KeyChoice::Host => KeyBy::Host,
            KeyChoice::HostAndPath(segments) => KeyBy::HostAndPath(segments),
            KeyChoice::FromFn => parts.key_fn.clone().ok_or_else(|| {
                let rule = "needs a function in the code of the program: without one, use \"host\" or { host_and_path = 1 }";
                ConfigError::new("key_by", "from_fn", rule)
            })?,
        };
        let config = Self {
            max_in_flight: data.max_in_flight,
            max_queue: data.max_queue,
            max_queue_wait: data.max_queue_wait,
            rate: data.rate.map(|rate| SharedRate {
                per_second: rate.per_second,
                burst: rate.burst,
            }),
            fleet: parts.fleet.clone(),
            adaptive: data.adaptive,
            key_by,
            observers: parts.observers.clone(),
            #[cfg(feature = "tracing")]
            levels: data.log_levels,
            data,
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let at_least_1 = "should be at least 1";
        ensure(self.max_in_flight > 0, "max_in_flight", 0, at_least_1)?;
        if let Some(SharedRate { per_second, burst }) = self.rate {
            // NaN is in no range.
            let in_range = (1.0 / 86_400.0..=1e6).contains(&per_second);
            let rule = "should be between 1 per day and 1,000,000 per second";
            let shown = Written(per_second);
            ensure(in_range, "rate", format_args!("{shown}/s"), rule)?;
            ensure(burst > 0, "rate burst", 0, at_least_1)?;
        }
        Ok(())
    }

    /// Returns whether observers or the log get events of gates. If not, that work is skipped.
    pub(super) fn is_watched(&self) -> bool {
        #[cfg(feature = "tracing")]
        if self.levels.logs_throttle() {
            return true;
        }
        !self.observers.is_empty()
    }

    pub(super) fn log(&self, event: &Event<'_>) {
        #[cfg(feature = "tracing")]
        self.levels.log(event);
        #[cfg(not(feature = "tracing"))]
        let _ = event;
    }
}
