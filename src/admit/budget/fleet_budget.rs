//! The part of a budget that the workers of a fleet share.
//!
//! A retry asks the store before it is decided on, unless some are prepaid. At most one ask per host is under
//! way, for all calls that wait. A background task sends it, so that a dropped call loses nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Budget;
use super::hold::{BudgetHold, HoldSource};
use crate::clock;
use crate::fleet::{FleetLimits, Payment, RetriesAsk, RetryTerms, WorkerRetries, store_key};
use crate::lock::lock;

/// This worker's side of the shared budget of one host.
pub(crate) struct FleetBudget {
    fleet: FleetLimits,
    key: String,
    pub(super) retries: WorkerRetries,
    created: Instant,
    /// The end of the latest ask: it closes, however the ask ends. All calls see it at once, so that a call
    /// which nobody polls delays no other.
    ask_end: Mutex<watch::Receiver<()>>,
    /// Each call that waits for an ask holds a clone, so that they can be counted.
    waiting: Arc<()>,
}

impl FleetBudget {
    pub(crate) fn new(fleet: &FleetLimits, host: &str, terms: RetryTerms, now: Instant) -> Self {
        Self {
            fleet: fleet.clone(),
            key: store_key("retry", host, false),
            retries: WorkerRetries::new(terms, fleet.lease()),
            created: now,
            ask_end: Mutex::new(watch::channel(()).1),
            waiting: Arc::default(),
        }
    }

    /// The last known number of workers.
    pub(super) fn workers(&self) -> i64 {
        self.fleet.workers().max(self.retries.workers()).into()
    }

    /// Whether the store had no retry left a moment ago.
    pub(super) fn is_empty(&self, now: Instant) -> bool {
        self.retries.is_store_empty(self.age(now))
    }

    /// Credits a call for all workers. Now and then, this reports to the store.
    pub(super) fn deposit(self: &Arc<Self>, now: Instant) {
        if !self.retries.deposit(self.age(now)) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if let Some(report) = self.retries.report(self.age(now)) {
            let this = Arc::clone(self);
            runtime.spawn(async move {
                this.send(report).await;
                this.announce().await;
            });
        }
    }

    /// Waits until an ask has ended and takes one retry from it; repeats that if others took all.
    async fn ask_for_one(self: &Arc<Self>) -> Payment {
        let _waiting = Arc::clone(&self.waiting);
        let Ok(runtime) = Handle::try_current() else {
            return Payment::StoreLost;
        };
        loop {
            let (mut ask_end, new) = self.join_ask();
            if let Some(new) = new {
                // In a task: if this call is dropped, what is granted is not lost.
                runtime.spawn(Arc::clone(self).ask(new));
            }
            if self.retries.is_store_lost() {
                // This ask probes whether the store is back. No call waits for it.
                return Payment::StoreLost;
            }
            // Nothing is ever sent, so this ends when the ask does.
            let _ = ask_end.changed().await;
            let payment = self.retries.take_again(self.age(clock::now()));
            if payment != Payment::Ask {
                return payment;
            }
        }
    }

    /// Returns the end of the ask that is under way. If there is none, also what a new ask must hold.
    fn join_ask(&self) -> (watch::Receiver<()>, Option<watch::Sender<()>>) {
        let mut ask_end = lock(&self.ask_end);
        let is_over = ask_end.has_changed().is_err();
        let new = is_over.then(|| {
            let (new, end) = watch::channel(());
            *ask_end = end;
            new
        });
        (ask_end.clone(), new)
    }

    async fn ask(self: Arc<Self>, under_way: watch::Sender<()>) {
        // Counted in the task, so that calls which come at the same moment are included.
        let waiting = Arc::strong_count(&self.waiting) - 1;
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        self.send(self.retries.ask(self.age(clock::now()), waiting))
            .await;
        // No call waits for the rest.
        drop(under_way);
        self.announce().await;
    }

    async fn send(&self, ask: RetriesAsk) {
        let result = self.fleet.retries(&self.key, ask).await;
        let age = self.age(clock::now());
        self.retries.receive(age, &ask, result.map_err(|_| ()));
    }

    /// Learns the number of workers where no throttle learns it from leases. While the store is unavailable, each
    /// worker has its part of the reserve.
    async fn announce(&self) {
        if self.fleet.is_leasing() {
            return;
        }
        if let Some(period) = self.retries.must_announce(self.age(clock::now())) {
            if let Ok(workers) = self.fleet.announce(&self.key, period).await {
                self.retries.set_workers(workers);
            }
        }
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.created)
    }
}

impl Budget {
    /// Pays for one retry from what all workers share. Waits for the store if need be, until `latest` at most;
    /// then the worker's own window decides.
    pub(crate) async fn withdraw_shared(&self, latest: Option<Instant>) -> Option<BudgetHold> {
        let fleet = self.0.as_ref()?.fleet.as_ref()?;
        let now = clock::now();
        let mut payment = fleet.retries.take(fleet.age(now));
        if payment == Payment::Ask {
            let end = clock::after(now, fleet.fleet.store_timeout());
            let end = latest.map_or(end, |latest| latest.min(end));
            let asked = clock::within(end, fleet.ask_for_one()).await;
            payment = asked.unwrap_or_else(|| {
                fleet.retries.give_up();
                Payment::StoreLost
            });
        }
        match payment {
            Payment::Paid => Some(BudgetHold(HoldSource::Fleet(Arc::clone(fleet)))),
            Payment::Ask | Payment::Refused => None,
            Payment::StoreLost => self.withdraw_at(clock::now()),
        }
    }
}
