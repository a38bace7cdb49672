//! The reserve of a budget: a pool that failures empty and only successes refill.
//!
//! The ratio pays for the retries of busy clients. A client with few calls cannot save up for its next failure that
//! way, so it has a pool. A host that works keeps the pool full. A host that is down empties it once: from then on
//! only first attempts go there, and the first one that succeeds begins to refill it. A reserve that time refills
//! would go on for as long as the outage lasts, in every client of a fleet.
//!
//! `models/` runs this file under loom. It also runs the file with typical mistakes and expects loom to find each.

use super::sync::{AtomicI64, AtomicU64, Ordering};

/// One retry, in the units of a pool.
pub(crate) const RETRY: i64 = 1_000_000;
/// What a failed attempt takes that no paid retry follows. A paid retry takes a whole one, for its own part and for
/// the failure before it.
const FAILURE: i64 = RETRY / 2;

/// The pool. Times are nanoseconds, from an origin that the caller chooses.
#[derive(Debug)]
pub(crate) struct ReservePool {
    /// From 0 to `size`.
    level: AtomicI64,
    /// When a success last refilled the pool.
    refilled: AtomicU64,
    size: i64,
    /// Units that successes refill per nanosecond, at most.
    rate: f64,
}

impl ReservePool {
    /// Creates a full pool for this many retries, which successes refill by at most `per_sec` retries per second.
    pub(crate) fn new(retries: f64, per_sec: f64) -> Self {
        let size = (retries * RETRY as f64).round() as i64;
        Self {
            level: AtomicI64::new(size),
            refilled: AtomicU64::new(0),
            size,
            rate: per_sec * RETRY as f64 / 1e9,
        }
    }

    /// Lowers the level to this many retries, if it is higher.
    pub(crate) fn lower_to(&self, retries: f64) {
        let level = (retries * RETRY as f64).round() as i64;
        self.level.fetch_min(level, Ordering::Relaxed);
    }

    /// Returns the share of the pool that nobody may take, if `workers` clients share the whole pool.
    pub(crate) fn floor(&self, workers: i64) -> i64 {
        self.size - self.size / workers.max(1)
    }

    /// Takes one retry, if that leaves at least `floor`.
    pub(crate) fn try_take(&self, floor: i64) -> bool {
        let order = Ordering::Relaxed;
        // Checks and takes in one step.
        let taken = (self.level).fetch_update(order, order, |level| {
            let rest = level - RETRY;
            (rest >= floor).then_some(rest)
        });
        taken.is_ok()
    }

    /// Puts a retry back, because it was not sent.
    pub(crate) fn put_back(&self) {
        self.add(RETRY);
    }

    /// Takes half a retry for a failed attempt without a paid retry, down to `floor`.
    pub(crate) fn on_failure(&self, floor: i64) {
        let order = Ordering::Relaxed;
        let _ = (self.level).fetch_update(order, order, |level| {
            let rest = (level - FAILURE).max(floor);
            (rest < level).then_some(rest)
        });
    }

    /// Adds up to one retry, as the refill limit allows.
    pub(crate) fn on_success(&self, now: u64) {
        if self.is_full() {
            return;
        }
        let last = self.refilled.load(Ordering::Relaxed);
        let earned = now.saturating_sub(last) as f64 * self.rate;
        let earned = earned.min(RETRY as f64) as i64;
        let order = Ordering::Relaxed;
        // Only one of the threads that succeed at the same time refills.
        if earned > 0 && (self.refilled.compare_exchange(last, now, order, order)).is_ok() {
            self.add(earned);
        }
    }

    /// Returns how many retries it has above `floor`.
    pub(crate) fn retries(&self, floor: i64) -> f64 {
        let level = self.level.load(Ordering::Relaxed) - floor;
        level.max(0) as f64 / RETRY as f64
    }

    /// Returns whether at least half of what is above `floor` is left.
    pub(crate) fn is_half_full(&self, floor: i64) -> bool {
        self.level.load(Ordering::Relaxed) >= floor + (self.size - floor) / 2
    }

    pub(crate) fn is_full(&self) -> bool {
        self.level.load(Ordering::Relaxed) >= self.size
    }

    fn add(&self, amount: i64) {
        let order = Ordering::Relaxed;
        let _ = (self.level).fetch_update(order, order, |level| {
            let sum = (level + amount).min(self.size);
            (sum > level).then_some(sum)
        });
    }
}
