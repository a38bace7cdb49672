//! The retry budget of all workers: a sliding window of slots.
//!
//! `redis/retries.lua` does the same in Lua, in the same order. Change both together.

use std::collections::BTreeMap;

use crate::fleet::{Retries, RetriesAsk};

/// As many as a [`Budget`](crate::Budget) has.
const SLOTS: f64 = 16.0;

/// Slots by their start in microseconds, so that workers with another ttl can read them.
#[derive(Debug, Default)]
pub(super) struct RetrySlots(BTreeMap<u64, RetrySlot>);

/// Counts and not amounts, so that nothing is lost to rounding and the ratio can change.
#[derive(Debug, Default)]
struct RetrySlot {
    deposits: u64,
    taken: u64,
}

impl RetrySlots {
    pub(super) fn take(&mut self, now: f64, ask: &RetriesAsk) -> Retries {
        let width = ask.terms.slot();
        let open = (now / width).floor() * width;
        self.0
            .retain(|start, _| *start as f64 > open - SLOTS * width);
        self.give_back(u64::from(ask.unused));
        self.open(open).deposits += ask.deposits;
        let balance = self.balance(ask);
        // The tolerance makes ten times 0.1 a whole retry.
        let granted = ask.want.min((balance + 1e-6).floor() as u32);
        self.open(open).taken += u64::from(granted);
        Retries {
            granted,
            balance: (balance - f64::from(granted)).max(0.0),
        }
    }

    fn open(&mut self, start: f64) -> &mut RetrySlot {
        self.0.entry(start as u64).or_default()
    }

    /// Gives back to the oldest slot first. In a newer one, the retry would count twice once the debit
    /// expires.
    fn give_back(&mut self, mut unused: u64) {
        for slot in self.0.values_mut() {
            let back = unused.min(slot.taken);
            slot.taken -= back;
            unused -= back;
        }
    }

    fn balance(&self, ask: &RetriesAsk) -> f64 {
        let deposits = self.0.values().map(|slot| slot.deposits).sum::<u64>();
        let taken = self.0.values().map(|slot| slot.taken).sum::<u64>();
        let net = deposits as f64 * ask.terms.ratio - taken as f64;
        (net + ask.terms.reserve()).max(0.0)
    }
}
