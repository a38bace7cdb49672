//! The gate of one key: admits requests, lets them wait, or refuses them.
//!
//! [`GateState`](state::GateState) has the limits, the controller and the queue, behind one lock that is
//! never held across an `await`. A request that goes holds a [`Slot`]; one that waits is [`QueuedRequest`].
//! No task runs behind a gate: each change admits all waiters that may go, and the next waiter keeps the
//! time.

mod fleet;
mod queued_request;
mod queueing;
mod slot;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::builder::ThrottleSettings;
use super::controller::Admission;
use super::gate_store::{GateStore, StoreMessages};
use super::key::{GateKey, RequestKey};
use super::queue::WaitLimit;
use crate::admit;
use crate::clock::{self, Time};
use crate::handoff::Terms;
use crate::observe::{LoadChange, ThrottleLoad};
use crate::outcome::{Refusal, RefusalReason};
pub(super) use queued_request::QueuedRequest;
pub(super) use slot::Slot;
use state::GateState;
pub(super) use state::{GateChange, GateSnapshot, Grant};

/// A wait ends this long before a deadline, because a timer may be late by half of it.
const DEADLINE_MARGIN: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Gate {
    key: GateKey,
    /// Every [`Time`] inside counts from here.
    born: Instant,
    state: Mutex<GateState>,
    /// `None` unless a fleet shares the limits.
    store: Option<Box<GateStore>>,
}

/// What the gate does with a request that arrives.
pub(super) enum GateEntry<'a> {
    /// It goes now. The snapshot is for observers, if there are any.
    Admitted(Slot<'a>, Option<GateSnapshot>),
    Queued(QueuedRequest<'a>),
}

/// Work that must not happen under the lock: a waker may run any code, even code that locks this gate.
#[derive(Default)]
struct AfterUnlock {
    to_wake: Vec<Waker>,
    to_drop: Vec<Waker>,
    for_store: StoreMessages,
}

impl Gate {
    pub(super) fn new(key: GateKey, settings: &ThrottleSettings, now: Instant) -> Self {
        Self {
            key,
            born: now,
            state: Mutex::new(GateState::new(settings)),
            store: None,
        }
    }

    /// Reuses the memory of this gate for a new one.
    pub(super) fn renew(
        &mut self,
        key: &RequestKey<'_>,
        settings: &ThrottleSettings,
        now: Instant,
    ) {
        key.clone_into(&mut self.key);
        self.born = now;
        *self.state.get_mut().unwrap_or_else(PoisonError::into_inner) = GateState::new(settings);
    }

    /// Returns the host of all its requests, unless a user's function makes the keys.
    pub(super) fn host(&self) -> Option<&str> {
        self.key.host()
    }

    /// Whether dropping the gate would lose something.
    pub(super) fn must_keep(&self, now: Instant) -> bool {
        let now = self.time(now);
        self.lock().must_keep(now)
    }

    /// Admits a request, queues it, or refuses it.
    ///
    /// Retries wait ahead of first attempts. `terms` are those of the retry around the throttle.
    pub(super) fn enter<'a>(
        &'a self,
        now: Instant,
        settings: &'a ThrottleSettings,
        is_retry: bool,
        terms: Terms,
    ) -> Result<GateEntry<'a>, Refusal> {
        let now = self.time(now);
        let mut state = self.lock();
        state.last_used = now;
        if !state.queue.is_empty() || state.admission(now) != Admission::Now {
            let wait = settings.max_wait.saturating_sub(terms.queued_before);
            let limit = self.wait_limit(now, wait, terms.latest);
            let waiting = self.queue_up(state, now, settings, is_retry, limit);
            return waiting.map(GateEntry::Queued);
        }
        let grant = state.send(now);
        let has_observers = settings.has_observers();
        let snapshot = has_observers.then(|| state.snapshot(now, LoadChange::Sent));
        self.finish_update(state, now, AfterUnlock::default());
        Ok(GateEntry::Admitted(
            Slot::new(self, settings, grant),
            snapshot,
        ))
    }

    fn queue_up<'a>(
        &'a self,
        mut state: MutexGuard<'_, GateState>,
        now: Time,
        settings: &'a ThrottleSettings,
        is_retry: bool,
        limit: WaitLimit,
    ) -> Result<QueuedRequest<'a>, Refusal> {
        let ahead = state.queue.line_len(is_retry);
        let refused = if ahead >= settings.max_queue {
            Some(RefusalReason::QueueFull)
        } else if state.not_before(now, ahead) > limit.at {
            Some(limit.reason)
        } else {
            None
        };
        if let Some(reason) = refused {
            return Err(self.refusal(&state, reason, now));
        }
        let id = state.queue.push(is_retry, now, limit);
        state.first_limit = Some(state.first_limit.map_or(limit.at, |at| at.min(limit.at)));
        self.finish_update(state, now, AfterUnlock::default());
        Ok(QueuedRequest {
            gate: self,
            settings,
            id: Some(id),
        })
    }

    /// Returns until when a call that arrives now may wait: for `wait`, and not past its deadline.
    fn wait_limit(&self, now: Time, wait: Duration, latest: Option<Instant>) -> WaitLimit {
        let time = |end| self.time(end);
        let latest = latest.map(time);
        let longest = now.saturating_add(wait);
        let limit = WaitLimit {
            at: latest.map_or(longest, |latest| latest.min(longest)),
            reason: RefusalReason::WaitTooLong,
        };
        let deadline = admit::current_deadline().map(time);
        let deadline = deadline.map(|end| end.saturating_sub(DEADLINE_MARGIN));
        match deadline {
            Some(at) if at < limit.at => WaitLimit {
                at,
                reason: RefusalReason::DeadlineTooClose,
            },
            _ => limit,
        }
    }

    fn refusal(&self, state: &GateState, reason: RefusalReason, now: Time) -> Refusal {
        let depth = state.queue.len();
        Refusal {
            reason,
            key: self.key.text().to_owned(),
            shows_key: self.key.public().is_some(),
            host: String::new(),
            depth,
            retry_after: state.likely_at(now, depth).saturating_sub(now),
        }
    }

    /// Returns how much it has to do, for observers.
    pub(super) fn load(&self, change: LoadChange) -> ThrottleLoad {
        let now = self.now();
        self.lock().load(now, change)
    }

    /// Returns whether the gate has opened or closed since the last report to observers.
    pub(super) fn unreported_change(&self) -> Option<GateChange> {
        let now = self.now();
        self.lock().unreported_change(now)
    }

    fn now(&self) -> Time {
        self.time(clock::now())
    }

    fn time(&self, at: Instant) -> Time {
        at.saturating_duration_since(self.born)
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        // Nothing panics in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and admits all waiters that may go after that.
    fn update<T>(&self, change: impl FnOnce(&mut GateState, Time, &mut AfterUnlock) -> T) -> T {
        let now = self.now();
        let mut after = AfterUnlock::default();
        let mut state = self.lock();
        let output = change(&mut state, now, &mut after);
        if !state.queue.is_empty() {
            state.admit_waiters(now, &mut after);
        }
        self.finish_update(state, now, after);
        output
    }

    /// Unlocks, and does the work that had to wait for that.
    fn finish_update(
        &self,
        mut state: MutexGuard<'_, GateState>,
        now: Time,
        mut after: AfterUnlock,
    ) {
        after.for_store.ask = state.lease_ask(now);
        drop(state);
        if let Some(store) = &self.store {
            store.send(after.for_store);
        }
        after.to_wake.into_iter().for_each(Waker::wake);
    }
}
