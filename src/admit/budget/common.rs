//! The part of a budget that is shared with other workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Budget, Limited, Paid, Withdrawal};
use crate::clock;
use crate::fleet::{FleetLimits, KeyKind, Payment, RetriesAsk, RetryTerms, WorkerRetries};

/// What all workers have of the budget of one host, as this one knows it.
pub(super) struct Common {
    fleet: FleetLimits,
    key: String,
    retries: WorkerRetries,
    /// There is one question at a time, for all who wait.
    asking: AtomicBool,
    waiting: AtomicU32,
    answered: Notify,
}

impl Common {
    pub(super) fn new(fleet: &FleetLimits, host: &str, terms: RetryTerms) -> Self {
        Self {
            fleet: fleet.clone(),
            key: KeyKind::Retry.store_key(host, false),
            retries: WorkerRetries::new(terms, fleet.period()),
            asking: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            answered: Notify::new(),
        }
    }

    /// A retry that was paid for was not sent.
    pub(super) fn put_back(&self) {
        self.retries.put_back();
    }

    /// Whether the store had no retry left a moment ago.
    pub(super) fn is_empty(&self, now: Duration) -> bool {
        self.retries.is_empty(now)
    }

    /// How many share it, as far as is known.
    pub(super) fn workers(&self) -> i64 {
        self.fleet.workers().max(self.retries.workers()).into()
    }

    async fn ask(&self, limited: &Limited, ask: RetriesAsk) {
        let answer = self.fleet.retries(&self.key, ask).await;
        let now = limited.age(clock::now());
        self.retries.receive(now, &ask, answer.map_err(|_| ()));
    }

    /// Asks how many workers there are, where no throttle is told with its leases: each has its part of the
    /// reserve while the store is away.
    async fn count(&self, limited: &Limited) {
        if self.fleet.is_leasing() || !self.retries.must_announce(limited.age(clock::now())) {
            return;
        }
        let period = self.retries.report_every();
        if let Ok(workers) = self.fleet.announce(&self.key, period).await {
            self.retries.set_workers(workers);
        }
    }
}

/// One who waits for an answer, until it is dropped.
struct Waiting<'a>(&'a Common);

impl<'a> Waiting<'a> {
    fn new(common: &'a Common) -> Self {
        common.waiting.fetch_add(1, Ordering::Relaxed);
        Self(common)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The question that is under way. However it ends, all who wait are told.
struct Question(Budget);

impl Question {
    /// What is granted is for whoever takes it first: those who have waited, if they are still there.
    async fn put(self) {
        if let Some((limited, common)) = self.0.common() {
            // In here, so that those who come in the same moment are counted.
            let waiting = common.waiting.load(Ordering::Relaxed);
            let ask = common.retries.ask(limited.age(clock::now()), waiting);
            common.ask(limited, ask).await;
        }
        let budget = self.0.clone();
        // Nobody waits for the rest.
        drop(self);
        if let Some((limited, common)) = budget.common() {
            common.count(limited).await;
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some((_, common)) = self.0.common() {
            common.asking.store(false, Ordering::Release);
            common.answered.notify_waiters();
        }
    }
}

impl Limited {
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.born)
    }
}

impl Budget {
    /// Whether it is shared with other workers.
    #[inline]
    pub(crate) fn is_common(&self) -> bool {
        (self.0.as_ref()).is_some_and(|limited| limited.common.is_some())
    }

    /// Credits a call for all.
    pub(super) fn deposit_for_all(&self, now: Instant) {
        let Some((limited, common)) = self.common() else {
            return;
        };
        if !common.retries.deposit(limited.age(now)) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let Some(flush) = common.retries.report(limited.age(now)) else {
            return;
        };
        let budget = self.clone();
        runtime.spawn(async move {
            if let Some((limited, common)) = budget.common() {
                common.ask(limited, flush).await;
                common.count(limited).await;
            }
        });
    }

    /// Pays for one retry from what all workers have, and asks the store if need be, until `latest` at most; or
    /// else from its own.
    pub(crate) async fn withdraw_from_all(&self, latest: Option<Instant>) -> Option<Withdrawal> {
        let (limited, common) = self.common()?;
        let now = clock::now();
        let mut payment = common.retries.take(limited.age(now));
        if payment == Payment::Ask {
            let end = clock::after(now, common.fleet.max_wait());
            let end = latest.map_or(end, |latest| latest.min(end));
            payment = match clock::within(end, self.ask_for_one()).await {
                Some(payment) => payment,
                None => {
                    common.retries.give_up();
                    Payment::StoreLost
                }
            };
        }
        match payment {
            Payment::Paid => Some(Withdrawal(Some((Arc::clone(limited), Paid::ByAll)))),
            Payment::Ask | Payment::Refused => None,
            Payment::StoreLost => self.withdraw_at(clock::now()),
        }
    }

    /// Waits for an answer of the store, and takes its part of it; and again, if others were faster.
    async fn ask_for_one(&self) -> Payment {
        let Some((limited, common)) = self.common() else {
            return Payment::StoreLost;
        };
        let _waiting = Waiting::new(common);
        loop {
            // Before it is asked, or the answer could be missed.
            let answered = common.answered.notified();
            if !common.asking.swap(true, Ordering::Acquire) {
                let question = Question(self.clone());
                let Ok(runtime) = Handle::try_current() else {
                    return Payment::StoreLost;
                };
                // Not by this call, which may be dropped: what was granted would be lost.
                runtime.spawn(question.put());
            }
            if common.retries.is_store_lost() {
                // Somebody had to ask whether it is back, but nobody waits for that.
                return Payment::StoreLost;
            }
            answered.await;
            let payment = common.retries.take_again(limited.age(clock::now()));
            if payment != Payment::Ask {
                return payment;
            }
        }
    }

    fn common(&self) -> Option<(&Arc<Limited>, &Common)> {
        let limited = self.0.as_ref()?;
        Some((limited, limited.common.as_deref()?))
    }
}
