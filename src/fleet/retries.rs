//! What one worker holds of a retry budget that all share.
//!
//! Calls to credit are counted, and told now and then, or with the next question. Retries are paid for in the
//! store; some are prepaid, so that not each asks. Pure but for the counters: time and answers come in, and
//! nothing here waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::demand::Demand;
use super::outage::Outage;
use super::{Retries, RetriesAsk, RetryTerms, Time};

/// Calls are told of so often in the time for which they count, unless this worker asks for a retry. So there may be
/// up to half as many more for a moment; but to tell of them with every lease would cost as much as all leases do.
const TOLD: u32 = 2;
/// No more are prepaid at a time for which nobody waits yet: others need some, too.
const MOST_PREPAID: u32 = 10;
/// Nobody counts on one that looks whether the store is back for longer.
const PROBE: Duration = Duration::from_secs(2);
/// As many as a store takes at a time.
const MOST_DEPOSITS: u64 = 1_000_000_000;

/// Whether a retry is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payment {
    /// It may go.
    Paid,
    /// The store has to be asked first.
    Ask,
    /// The store had none a moment ago.
    Refused,
    /// The store is away: a budget of the worker's own decides.
    Away,
}

#[derive(Debug)]
pub(crate) struct SharedRetries {
    terms: RetryTerms,
    period: Duration,
    /// How often deposits are told, if nothing else is asked.
    flush_every: Duration,
    /// Since the last question.
    deposits: AtomicU64,
    /// When deposits have to be told, in nanoseconds.
    flush_at: AtomicU64,
    room: Mutex<Room>,
}

#[derive(Debug)]
struct Room {
    prepaid: u32,
    expires: Time,
    unused: u32,
    /// How many have waited for the present question in vain.
    given_up: u32,
    /// How many retries were wanted.
    demand: Demand,
    /// It is no use to ask before.
    empty_until: Time,
    outage: Option<Outage>,
    /// Until then, somebody looks whether the store is back.
    probe_until: Time,
    /// How many share it, if that was asked, and when to ask again.
    workers: u32,
    count_at: Time,
}

impl SharedRetries {
    /// The terms must have been checked.
    pub(crate) fn new(terms: RetryTerms, period: Duration) -> Self {
        let flush_every = period.max(terms.ttl / TOLD);
        Self {
            terms,
            period,
            flush_every,
            deposits: AtomicU64::new(0),
            flush_at: AtomicU64::new(nanos(flush_every)),
            room: Mutex::new(Room {
                prepaid: 0,
                expires: Time::ZERO,
                unused: 0,
                given_up: 0,
                demand: Demand::new(period),
                empty_until: Time::ZERO,
                outage: None,
                probe_until: Time::ZERO,
                workers: 1,
                count_at: Time::ZERO,
            }),
        }
    }

    /// Credits a call. If it returns true, it is this caller's turn to put [`flush`](Self::flush) to the store.
    pub(crate) fn deposit(&self, now: Time) -> bool {
        self.deposits.fetch_add(1, Ordering::Relaxed);
        let due = self.flush_at.load(Ordering::Relaxed);
        let now = nanos(now);
        now >= due && {
            let next = now.saturating_add(nanos(self.flush_every));
            let order = Ordering::Relaxed;
            (self.flush_at.compare_exchange(due, next, order, order)).is_ok()
        }
    }

    /// A retry is wanted.
    pub(crate) fn take(&self, now: Time) -> Payment {
        let mut room = self.lock();
        room.demand.note(now);
        room.pay(now)
    }

    /// The same retry, after the store was asked, by this call or another.
    pub(crate) fn take_again(&self, now: Time) -> Payment {
        self.lock().pay(now)
    }

    /// A retry that was paid for was not sent.
    pub(crate) fn put_back(&self) {
        let mut room = self.lock();
        // It is handed back, if it expires before the next is wanted.
        room.prepaid = room.prepaid.saturating_add(1);
    }

    /// The question for retries that have to be paid for: as many as wait for it, or as were wanted of late.
    pub(crate) fn ask(&self, now: Time, waiting: u32) -> RetriesAsk {
        let mut room = self.lock();
        let recent = room.demand.estimate(now);
        room.given_up = 0;
        self.question(&mut room, now)
            .want(recent.clamp(1, MOST_PREPAID).max(waiting))
    }

