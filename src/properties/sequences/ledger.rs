//! A model of a budget: a list of deposits and withdrawals.

use std::time::Duration;

use super::plan::Purse;

/// A withdrawal that can be undone.
#[derive(Clone, Copy)]
pub(super) struct Paid(Option<usize>);

/// All entries with their slots. A slot is a fifteenth of the time to live, and an entry counts for one slot more.
pub(super) struct Ledger<'p> {
    purse: Option<&'p Purse>,
    entries: Vec<(u128, i64)>,
}

impl<'p> Ledger<'p> {
    pub(super) fn new(purse: Option<&'p Purse>) -> Self {
        let entries = Vec::new();
        Self { purse, entries }
    }

    pub(super) fn purse(&self) -> Option<&'p Purse> {
        self.purse
    }

    pub(super) fn deposit(&mut self, now: Duration) {
        if let Some(purse) = self.purse {
            let slot = slot(purse, now);
            self.entries.push((slot, i64::from(purse.ratio.0)));
        }
    }

    /// Pays for a retry. `None` if the budget is empty.
    pub(super) fn withdraw(&mut self, now: Duration) -> Option<Paid> {
        let Some(purse) = self.purse else {
            return Some(Paid(None));
        };
        let cost = i64::from(purse.ratio.1);
        if self.units(purse, now) < cost {
            return None;
        }
        self.entries.push((slot(purse, now), -cost));
        Some(Paid(Some(self.entries.len() - 1)))
    }

    /// Undoes a withdrawal.
    pub(super) fn give_back(&mut self, paid: Paid) {
        if let Paid(Some(index)) = paid {
            self.entries[index].1 = 0;
        }
    }

    pub(super) fn balance(&self, now: Duration) -> f64 {
        match self.purse {
            None => f64::INFINITY,
            Some(purse) => {
                let units = self.units(purse, now).max(0);
                units as f64 / f64::from(purse.ratio.1)
            }
        }
    }

    fn units(&self, purse: &Purse, now: Duration) -> i64 {
        let now = slot(purse, now);
        let live = self.entries.iter().filter(|(slot, _)| now - slot < 16);
        let net: i64 = live.map(|(_, units)| units).sum();
        i64::from(purse.reserve) * i64::from(purse.ratio.1) + net
    }
}

fn slot(purse: &Purse, time: Duration) -> u128 {
    time.as_nanos() / purse.ttl.as_nanos().div_ceil(15)
}
