//! Exchanges the settings of a retry while it runs.

use super::RetryMiddleware;
use super::config::RetryConfig;
use crate::clock;
use crate::config::{ConfigError, fixed_while_running};
use crate::presets::Preset;
use crate::settings::RetrySettings;

impl RetryMiddleware {
    /// Exchanges all settings that are data. They hold for new calls of all clones.
    ///
    /// Functions, sinks, observers, a fleet, a shared budget and a preset stay. So does what was learned of hosts. If the settings
    /// of the budget change, each host gets a new budget with what is left of its reserve.
    ///
    /// ```
    /// use reqwest_steady::RetryMiddleware;
    ///
    /// let retry = RetryMiddleware::default();
    /// let mut settings = retry.settings();
    /// settings.max_retries = 1;
    /// retry.replace(settings)?;
    /// assert_eq!(retry.max_retries(), 1);
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a setting is invalid. Then nothing changes. The seed cannot change, and neither can the budget if a fleet
    /// shares it.
    pub fn replace(&self, settings: RetrySettings) -> Result<(), ConfigError> {
        self.prepare(settings, self.preset())?();
        Ok(())
    }

    /// Checks new settings, and returns what puts them into effect.
    pub(crate) fn prepare(
        &self,
        settings: RetrySettings,
        preset: Option<Preset>,
    ) -> Result<impl FnOnce() + use<'_>, ConfigError> {
        let new = RetryConfig::new(settings, preset, &self.state.parts)?;
        let old = &self.state.config.get().data;
        fixed_while_running("seed", old.seed, new.data.seed)?;
        if self.state.parts.fleet.is_some() {
            let (old, new) = (old.budget_per_host, new.data.budget_per_host);
            fixed_while_running("budget_per_host", old, new)?;
        }
        Ok(move || {
            let budget = new.data.budget_per_host;
            let is_shared = new.budgets.single.is_some() || new.budgets.fleet.is_some();
            let has_new_budget = budget != self.state.config.get().data.budget_per_host;
            self.state.config.set(new);
            if has_new_budget && !is_shared {
                let budget = budget.builder();
                self.state.hosts.replace_budgets(&budget, clock::now());
            }
        })
    }
}
