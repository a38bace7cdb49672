//! The counters behind a budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::time::Instant;

use super::Deposit;
use super::fleet_budget::FleetBudget;
use super::hold::HoldSource;
use super::pool::ReservePool;
use super::window::SlidingWindow;
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
    pub(super) pool: ReservePool,
    /// Twice the number of free retries, less the successes since, at least 0. Free retries end at
    /// [`MAX_UNPAID`]; racing threads may exceed it by a few.
    pub(super) unpaid: AtomicU32,
    pub(super) created: Instant,
    /// The settings, to be read back.
    pub(super) terms: RetryTerms,
    pub(super) deposit_on: Deposit,
    pub(super) deposit: i64,
    pub(super) cost: i64,
    /// Set if workers of a fleet share the budget. While their store is lost, `pool` and `window` decide.
    pub(super) fleet: Option<Arc<FleetBudget>>,
}

impl BudgetState {
    /// Credits a call.
    pub(super) fn deposit(&self, now: Instant) {
        self.deposit_at(self.nanos(now), now);
    }

    /// `nanos` is `now` as the window counts it. To work it out takes 75 instructions.
    fn deposit_at(&self, nanos: u64, now: Instant) {
        self.window.add(nanos, self.deposit);
        if let Some(fleet) = &self.fleet {
            fleet.deposit(now);
        }
    }

    /// Refills the pool, and credits the call if successes feed the budget. Returns the balance.
    pub(super) fn on_success(&self, now: Instant) -> f64 {
        let nanos = self.nanos(now);
        self.count_success();
        if !self.pool.is_full() {
            self.pool.on_success(nanos);
        }
        if let Some(fleet) = &self.fleet {
            fleet.retries.count_success();
        }
        if self.deposit_on == Deposit::Success {
            self.deposit_at(nanos, now);
        }
        self.balance_at(nanos)
    }

    /// Takes from the pool for a failed attempt without a paid retry.
    pub(super) fn count_failure(&self) {
        self.pool.on_failure(self.pool_floor());
        if let Some(fleet) = &self.fleet {
            fleet.retries.count_failure();
        }
    }

    /// How many retries pool and window would pay for.
    pub(super) fn balance(&self, now: Instant) -> f64 {
        self.balance_at(self.nanos(now))
    }

    fn balance_at(&self, nanos: u64) -> f64 {
        let saved = self.window.net(nanos).max(0) as f64 / self.cost as f64;
        self.pool.retries(self.pool_floor()) + saved
    }

    /// Takes one retry from the pool, or from the window if the pool is empty.
    pub(super) fn try_take(self: &Arc<Self>, now: Instant) -> Option<HoldSource> {
        if self.pool.try_take(self.pool_floor()) {
            return Some(HoldSource::Pool(Arc::clone(self)));
        }
        let slot = (self.window).try_take(self.nanos(now), self.cost, 0)?;
        Some(HoldSource::Window(Arc::clone(self), slot))
    }

    /// Of a fleet's pool, this worker has only its part.
    fn pool_floor(&self) -> i64 {
        match &self.fleet {
            Some(fleet) => self.pool.floor(fleet.workers()),
            None => 0,
        }
    }

    /// Whether the pool is not full, or the fleet has just refused a retry. Forgetting the budget would grant a new
    /// pool.
    pub(super) fn is_in_debt(&self, now: Instant) -> bool {
        !self.pool.is_full() || (self.fleet.as_ref()).is_some_and(|fleet| fleet.is_empty(now))
    }

    /// Counts a free retry, if the host is healthy.
    pub(super) fn take_free(&self, now: Instant) -> bool {
        let is_fleet_empty = (self.fleet.as_ref()).is_some_and(|fleet| fleet.is_empty(now));
        let is_healthy = self.unpaid.load(Ordering::Relaxed) < MAX_UNPAID
            && self.pool.is_half_full(self.pool_floor())
            && !is_fleet_empty;
        if is_healthy {
            self.unpaid.fetch_add(FREE_RETRY, Ordering::Relaxed);
        }
        is_healthy
    }

    fn count_success(&self) {
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
