//! Replaces the settings of a retry while it runs.

use super::RetryMiddleware;
use super::config::RetryConfig;
use crate::admit::Deposit;
use crate::clock;
use crate::config::{ConfigError, Written, fixed_while_running, or_none};
use crate::lock::lock;
use crate::presets::Preset;
use crate::settings::{BudgetSettings, RetrySettings};

impl RetryMiddleware {
    /// Replaces all settings that are data, for new calls of all clones.
    ///
    /// Functions, sinks, observers, a fleet, a shared budget and a preset stay. So does what the middleware knows about
    /// hosts. If the settings of the budget change, each host's new budget starts with what was left of its old one,
    /// up to the new size.
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
        fixed_while_running("seed", or_none(old.seed), or_none(new.data.seed))?;
        if self.state.parts.fleet.is_some() {
            let (old, new) = (old.budget_per_host, new.data.budget_per_host);
            fixed_budget(old, new)?;
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

/// Refuses another budget while a fleet shares it. The error names the setting that differs.
fn fixed_budget(old: BudgetSettings, new: BudgetSettings) -> Result<(), ConfigError> {
    let [old, new] = [old, new].map(|it| {
        let deposit_on = match it.deposit_on {
            Deposit::Success => "success",
            Deposit::Request => "request",
        };
        [
            ("budget_per_host ttl", Written(it.ttl).to_string()),
            (
                "budget_per_host min_retries_per_sec",
                it.min_retries_per_sec.to_string(),
            ),
            ("budget_per_host retry_ratio", it.retry_ratio.to_string()),
            ("budget_per_host deposit_on", deposit_on.to_owned()),
        ]
    });
    let mut both = old.into_iter().zip(new);
    both.try_for_each(|((setting, old), (_, new))| fixed_while_running(setting, old, new))
}
