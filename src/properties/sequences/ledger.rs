//! A model of a budget: its reserve, and a list of deposits and withdrawals.

use std::time::Duration;

use super::plan::BudgetPlan;

/// A withdrawal that can be undone.
#[derive(Clone, Copy)]
pub(super) enum Paid {
    /// There is no budget, or a release from the line has paid.
    Free,
    Reserve,
    /// The index of its entry.
    Deposits(usize),
}

/// All entries with their slots. A slot is a fifteenth of the time to live, and an entry counts for one slot more.
pub(super) struct Ledger<'p> {
    budget_plan: Option<&'p BudgetPlan>,
    entries: Vec<(u128, i64)>,
    /// In retries.
    reserve: f64,
    refilled: Duration,
}

impl<'p> Ledger<'p> {
    pub(super) fn new(budget_plan: Option<&'p BudgetPlan>) -> Self {
        Self {
            budget_plan,
            entries: Vec::new(),
            reserve: budget_plan.map_or(0.0, |plan| plan.reserve.into()),
            refilled: Duration::ZERO,
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
            return Some(Paid::Free);
        };
        if self.reserve >= 1.0 {
            self.reserve -= 1.0;
            return Some(Paid::Reserve);
        }
        let cost = i64::from(budget_plan.ratio.1);
        if self.units(budget_plan, now) < cost {
            return None;
        }
        self.entries.push((slot(budget_plan, now), -cost));
        Some(Paid::Deposits(self.entries.len() - 1))
    }

    /// Undoes a withdrawal.
    pub(super) fn refund(&mut self, paid: Paid) {
        match paid {
            Paid::Free => {}
            Paid::Reserve => self.add_to_reserve(1.0),
            Paid::Deposits(index) => self.entries[index].1 = 0,
        }
    }

    /// Counts a failed attempt without a paid retry.
    pub(super) fn fail(&mut self) {
        self.reserve = (self.reserve - 0.5).max(0.0);
    }

    /// Refills the reserve, by at most one retry and by no more than its rate allows.
    pub(super) fn succeed(&mut self, now: Duration) {
        let Some(plan) = self.budget_plan else {
            return;
        };
        if self.reserve < plan.reserve.into() {
            let per_sec = f64::from(plan.reserve) / plan.ttl.as_secs_f64();
            // The budget counts in whole millionths.
            let earned = (now - self.refilled).as_nanos() as f64 * (per_sec * 1e6 / 1e9);
            let earned = earned.min(1e6).floor() / 1e6;
            if earned > 0.0 {
                self.refilled = now;
                self.add_to_reserve(earned);
            }
        }
    }

    fn add_to_reserve(&mut self, retries: f64) {
        let size = self.budget_plan.map_or(0.0, |plan| plan.reserve.into());
        self.reserve = (self.reserve + retries).min(size);
    }

    pub(super) fn balance(&self, now: Duration) -> f64 {
        match self.budget_plan {
            None => f64::INFINITY,
            Some(budget_plan) => {
                let units = self.units(budget_plan, now).max(0);
                self.reserve + units as f64 / f64::from(budget_plan.ratio.1)
            }
        }
    }

    fn units(&self, budget_plan: &BudgetPlan, now: Duration) -> i64 {
        let now = slot(budget_plan, now);
        let live = self.entries.iter().filter(|(slot, _)| now - slot < 16);
        live.map(|(_, units)| units).sum()
    }
}

fn slot(budget_plan: &BudgetPlan, time: Duration) -> u128 {
    time.as_nanos() / budget_plan.ttl.as_nanos().div_ceil(15)
}
