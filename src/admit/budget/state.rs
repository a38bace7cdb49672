//! The counters behind a budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::time::Instant;

use super::Deposit;
use super::fleet_budget::FleetBudget;
use super::window::{SlidingWindow, SlotEnd};
use crate::fleet::RetryTerms;

/// One slot more than the ttl has, so that nothing expires early.
pub(super) const SLOTS: usize = 16;

/// What a free retry adds to [`BudgetState::unpaid`]. A success takes 1 off, so every second call may have one.
const FREE_RETRY: u32 = 2;
/// A burst of 500 free retries, as when a connection with many calls in flight closes.
const MAX_UNPAID: u32 = 500 * FREE_RETRY;

/// The counters and settings of a budget, in whole numbers. A retry costs `cost` units.
pub(super) struct BudgetState {
    pub(super) window: SlidingWindow<SLOTS>,
    /// False until the first withdrawal. Then there can be no debt.
    pub(super) withdrawn: AtomicBool,
    /// Twice the number of free retries, less the successes since, at least 0. Free retries end at
    /// [`MAX_UNPAID`]; racing threads may exceed it by a few.
    pub(super) unpaid: AtomicU32,
    pub(super) created: Instant,
    /// The settings, to be read back.
    pub(super) terms: RetryTerms,
    pub(super) deposit_on: Deposit,
    pub(super) deposit: i64,
    pub(super) cost: i64,
    pub(super) reserve: i64,
    /// Set if workers of a fleet share the budget. While their store is lost, `window` decides.
    pub(super) fleet: Option<Arc<FleetBudget>>,
}

impl BudgetState {
    /// Credits a call.
    pub(super) fn deposit(&self, now: Instant) {
        self.window.add(self.nanos(now), self.deposit);
        if let Some(fleet) = &self.fleet {
            fleet.deposit(now);
        }
    }

    /// How many retries the window would pay for.
    pub(super) fn balance(&self, now: Instant) -> f64 {
        let units = self.window.net(self.nanos(now)) + self.reserve;
        units.max(0) as f64 / self.cost as f64
    }

    /// Takes one retry from the window. Of a fleet's reserve, this worker has its part.
    pub(super) fn try_take(&self, now: Instant) -> Option<SlotEnd> {
        let workers = self.fleet.as_ref().map_or(1, |fleet| fleet.workers());
        let floor = -self.reserve / workers.max(1);
        let slot = (self.window).try_take(self.nanos(now), self.cost, floor)?;
        self.withdrawn.store(true, Ordering::Relaxed);
        Some(slot)
    }

    /// Whether more was withdrawn than deposited, or the fleet has just refused a retry: the host fails more
    /// often than its successes pay for. Forgetting the budget would grant a new reserve.
    pub(super) fn is_in_debt(&self, now: Instant) -> bool {
        let overdrawn =
            || self.withdrawn.load(Ordering::Relaxed) && self.window.net(self.nanos(now)) < 0;
        overdrawn() || (self.fleet.as_ref()).is_some_and(|fleet| fleet.is_empty(now))
    }

    /// Counts a free retry, if the host is healthy.
    pub(super) fn take_free(&self, now: Instant) -> bool {
        let is_healthy = self.unpaid.load(Ordering::Relaxed) < MAX_UNPAID && !self.is_in_debt(now);
        if is_healthy {
            self.unpaid.fetch_add(FREE_RETRY, Ordering::Relaxed);
        }
        is_healthy
    }

    pub(super) fn count_success(&self) {
        // Most hosts have no free retries, and then nothing is written.
        if self.unpaid.load(Ordering::Relaxed) > 0 {
            let order = Ordering::Relaxed;
            let _ = (self.unpaid).fetch_update(order, order, |unpaid| unpaid.checked_sub(1));
        }
    }

    fn nanos(&self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.created);
        u64::try_from(age.as_nanos()).unwrap_or(u64::MAX / 2)
    }
}

// 4096 hosts take at most 4 MiB.
const _: () = assert!(size_of::<BudgetState>() < 512);
