//! The gate of one key: admits requests, lets them wait, or refuses them.
//!
//! [`GateState`](state::GateState) has the limits, the controller and the queue, behind one lock that is
//! never held across an `await`. [`GateRequest`] is one request on its way through the gate.
//! No task runs behind a gate: each change admits all waiters that may go, and the next waiter sets a timer
//! for the queue.

mod fleet;
mod queueing;
mod reported;
mod request;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::config::ThrottleConfig;
use super::controller::Admission;
use super::key::GateKey;
use super::queue::{WaitLimit, WaiterId};
use crate::admit;
use crate::clock::{self, Time};
use crate::entropy::Entropy;
use crate::handoff::Terms;
use crate::lock::lock;
use crate::observe::LoadChange;
use crate::outcome::{Refusal, RefusalReason};
use fleet::GateStore;
pub(super) use request::GateRequest;
pub(super) use state::Grant;
use state::{GateSnapshot, GateState};

/// A wait ends this long before a deadline, because a timer may be late by half of it.
const DEADLINE_MARGIN: Duration = Duration::from_millis(2);

pub(super) struct Gate {
    key: GateKey<'static>,
    /// The hash of the key's host, for events.
    host_hash: u64,
    /// Where all jitter comes from. All gates of a throttle share it.
    entropy: Arc<Entropy>,
    /// Every [`Time`] inside counts from here.
    born: Instant,
    state: Mutex<GateState>,
    /// `None` unless a fleet shares the limits.
    store: Option<Box<GateStore>>,
}

/// Shows its key. Its settings are those of the throttle.
impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&self.key).finish()
    }
}

/// What the gate does with a request that arrives.
enum GateEntry {
    /// It goes now.
    Admitted(Grant, Option<GateSnapshot>),
    Queued(WaiterId),
}

impl Gate {
    pub(super) fn new(
        key: GateKey<'static>,
        config: &ThrottleConfig,
        entropy: &Arc<Entropy>,
        now: Instant,
    ) -> Arc<Self> {
        let gate = Arc::new_cyclic(|gate| Self {
            store: GateStore::new(gate, &key, config),
            host_hash: key.host_hash(),
            key,
            entropy: Arc::clone(entropy),
            born: now,
            state: Mutex::new(GateState::new(config)),
        });
        if let (Some(store), true) = (&gate.store, config.adaptive) {
            store.listen();
        }
        gate
    }

    /// Reuses the memory of this gate for another key. A gate that a fleet shares is not renewed: its store holds
    /// a `Weak`, so `Arc::get_mut` fails.
    pub(super) fn renew(&mut self, key: &GateKey<'_>, config: &ThrottleConfig, now: Instant) {
        key.clone_into(&mut self.key);
        self.host_hash = key.host_hash();
        self.born = now;
        *self.state.get_mut().unwrap_or_else(PoisonError::into_inner) = GateState::new(config);
    }

    /// Takes over new limits. What it has learned stays.
    pub(super) fn apply(&self, config: &ThrottleConfig) {
        self.update(|state, now| state.apply(config, now));
    }

    /// Whether dropping the gate would lose something.
    pub(super) fn must_keep(&self, now: Instant) -> bool {
        lock(&self.state).must_keep(self.time(now))
    }

    /// Admits a request, queues it, or refuses it.
    ///
    /// Retries wait ahead of first attempts. `terms` are those of the retry around the throttle.
    fn enter(
        &self,
        config: &ThrottleConfig,
        now: Instant,
        is_retry: bool,
        terms: Terms,
    ) -> Result<GateEntry, Refusal> {
        let now = self.time(now);
        let mut state = lock(&self.state);
        state.last_used = now;
        let entry = if state.queue.is_empty() && state.admission(now) == Admission::Now {
            let grant = state.send(now);
            GateEntry::Admitted(
                grant,
                self.snapshot(config, &mut state, now, LoadChange::Sent),
            )
        } else {
            let limit = self.wait_limit(config.max_queue_wait, now, terms);
            if state.queue.line_len(is_retry) >= config.max_queue {
                return Err(self.refusal(&state, RefusalReason::QueueFull, now));
            }
            GateEntry::Queued(self.queue_up(&mut state, now, is_retry, limit)?)
        };
        self.unlock(state, now);
        Ok(entry)
    }

    fn queue_up(
        &self,
        state: &mut GateState,
        now: Time,
        is_retry: bool,
        limit: WaitLimit,
    ) -> Result<WaiterId, Refusal> {
        let ahead = state.queue.line_len(is_retry);
        if state.not_before(now, ahead) > limit.at {
            return Err(self.refusal(state, limit.reason, now));
        }
        state.first_limit = Some(state.first_limit.map_or(limit.at, |at| at.min(limit.at)));
        Ok(state.queue.push(is_retry, now, limit))
    }

    /// Returns until when a call that arrives now may wait: for `max_wait` in all, and not past its deadline.
    fn wait_limit(&self, max_wait: Duration, now: Time, terms: Terms) -> WaitLimit {
        let time = |end| self.time(end);
        let wait = max_wait.saturating_sub(terms.queued_before);
        let longest = now.saturating_add(wait);
        let longest = terms
            .latest
            .map_or(longest, |latest| time(latest).min(longest));
        let deadline = admit::current_deadline().map(time);
        match deadline.map(|end| end.saturating_sub(DEADLINE_MARGIN)) {
            Some(at) if at < longest => WaitLimit {
                at,
                reason: RefusalReason::DeadlineTooClose,
            },
            _ => WaitLimit {
                at: longest,
                reason: RefusalReason::WaitTooLong,
            },
        }
    }

    fn refusal(&self, state: &GateState, reason: RefusalReason, now: Time) -> Refusal {
        let depth = state.queue.len();
        Refusal {
            reason,
            key: self.key.text.to_string(),
            shows_key: self.key.is_public(),
            depth,
            retry_after: state.likely_at(now, depth).saturating_sub(now),
        }
    }

    fn now(&self) -> Time {
        self.time(clock::now())
    }

    fn time(&self, at: Instant) -> Time {
        at.saturating_duration_since(self.born)
    }

    /// Returns what observers and the log see after a change, if there are any.
    fn snapshot(
        &self,
        config: &ThrottleConfig,
        state: &mut GateState,
        now: Time,
        change: LoadChange,
    ) -> Option<GateSnapshot> {
        let has_observers = !config.observers.is_empty();
        config.is_watched().then(|| GateSnapshot {
            load: has_observers.then(|| state.load(now, change)),
            changes: state.unreported_changes(now),
        })
    }

    /// Changes the state, and admits all waiters that may go after that.
    fn update<T>(&self, change: impl FnOnce(&mut GateState, Time) -> T) -> T {
        let now = self.now();
        let mut state = lock(&self.state);
        let output = change(&mut state, now);
        if !state.queue.is_empty() {
            state.admit_waiters(now);
        }
        self.unlock(state, now);
        output
    }

    /// Unlocks after a change, and does the work that had to wait for that.
    fn unlock(&self, mut state: MutexGuard<'_, GateState>, now: Time) {
        let ask = state.lease_ask(now);
        if ask.is_none() && state.after_unlock.is_empty() {
            return;
        }
        let after = std::mem::take(&mut state.after_unlock);
        drop(state);
        if let Some(store) = &self.store {
            store.send(ask, after.pause);
        }
        after.to_wake.into_iter().for_each(Waker::wake);
        // `after.to_drop` is dropped here, without the lock.
    }
}
