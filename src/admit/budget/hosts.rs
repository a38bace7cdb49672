//! Which budget a call uses: one per host, or one for all.

use super::Budget;
use super::builder::BudgetBuilder;
use super::fleet_budget::FleetBudget;
use crate::config::ConfigError;
use crate::fleet::FleetLimits;
use crate::host::BoundedTable;

/// Which budgets a retry middleware has.
#[derive(Clone, Debug, Default)]
pub(crate) struct BudgetSettings {
    /// Replaces the budgets of all hosts.
    pub(crate) single: Option<Budget>,
    /// The settings for each host. `None` stands for the defaults.
    pub(crate) per_host: Option<BudgetBuilder>,
    /// Shares the budgets of all hosts with other workers.
    pub(crate) fleet: Option<FleetLimits>,
}

/// The budgets of all hosts.
#[derive(Debug)]
pub(crate) struct Budgets {
    settings: BudgetSettings,
    /// One per host, and per port that is not the scheme's default. It forgets budgets that are as good as new before
    /// those in debt.
    hosts: BoundedTable<Budget>,
}

impl BudgetSettings {
    /// The settings of each host, unless one budget replaces them.
    pub(crate) fn shown_per_host(&self) -> Option<BudgetBuilder> {
        (self.single.is_none()).then(|| self.per_host.clone().unwrap_or_default())
    }

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
}

impl Budgets {
    pub(crate) fn new(settings: BudgetSettings) -> Self {
        Self {
            settings,
            hosts: BoundedTable::new(Budget::is_in_debt),
        }
    }

    /// Returns the budget of a host. `hash` is the hash of its name. The settings must be valid.
    pub(crate) fn of(&self, host: &str, hash: u64) -> Budget {
        let settings = &self.settings;
        if let Some(budget) = &settings.single {
            return budget.clone();
        }
        let new = |now| {
            let each = settings.per_host.clone().unwrap_or_default();
            let shared = |fleet| FleetBudget::new(fleet, host, each.terms, now);
            each.start(now, settings.fleet.as_ref().map(shared))
        };
        (self.hosts).get(hash, new, |old, now| *old = new(now))
    }
}
