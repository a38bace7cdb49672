//! The counters behind a budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::time::Instant;

use super::Deposit;
use super::fleet_budget::FleetBudget;
use super::window::{SlidingWindow, SlotEnd};

/// One slot more than the ttl has, so that nothing expires early.
pub(super) const SLOTS: usize = 16;

/// What a free retry adds to [`BudgetState::unpaid`]. A success takes 1 off, so every second call may have one.
const FREE_RETRY: u32 = 2;
/// A burst of 500 free retries, as when a connection with many calls in flight closes.
const MAX_UNPAID: u32 = 500 * FREE_RETRY;

pub(super) struct BudgetState {
    window: SlidingWindow<SLOTS>,
    /// False until the first withdrawal. Then there can be no debt.
    withdrawn: AtomicBool,
    /// Twice the number of free retries, less the successes since, at least 0. Free retries end at
    /// [`MAX_UNPAID`]; racing threads may exceed it by a few.
    unpaid: AtomicU32,
    created: Instant,
    pub(super) units: BudgetUnits,
    /// Set if workers of a fleet share the budget. While their store is lost, `window` decides.
    pub(super) fleet: Option<Arc<FleetBudget>>,
}

/// The settings of a budget in whole numbers. A retry costs `cost` units.
#[derive(Clone, Copy, Debug)]
pub(super) struct BudgetUnits {
    /// In nanoseconds.
    pub(super) slot_width: u64,
    pub(super) deposit_on: Deposit,
    pub(super) deposit: i64,
    pub(super) cost: i64,
    pub(super) reserve: i64,
}

impl BudgetState {
    pub(super) fn new(units: BudgetUnits, now: Instant, fleet: Option<FleetBudget>) -> Self {
        Self {
            window: SlidingWindow::new(units.slot_width),
            withdrawn: AtomicBool::new(false),
            unpaid: AtomicU32::new(0),
            created: now,
            units,
            fleet: fleet.map(Arc::new),
        }
    }

    pub(super) fn deposit(&self, now: Instant) {
        self.window.add(self.nanos(now), self.units.deposit);
    }

    /// How many retries the window would pay for.
    pub(super) fn balance(&self, now: Instant) -> f64 {
        let units = self.window.net(self.nanos(now)) + self.units.reserve;
        units.max(0) as f64 / self.units.cost as f64
    }

    /// Takes one retry from the window. Of a fleet's reserve, this worker has its part.
    pub(super) fn try_take(&self, now: Instant) -> Option<SlotEnd> {
        let workers = self.fleet.as_ref().map_or(1, |fleet| fleet.workers());
        let floor = -self.units.reserve / workers.max(1);
        let slot = self
            .window
            .try_take(self.nanos(now), self.units.cost, floor)?;
        self.withdrawn.store(true, Ordering::Relaxed);
        Some(slot)
    }

    pub(super) fn give_back(&self, slot: SlotEnd) {
        self.window.give_back(slot, self.units.cost);
    }

    /// Whether more was withdrawn than deposited, or the fleet has just refused a retry: the host fails more
    /// often than its successes pay for. Forgetting the budget would grant a new reserve.
    pub(super) fn is_in_debt(&self, now: Instant) -> bool {
        let overdrawn =
            || self.withdrawn.load(Ordering::Relaxed) && self.window.net(self.nanos(now)) < 0;
        overdrawn() || (self.fleet.as_ref()).is_some_and(|fleet| fleet.is_empty(now))
    }

    pub(super) fn allows_free(&self, now: Instant) -> bool {
        self.unpaid.load(Ordering::Relaxed) < MAX_UNPAID && !self.is_in_debt(now)
    }

    pub(super) fn count_free(&self) {
        self.unpaid.fetch_add(FREE_RETRY, Ordering::Relaxed);
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
