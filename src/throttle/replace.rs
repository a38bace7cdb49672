//! Replaces the settings of a throttle while it runs.

use std::sync::Arc;

use super::ThrottleMiddleware;
use super::config::ThrottleConfig;
use super::gate::Gate;
use crate::config::{ConfigError, fixed_while_running, or_none};
use crate::settings::{RateLimit, ThrottleSettings};

impl ThrottleMiddleware {
    /// Replaces all settings that are data, for all clones.
    ///
    /// Every gate keeps its queue and what it has learned. `max_in_flight`, `rate` and `adaptive` apply immediately,
    /// even to requests in the queue. All other settings apply to new requests. If `key_by` changes, new requests get
    /// new keys and so new gates.
    ///
    /// ```
    /// use reqwest_steady::ThrottleMiddleware;
    ///
    /// let throttle = ThrottleMiddleware::default();
    /// let mut settings = throttle.settings();
    /// settings.max_in_flight = 8;
    /// throttle.replace(settings)?;
    /// assert_eq!(throttle.max_in_flight(), 8);
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a setting is invalid, or cannot change: the seed, and with a fleet, `rate` and `adaptive`. Then nothing
    /// changes.
    pub fn replace(&self, settings: ThrottleSettings) -> Result<(), ConfigError> {
        self.prepare(settings)?();
        Ok(())
    }

    /// Checks new settings, and returns a function that puts them into effect and cannot fail.
    pub(crate) fn prepare(
        &self,
        settings: ThrottleSettings,
    ) -> Result<impl FnOnce() + use<'_>, ConfigError> {
        let throttle = &*self.throttle;
        let new = ThrottleConfig::new(settings, &throttle.parts)?;
        let old = &throttle.config.get().data;
        fixed_while_running("seed", or_none(old.seed), or_none(new.data.seed))?;
        if throttle.parts.fleet.is_some() {
            let rate = |it: RateLimit| format!("{}/s with a burst of {}", it.per_second, it.burst);
            let (old_rate, new_rate) = (old.rate.map(rate), new.data.rate.map(rate));
            fixed_while_running("rate", or_none(old_rate), or_none(new_rate))?;
            fixed_while_running("adaptive", old.adaptive, new.data.adaptive)?;
        }
        Ok(move || {
            throttle.config.set(new);
            // Gates that are created after this have the new settings already. The others are collected first, because
            // `apply` may wake requests, and the table is locked during `update_all`.
            let mut gates = Vec::new();
            (throttle.gates).update_all(|gate: &mut Arc<Gate>| gates.push(Arc::clone(gate)));
            let config = throttle.config.get();
            gates.iter().for_each(|gate| gate.apply(&config));
        })
    }
}
