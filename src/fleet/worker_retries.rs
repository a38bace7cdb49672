//! One worker's part of a shared retry budget.
//!
//! The worker counts deposits and reports them now and then, or with its next ask. The store pays for
//! retries; the worker prepays some, so that not every retry asks. Time and the store's responses come in as
//! arguments, and nothing here waits.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::demand::Demand;
use super::holding::Holding;
use super::outage::Outage;
use super::retries::MAX_DEPOSITS;
use super::{Retries, RetriesAsk, RetryTerms, Time};
use crate::lock::lock;

/// Reports of deposits per `ttl`, unless an ask for a retry carries them. A deposit that is reported late also
/// expires late, so the store may briefly count up to half as many more. A report with every lease would double
/// the number of round trips.
const REPORTS_PER_TTL: u32 = 2;
/// Most retries that are prepaid without a waiting call, because other workers need some too.
const MAX_PREPAID: u32 = 10;

/// Whether a retry is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payment {
    /// The retry may go.
    Paid,
    /// The caller must ask the store first.
    Ask,
    /// The store had no retry left a moment ago.
    Refused,
    /// The store does not respond: the worker's own budget decides.
    StoreLost,
}

#[derive(Debug)]
pub(crate) struct WorkerRetries {
    terms: RetryTerms,
    period: Duration,
    /// Time between reports of deposits if nothing else is asked.
    report_every: Duration,
    /// Deposits since the last ask.
    deposits: AtomicU64,
    /// Successes since the last ask.
    successes: AtomicU64,
    /// Failed attempts without a paid retry, since the last ask.
    failures: AtomicU64,
    /// When deposits must be reported, in nanoseconds.
    report_at: AtomicU64,
    state: Mutex<RetriesState>,
}

#[derive(Debug)]
struct RetriesState {
    prepaid: Holding,
    /// Calls that stopped waiting for the present ask.
    gave_up: u32,
    /// Counts wanted retries.
    demand: Demand,
    /// Until then, the store has none left.
    empty_until: Time,
    outage: Outage,
    /// Number of workers, if this worker had to ask for it, and when to ask again.
    workers: u32,
    announce_at: Time,
}

impl WorkerRetries {
    /// The terms must be valid.
    pub(crate) fn new(terms: RetryTerms, period: Duration) -> Self {
        let report_every = period.max(terms.ttl / REPORTS_PER_TTL);
        Self {
            terms,
            period,
            report_every,
            deposits: AtomicU64::new(0),
            successes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            report_at: AtomicU64::new(nanos(report_every)),
            state: Mutex::new(RetriesState {
                prepaid: Holding::default(),
                gave_up: 0,
                demand: Demand::new(period),
                empty_until: Time::ZERO,
                outage: Outage::default(),
                workers: 1,
                announce_at: Time::ZERO,
            }),
        }
    }

    /// Credits a call. If it returns true, this caller must send [`report`](Self::report) to the store.
    pub(crate) fn deposit(&self, now: Time) -> bool {
        self.deposits.fetch_add(1, Ordering::Relaxed);
        let due = self.report_at.load(Ordering::Relaxed);
        let now = nanos(now);
        now >= due && {
            let next = now.saturating_add(nanos(self.report_every));
            let order = Ordering::Relaxed;
            (self.report_at.compare_exchange(due, next, order, order)).is_ok()
        }
    }