    /// One who waited for the answer did so in vain, and goes without it. What is granted for it is spent, then.
    pub(crate) fn gave_up(&self) {
        let mut room = self.lock();
        room.given_up = room.given_up.saturating_add(1);
    }

    /// The question that only tells of deposits, unless the store is away.
    pub(crate) fn flush(&self, now: Time) -> Option<RetriesAsk> {
        let mut room = self.lock();
        if !room.may_ask(now) {
            return None;
        }
        let ask = self.question(&mut room, now);
        Some(ask)
    }

    /// What has become of the question. Deposits that were told in vain are lost: whether they were counted is
    /// not known, and too few do no harm.
    pub(crate) fn answered(&self, now: Time, ask: &RetriesAsk, answer: Result<Retries, ()>) {
        let mut room = self.lock();
        let Ok(retries) = answer else {
            // Some may fail together. They are one failure.
            if room.outage.is_none() || now < room.probe_until {
                room.outage = Some(Outage::after(room.outage.take(), now));
            }
            room.probe_until = Time::ZERO;
            room.prepaid = 0;
            room.unused = 0;
            return;
        };
        room.outage = None;
        room.probe_until = Time::ZERO;
        if ask.want == 0 {
            return;
        }
        if retries.granted < ask.want {
            // A whole herd may want some. What others deposit meanwhile is there a moment later.
            room.empty_until = now.saturating_add(self.period / 5);
        }
        if retries.granted > 0 {
            let life = (self.period * 4).min(self.terms.ttl);
            room.expire(now);
            let spent = std::mem::take(&mut room.given_up);
            let rest = retries.granted.saturating_sub(spent);
            room.prepaid = room.prepaid.saturating_add(rest);
            room.expires = now.saturating_add(life);
        }
    }

    /// Whether it is time to ask how many share it, for a worker that nothing else tells. If it is, the caller asks,
    /// with [`told_every`](Self::told_every) as the period, and the answer goes to [`counted`](Self::counted).
    pub(crate) fn counts(&self, now: Time) -> bool {
        let mut room = self.lock();
        if room.outage.is_some() || now < room.count_at {
            return false;
        }
        // A little sooner than it has to be, so that each time that deposits are told will do.
        let wait = self.flush_every - self.flush_every / 8;
        room.count_at = now.saturating_add(wait);
        true
    }

    pub(crate) fn counted(&self, workers: u32) {
        self.lock().workers = workers;
    }

    /// How many share it, as far as was asked.
    pub(crate) fn workers(&self) -> u32 {
        self.lock().workers
    }

    /// How often the store hears of it, if there are calls.
    pub(crate) fn told_every(&self) -> Duration {
        self.flush_every
    }

    /// Whether the store had no retry left a moment ago.
    pub(crate) fn is_empty(&self, now: Time) -> bool {
        now < self.lock().empty_until
    }

    /// Whether the store does not answer.
    pub(crate) fn is_away(&self) -> bool {
        self.lock().outage.is_some()
    }

    fn question(&self, room: &mut Room, now: Time) -> RetriesAsk {
        room.expire(now);
        let next = nanos(now).saturating_add(nanos(self.flush_every));
        self.flush_at.store(next, Ordering::Relaxed);
        let deposits = self.deposits.swap(0, Ordering::Relaxed);
        RetriesAsk::new(self.terms)
            .deposits(deposits.min(MOST_DEPOSITS))
            .unused(std::mem::take(&mut room.unused))
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        // Nothing in there panics halfway.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    fn pay(&mut self, now: Time) -> Payment {
        self.expire(now);
        if self.prepaid > 0 {
            self.prepaid -= 1;
            Payment::Paid
        } else if now < self.empty_until && self.outage.is_none() {
            Payment::Refused
        } else if self.may_ask(now) {
            Payment::Ask
        } else {
            Payment::Away
        }
    }

    /// Of a store that is away, one asks when it is time to; the others do not wait for it.
    fn may_ask(&mut self, now: Time) -> bool {
        let Some(outage) = &self.outage else {
            return true;
        };
        if now < self.probe_until || !outage.may_try(now) {
            return false;
        }
        // Not for ever: a call may be dropped while it asks.
        self.probe_until = now.saturating_add(PROBE);
        true
    }

    fn expire(&mut self, now: Time) {
        if self.prepaid > 0 && now >= self.expires {
            self.unused = self.unused.saturating_add(self.prepaid);
            self.prepaid = 0;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "retries_tests.rs"]
mod tests;
