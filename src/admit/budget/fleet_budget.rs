//! The part of a budget that the workers of a fleet share.
//!
//! A retry asks the store before it is decided on, unless some are prepaid. At most one ask per host is under
//! way, for all calls that wait. A background task sends it, so that a dropped call loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Budget;
use super::hold::BudgetHold;
use super::state::BudgetState;
use crate::clock;
use crate::fleet::{FleetLimits, KeyKind, Payment, RetriesAsk, RetryTerms, WorkerRetries};

/// This worker's side of the shared budget of one host.
pub(super) struct FleetBudget {
    fleet: FleetLimits,
    key: String,
    pub(super) retries: WorkerRetries,
    /// Whether an ask is under way.
    asking: AtomicBool,
    /// Number of calls that wait for an ask.
    waiting: AtomicU32,
    /// Wakes waiting calls when an ask has ended.
    ask_ended: Notify,
}

impl FleetBudget {
    pub(super) fn new(fleet: &FleetLimits, host: &str, terms: RetryTerms) -> Self {
        Self {
            fleet: fleet.clone(),
            key: KeyKind::Retry.store_key(host, false),
            retries: WorkerRetries::new(terms, fleet.period()),
            asking: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            ask_ended: Notify::new(),
        }
    }

    /// The last known number of workers.
    pub(super) fn workers(&self) -> i64 {
        self.fleet.workers().max(self.retries.workers()).into()
    }

    /// Credits a call for all workers, if a fleet shares the budget. Now and then, this reports to the store.
    pub(super) fn deposit(state: &Arc<BudgetState>, now: Instant) {
        let Some(fleet) = &state.fleet else {
            return;
        };
        if !fleet.retries.deposit(state.age(now)) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let Some(report) = fleet.retries.report(state.age(now)) else {
            return;
        };
        let state = Arc::clone(state);
        runtime.spawn(async move {
            if let Some(fleet) = &state.fleet {
                fleet.send(&state, report).await;
                fleet.announce(&state).await;
            }
        });
    }

    async fn send(&self, state: &BudgetState, ask: RetriesAsk) {
        let result = self.fleet.retries(&self.key, ask).await;
        let age = state.age(clock::now());
        self.retries.receive(age, &ask, result.map_err(|_| ()));
    }

    /// Learns the number of workers where no throttle learns it from leases. During an outage, each worker has
    /// its part of the reserve.
    async fn announce(&self, state: &BudgetState) {
        if self.fleet.is_leasing() || !self.retries.must_announce(state.age(clock::now())) {
            return;
        }
        let period = self.retries.report_every();
        if let Ok(workers) = self.fleet.announce(&self.key, period).await {
            self.retries.set_workers(workers);
        }
    }

    /// Waits until an ask has ended and takes one retry from it; repeats that if others took all.
    async fn ask_for_one(&self, state: &Arc<BudgetState>) -> Payment {
        let _waiting = WaitingCall::new(&self.waiting);
        loop {
            // Before the ask begins, because its end could be missed.
            let ended = self.ask_ended.notified();
            if !self.asking.swap(true, Ordering::Acquire) {
                let ask = RunningAsk(Arc::clone(state));
                let Ok(runtime) = Handle::try_current() else {
                    return Payment::StoreLost;
                };
                // In a task: if this call is dropped, what is granted is not lost.
                runtime.spawn(ask.run());
            }
            if self.retries.is_store_lost() {
                // This ask probes whether the store is back. No call waits for it.
                return Payment::StoreLost;
            }
            ended.await;
            let payment = self.retries.take_again(state.age(clock::now()));
            if payment != Payment::Ask {
                return payment;
            }
        }
    }
}

impl Budget {
    /// Pays for one retry from what all workers share. Waits for the store if need be, until `latest` at most;
    /// then the worker's own window decides.
    pub(crate) async fn withdraw_shared(&self, latest: Option<Instant>) -> Option<BudgetHold> {
        let state = self.0.as_ref()?;
        let fleet = state.fleet.as_deref()?;
        let now = clock::now();
        let mut payment = fleet.retries.take(state.age(now));
        if payment == Payment::Ask {
            let end = clock::after(now, fleet.fleet.max_wait());
            let end = latest.map_or(end, |latest| latest.min(end));
            payment = match clock::within(end, fleet.ask_for_one(state)).await {
                Some(payment) => payment,
                None => {
                    fleet.retries.give_up();
                    Payment::StoreLost
                }
            };
        }
        match payment {
            Payment::Paid => Some(BudgetHold::of_fleet(state)),
            Payment::Ask | Payment::Refused => None,
            Payment::StoreLost => self.withdraw_at(clock::now()),
        }
    }
}

/// Counts a waiting call until it is dropped.
struct WaitingCall<'a>(&'a AtomicU32);

impl<'a> WaitingCall<'a> {
    fn new(waiting: &'a AtomicU32) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The ask that is under way. However it ends, it wakes all waiting calls.
struct RunningAsk(Arc<BudgetState>);

impl RunningAsk {
    async fn run(self) {
        let state = Arc::clone(&self.0);
        let Some(fleet) = &state.fleet else {
            return;
        };
        // Counted in the task, so that calls which come at the same moment are included.
        let waiting = fleet.waiting.load(Ordering::Relaxed);
        let ask = fleet.retries.ask(state.age(clock::now()), waiting);
        fleet.send(&state, ask).await;
        // No call waits for the rest.
        drop(self);
        fleet.announce(&state).await;
    }
}

impl Drop for RunningAsk {
    fn drop(&mut self) {
        if let Some(fleet) = &self.0.fleet {
            fleet.asking.store(false, Ordering::Release);
            fleet.ask_ended.notify_waiters();
        }
    }
}
