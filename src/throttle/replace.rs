//! Exchanges the settings of a throttle while it runs.

use std::sync::Arc;

use super::ThrottleMiddleware;
use super::config::ThrottleConfig;
use super::gate::Gate;
use crate::config::{ConfigError, fixed_while_running};
use crate::settings::ThrottleSettings;

impl ThrottleMiddleware {
    /// Exchanges all settings that are data, for all clones.
    ///
    /// Every gate keeps its queue and what it has learned. Limits on requests in flight and rates hold at once, also
    /// for the requests in the queue. All other settings hold for new requests.
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
    /// If a setting is invalid. Then nothing changes. The seed cannot change. If a fleet shares the limits, neither can
    /// `rate` and `adaptive`.
    pub fn replace(&self, settings: ThrottleSettings) -> Result<(), ConfigError> {
        self.prepare(settings)?();
        Ok(())
    }

    /// Checks new settings, and returns what puts them into effect.
    pub(crate) fn prepare(
        &self,
        settings: ThrottleSettings,
    ) -> Result<impl FnOnce() + use<'_>, ConfigError> {
        let throttle = &*self.throttle;
        let new = ThrottleConfig::new(settings, &throttle.parts)?;
        let old = &throttle.config.get().data;
        fixed_while_running("seed", old.seed, new.data.seed)?;
        if throttle.parts.fleet.is_some() {
            fixed_while_running("rate", old.rate, new.data.rate)?;
            fixed_while_running("adaptive", old.adaptive, new.data.adaptive)?;
        }
        Ok(move || {
            throttle.config.set(new);
            // A gate that is created from now on has the new settings already.
            let mut gates = Vec::new();
            (throttle.gates).update_all(|gate: &mut Arc<Gate>| gates.push(Arc::clone(gate)));
            let config = throttle.config.get();
            gates.iter().for_each(|gate| gate.apply(&config));
        })
    }
}
