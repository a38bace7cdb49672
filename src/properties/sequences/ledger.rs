//! A model of a budget: a list of deposits and withdrawals.

use std::time::Duration;

use super::plan::BudgetPlan;

/// A withdrawal that can be undone.
#[derive(Clone, Copy)]
pub(super) struct Paid(Option<usize>);

/// All entries with their slots. A slot is a fifteenth of the time to live, and an entry counts for one slot more.
pub(super) struct Ledger<'p> {
    budget_plan: Option<&'p BudgetPlan>,
    entries: Vec<(u128, i64)>,
}

impl<'p> Ledger<'p> {
    pub(super) fn new(budget_plan: Option<&'p BudgetPlan>) -> Self {
        let entries = Vec::new();
        Self {
            budget_plan,
            entries,
        }
    }

    pub(super) fn budget_plan(&self) -> Option<&'p BudgetPlan> {
        self.budget_plan
    }

    pub(super) fn deposit(&mut self, now: Duration) {
        if let Some(budget_plan) = self.budget_plan {
            let slot = slot(budget_plan, now);
            self.entries.push((slot, i64::from(budget_plan.ratio.0)));
        }
    }

    /// Pays for a retry. `None` if the budget is empty.
    pub(super) fn withdraw(&mut self, now: Duration) -> Option<Paid> {
        let Some(budget_plan) = self.budget_plan else {
            return Some(Paid(None));
        };
        let cost = i64::from(budget_plan.ratio.1);
        if self.units(budget_plan, now) < cost {
            return None;
        }
        self.entries.push((slot(budget_plan, now), -cost));
        Some(Paid(Some(self.entries.len() - 1)))
    }

    /// Undoes a withdrawal.
    pub(super) fn refund(&mut self, paid: Paid) {
        if let Paid(Some(index)) = paid {
            self.entries[index].1 = 0;
        }
    }

    pub(super) fn balance(&self, now: Duration) -> f64 {
        match self.budget_plan {
            None => f64::INFINITY,
            Some(budget_plan) => {
                let units = self.units(budget_plan, now).max(0);
                units as f64 / f64::from(budget_plan.ratio.1)
            }
        }
    }

    fn units(&self, budget_plan: &BudgetPlan, now: Duration) -> i64 {
        let now = slot(budget_plan, now);
        let live = self.entries.iter().filter(|(slot, _)| now - slot < 16);
        let net: i64 = live.map(|(_, units)| units).sum();
        i64::from(budget_plan.reserve) * i64::from(budget_plan.ratio.1) + net
    }
}

fn slot(budget_plan: &BudgetPlan, time: Duration) -> u128 {
    time.as_nanos() / budget_plan.ttl.as_nanos().div_ceil(15)
}
