//! The retry budget of all workers: a pool that successes refill, and a sliding window of slots.
//!
//! `redis/retries.lua` does the same in Lua, in the same order. Change both together.

use std::collections::BTreeMap;

use crate::fleet::{Retries, RetriesAsk};

/// As many as a [`Budget`](crate::Budget) has.
const SLOTS: f64 = 16.0;

/// How long an unfilled pool is kept, in microseconds. A new one would be full, in the middle of an outage.
const POOL_LIFE: f64 = 3600e6;
const SECOND: f64 = 1e6;

#[derive(Debug, Default)]
pub(super) struct RetrySlots {
    /// Slots by their start in microseconds, so that workers with another ttl can read them.
    slots: BTreeMap<u64, RetrySlot>,
    /// `None` stands for a full pool.
    pool: Option<Pool>,
}

/// The pool of all workers, as that of one [`Budget`](crate::Budget).
#[derive(Clone, Copy, Debug)]
struct Pool {
    /// In retries.
    level: f64,
    /// When successes last refilled it.
    refilled: f64,
}

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
        self.slots
            .retain(|start, _| *start as f64 > open - SLOTS * width);
        let (pool, unused) = self.refill(now, ask);
        self.give_back(unused);
        self.open(open).deposits += ask.deposits;
        let (from_pool, level) = take_from_pool(pool.level, ask);
        let saved = self.saved(ask);
        // The tolerance makes ten times 0.1 a whole retry.
        let from_window = (ask.want - from_pool).min((saved + 1e-6).floor() as u32);
        self.open(open).taken += u64::from(from_window);
        self.pool = Some(Pool { level, ..pool });
        Retries {
            granted: from_pool + from_window,
            balance: level + (saved - f64::from(from_window)).max(0.0),
        }
    }

    /// Returns how long to keep this, in microseconds.
    pub(super) fn life(&self, ask: &RetriesAsk) -> f64 {
        let life = ask.terms.ttl.as_micros() as f64 * 2.0;
        match self.pool {
            Some(pool) if pool.level < ask.terms.reserve() => life.max(POOL_LIFE),
            _ => life,
        }
    }

    /// Adds to the pool what successes and unused retries give. Returns it, and the unused retries that it has no
    /// room for.
    fn refill(&self, now: f64, ask: &RetriesAsk) -> (Pool, u64) {
        let size = ask.terms.reserve();
        let full = Pool {
            level: size,
            refilled: now,
        };
        let pool = self.pool.unwrap_or(full);
        let passed = (now - pool.refilled).max(0.0) / SECOND;
        let refill = (ask.successes as f64).min(passed * ask.terms.min_per_sec);
        let level = (pool.level + refill).min(size);
        let back = f64::from(ask.unused).min((size - level).ceil());
        let pool = Pool {
            level: (level + back).min(size),
            refilled: if ask.successes > 0 {
                now
            } else {
                pool.refilled.min(now)
            },
        };
        (pool, u64::from(ask.unused) - back as u64)
    }

    fn open(&mut self, start: f64) -> &mut RetrySlot {
        self.slots.entry(start as u64).or_default()
    }

    /// Gives back to the oldest slot first. In a newer one, the retry would count twice once the debit
    /// expires.
    fn give_back(&mut self, mut unused: u64) {
        for slot in self.slots.values_mut() {
            let back = unused.min(slot.taken);
            slot.taken -= back;
            unused -= back;
        }
    }

    /// Returns how many retries the deposits pay for.
    fn saved(&self, ask: &RetriesAsk) -> f64 {
        let deposits = self.slots.values().map(|slot| slot.deposits).sum::<u64>();
        let taken = self.slots.values().map(|slot| slot.taken).sum::<u64>();
        (deposits as f64 * ask.terms.ratio - taken as f64).max(0.0)
    }
}

/// Takes the wanted retries, and half a retry for each failure without one. Returns how many are granted, and what is
/// left.
fn take_from_pool(level: f64, ask: &RetriesAsk) -> (u32, f64) {
    let granted = f64::from(ask.want).min((level + 1e-6).floor());
    let level = level - granted - ask.failures as f64 / 2.0;
    (granted as u32, level.max(0.0))
}
