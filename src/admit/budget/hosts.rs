//! Which budget a call uses: one per host, or one for all.

use std::sync::{Arc, OnceLock};

use super::Budget;
use super::builder::BudgetBuilder;
use super::fleet_budget::FleetBudget;
use super::state::{BudgetState, BudgetUnits};
use crate::config::ConfigError;
use crate::fleet::FleetLimits;
use crate::host::BoundedTable;

#[derive(Debug)]
pub(crate) enum Budgets {
    /// One per host, and per port that is not the scheme's default.
    PerHost(Box<HostBudgets>),
    Single(Budget),
}

/// A bounded table of budgets. It forgets budgets that are as good as new before those in debt.
#[derive(Debug)]
pub(crate) struct HostBudgets {
    table: BoundedTable<Budget>,
    settings: BudgetBuilder,
    /// Computed once, after the settings were checked.
    units: OnceLock<BudgetUnits>,
    fleet: Option<FleetLimits>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self::per_host(BudgetBuilder::default())
    }
}

impl Budgets {
    /// Creates a table of budgets with these settings. [`check`](Self::check) must accept them before use.
    pub(crate) fn per_host(settings: BudgetBuilder) -> Self {
        Self::PerHost(Box::new(HostBudgets {
            table: BoundedTable::new(Budget::is_in_debt),
            settings,
            units: OnceLock::new(),
            fleet: None,
        }))
    }

    /// Shares the budgets of all hosts with other workers.
    pub(crate) fn share(&mut self, fleet: FleetLimits) -> Result<(), ConfigError> {
        match self {
            Self::PerHost(hosts) => {
                hosts.fleet = Some(fleet);
                Ok(())
            }
            Self::Single(_) => Err(ConfigError::new(
                "fleet",
                "with `budget` or `no_budget`",
                "should be given with budgets per host, because it shares those",
            )),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::PerHost(hosts) => hosts.settings.check(),
            Self::Single(_) => Ok(()),
        }
    }

    /// Returns the budget of a host. `hash` is the hash of its name.
    pub(crate) fn of(&self, host: &str, hash: u64) -> Budget {
        match self {
            Self::Single(budget) => budget.clone(),
            Self::PerHost(hosts) => hosts.get(host, hash),
        }
    }
}

impl HostBudgets {
    fn get(&self, host: &str, hash: u64) -> Budget {
        let new = |now| {
            let units = *self.units.get_or_init(|| self.settings.units());
            let terms = self.settings.retry_terms();
            let shared = |fleet| FleetBudget::new(fleet, host, terms, now);
            let state = BudgetState::new(units, now, self.fleet.as_ref().map(shared));
            Budget(Some(Arc::new(state)))
        };
        (self.table).get(hash, new, |old, now| *old = new(now))
    }
}
