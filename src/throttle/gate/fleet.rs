//! What a gate shares with the gates of other workers.
//!
//! The gate decides by the lease that it holds. Requests to the store come out of that, and `GateStore`
//! sends them once the lock is free.

use std::time::Duration;

use tokio::time::Instant;

use super::super::controller::Controller;
use super::super::gate_store::GateStore;
use super::Gate;
use super::state::GateState;
use crate::clock::{self, Time};
use crate::fleet::{Lease, LeaseAsk};

/// A lease that could not give back is looked at again no sooner than this.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Gate {
    pub(in crate::throttle) fn shared_by(mut self, store: GateStore) -> Self {
        self.store = Some(Box::new(store));
        self
    }

    /// Takes what the store has leased.
    pub(in crate::throttle) fn receive_lease(&self, granted: Result<Lease, ()>) {
        let reminder = self.update(|state, now, _| {
            let lease = state.lease.as_mut()?;
            lease.receive(now, granted);
            if let Some(controller) = &mut state.controller {
                if let Some(rate) = lease.take_pace(controller.rate()) {
                    controller.adopt_rate(now, rate);
                }
            }
            let idle_at = lease.idle_at().filter(|_| !state.has_reminder)?;
            state.has_reminder = true;
            Some(idle_at)
        });
        if let (Some(at), Some(store)) = (reminder, &self.store) {
            store.give_back_at(clock::after(self.born, at));
        }
    }

    /// Returns the leases that it does not need any more, and when to look again.
    pub(in crate::throttle) fn give_back(&self) -> (Option<LeaseAsk>, Option<Instant>) {
        let now = self.now();
        let mut state = self.lock();
        let Some(lease) = &mut state.lease else {
            return (None, None);
        };
        let ask = lease.give_back(now);
        let next = lease.idle_at();
        state.has_reminder = next.is_some();
        // A request to the store may be under way.
        let soon = now.saturating_add(LOOK_AGAIN);
        (ask, next.map(|at| clock::after(self.born, at.max(soon))))
    }

    /// Pauses, because a server asked another worker to.
    pub(in crate::throttle) fn pause(&self, length: Duration) {
        self.update(|state, now, after| {
            if let Some(lease) = &mut state.lease {
                lease.paused(now, length);
                state.refuse_hopeless(now, after);
            }
        });
    }
}

impl GateState {
    /// Returns what to ask the store now.
    pub(super) fn lease_ask(&mut self, now: Time) -> Option<LeaseAsk> {
        let lease = self.lease.as_mut()?;
        let rate = self.controller.as_ref().and_then(Controller::rate);
        lease.ask(now, self.queue.len(), rate)
    }

    /// Notes a pause that the server asked for. Returns it if other workers do not know it yet.
    pub(super) fn pause_to_share(
        &mut self,
        now: Time,
        pause: Option<Duration>,
    ) -> Option<Duration> {
        let (Some(lease), Some(pause), true) = (&mut self.lease, pause, self.controller.is_some())
        else {
            return None;
        };
        lease.is_new_pause(now, pause).then_some(pause)
    }
}
