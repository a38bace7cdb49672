//! Replaces the settings of a retry while it runs.

use super::RetryMiddleware;
use super::config::RetryConfig;
use crate::clock;
use crate::config::{ConfigError, fixed_while_running};
use crate::lock::lock;
use crate::presets::Preset;
use crate::settings::RetrySettings;

impl RetryMiddleware {
    /// Replaces all settings that are data, for new calls of all clones.
    ///
    /// Functions, sinks, observers, a fleet, a shared budget and a preset stay. So does what the middleware knows about
    /// hosts. If the settings of the budget change, each host gets a new budget with what is left of its old reserve.
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
    /// If a setting is invalid, or cannot change: the seed, and the budget if a fleet shares it. Then nothing changes.
    pub fn replace(&self, settings: RetrySettings) -> Result<(), ConfigError> {
        self.prepare(settings, self.preset())?();
        Ok(())
    }

    /// Checks new settings, and returns a function that puts them into effect and cannot fail.
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
            let _replacing = lock(&self.state.replacing);
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
