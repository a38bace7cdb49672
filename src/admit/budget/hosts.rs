//! Which budget a call uses: one per host, or one for all.

use super::Budget;
use super::builder::BudgetBuilder;
use super::fleet_budget::FleetBudget;
use crate::config::ConfigError;
use crate::fleet::FleetLimits;
use crate::host::BoundedTable;

/// The budgets of a retry middleware, as configured.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// Replaces the budgets of all hosts.
    pub(crate) single: Option<Budget>,
    /// The settings for each host. `None` stands for the defaults.
    pub(crate) per_host: Option<BudgetBuilder>,
    /// Shares the budgets of all hosts with other workers.
    pub(crate) fleet: Option<FleetLimits>,
    /// One per host, and per port that is not the scheme's default. It forgets budgets that are as good as new before
    /// those in debt.
    hosts: BoundedTable<Budget>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            single: None,
            per_host: None,
            fleet: None,
            hosts: BoundedTable::new(Budget::is_in_debt),
        }
    }
}

impl Budgets {
    /// Refuses invalid settings, and those of hosts beside a single budget.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let ambiguous = "is ambiguous: remove one of them, because a call has one budget";
        let unshared = "should be given with budgets per host, because it shares those";
        for (setting, is_set, rule) in [
            ("budget_per_host", self.per_host.is_some(), ambiguous),
            ("fleet", self.fleet.is_some(), unshared),
        ] {
            if is_set && self.single.is_some() {
                let value = "with `budget`";
                return Err(ConfigError::new(setting, value, rule));
            }
        }
        (self.per_host.iter()).try_for_each(|each| each.terms.check())
    }

    /// Returns the budget of a host. `hash` is the hash of its name. The settings must be valid.
    pub(crate) fn of(&self, host: &str, hash: u64) -> Budget {
        if let Some(budget) = &self.single {
            return budget.clone();
        }
        let new = |now| {
            let settings = self.per_host.clone().unwrap_or_default();
            let shared = |fleet| FleetBudget::new(fleet, host, settings.terms, now);
            settings.start(now, self.fleet.as_ref().map(shared))
        };
        (self.hosts).get(hash, new, |old, now| *old = new(now))
    }
}