    /// Counts a success, which refills the store's pool with the next ask.
    pub(crate) fn count_success(&self) {
        self.successes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failed attempt without a paid retry, which takes from the store's pool with the next ask.
    pub(crate) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Pays for a retry from what is prepaid.
    pub(crate) fn take(&self, now: Time) -> Payment {
        let mut state = lock(&self.state);
        state.demand.note(now);
        state.pay(now)
    }

    /// Pays for the same retry after an ask, by this call or another.
    pub(crate) fn take_again(&self, now: Time) -> Payment {
        lock(&self.state).pay(now)
    }

    /// Takes back a paid retry that was not sent. It is handed back if it expires before it is used.
    pub(crate) fn put_back(&self) {
        lock(&self.state).prepaid.put_back();
    }

    /// Makes an ask for as many retries as calls wait for it, or as were wanted recently.
    pub(crate) fn ask(&self, now: Time, waiting: u32) -> RetriesAsk {
        let mut state = lock(&self.state);
        let recent = state.demand.estimate(now);
        state.gave_up = 0;
        self.make_ask(&mut state, now)
            .want(recent.clamp(1, MAX_PREPAID).max(waiting))
    }

    /// A waiting call goes on without the store. What is granted for it counts as spent.
    pub(crate) fn give_up(&self) {
        let mut state = lock(&self.state);
        state.gave_up = state.gave_up.saturating_add(1);
    }

    /// Makes an ask that only reports deposits, unless the store is lost.
    pub(crate) fn report(&self, now: Time) -> Option<RetriesAsk> {
        let mut state = lock(&self.state);
        let may_ask = state.outage.may_ask(now);
        may_ask.then(|| self.make_ask(&mut state, now))
    }

    /// Takes what came of an ask. Deposits of a failed ask are lost: the store may have counted them, and too
    /// few do no harm.
    pub(crate) fn receive(&self, now: Time, ask: &RetriesAsk, result: Result<Retries, ()>) {
        let mut state = lock(&self.state);
        let Ok(retries) = result else {
            state.outage.fail(now);
            state.prepaid = Holding::default();
            return;
        };
        state.outage.end();
        if ask.want == 0 {
            return;
        }
        if retries.granted < ask.want {
            // Keeps many calls from asking one by one. New deposits of others count a moment later.
            state.empty_until = now.saturating_add(self.period / 5);
        }
        if retries.granted > 0 {
            let life = (self.period * 4).min(self.terms.ttl);
            let spent = std::mem::take(&mut state.gave_up);
            let rest = retries.granted.saturating_sub(spent);
            state.prepaid.expire(now);
            state.prepaid.add(rest, now.saturating_add(life));
        }
    }

    /// Returns the period to announce this worker with, if that is due. A worker without leases announces itself
    /// to learn the number of workers. Then call [`set_workers`](Self::set_workers).
    pub(crate) fn must_announce(&self, now: Time) -> Option<Duration> {
        let mut state = lock(&self.state);
        if state.outage.is_on() || now < state.announce_at {
            return None;
        }
        // A little early, so that every report of deposits can carry it.
        let wait = self.report_every - self.report_every / 8;
        state.announce_at = now.saturating_add(wait);
        Some(self.report_every)
    }

    pub(crate) fn set_workers(&self, workers: u32) {
        lock(&self.state).workers = workers;
    }

    /// Returns the number of workers from the last announcement, or 1.
    pub(crate) fn workers(&self) -> u32 {
        lock(&self.state).workers
    }

    /// Whether the store had no retry left a moment ago.
    pub(crate) fn is_store_empty(&self, now: Time) -> bool {
        now < lock(&self.state).empty_until
    }

    /// Whether the store does not respond.
    pub(crate) fn is_store_lost(&self) -> bool {
        lock(&self.state).outage.is_on()
    }

    fn make_ask(&self, state: &mut RetriesState, now: Time) -> RetriesAsk {
        state.prepaid.expire(now);
        let next = nanos(now).saturating_add(nanos(self.report_every));
        self.report_at.store(next, Ordering::Relaxed);
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed).min(MAX_DEPOSITS);
        RetriesAsk::new(self.terms)
            .deposits(take(&self.deposits))
            .successes(take(&self.successes))
            .failures(take(&self.failures))
            .unused(state.prepaid.take_unused())
    }
}

impl RetriesState {
    fn pay(&mut self, now: Time) -> Payment {
        self.prepaid.expire(now);
        if self.prepaid.left > 0 {
            self.prepaid.left -= 1;
            Payment::Paid
        } else if now < self.empty_until && !self.outage.is_on() {
            Payment::Refused
        } else if self.outage.may_ask(now) {
            Payment::Ask
        } else {
            Payment::StoreLost
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "worker_retries_tests.rs"]
mod tests;
