//! What a gate shares with the gates of other workers.
//!
//! A gate decides by the tokens that it holds, under its lock, and never waits for the store. Asks and
//! pauses come out of these decisions, and background tasks send them once the lock is free. A call waits
//! for the store only if the gate holds no token.

use std::sync::Weak;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::super::config::ThrottleConfig;
use super::super::controller::Controller;
use super::super::key::GateKey;
use super::Gate;
use super::state::GateState;
use crate::clock::{self, Time};
use crate::fleet::{FleetLimits, Lease, LeaseAsk, PauseListener, store_key};
use crate::lock::lock;

/// A lease that could not give back is looked at again no sooner than this.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A pause that the store did not take is sent again after this long. The wait doubles.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Sends the asks and pauses of one gate to the store.
///
/// It holds the gate weakly: without the gate, no result is needed.
#[derive(Clone, Debug)]
pub(super) struct GateStore {
    fleet: FleetLimits,
    key: String,
    gate: Weak<Gate>,
}

impl GateStore {
    /// Returns `None` if no fleet shares the limits of the gate.
    pub(super) fn new(
        gate: &Weak<Gate>,
        key: &GateKey<'_>,
        settings: &ThrottleConfig,
    ) -> Option<Box<Self>> {
        let fleet = settings.fleet.clone()?;
        let key = store_key("gate", &key.text, !key.is_public());
        let gate = gate.clone();
        Some(Box::new(Self { fleet, key, gate }))
    }

    /// Lets the gate hear of pauses of other workers.
    pub(super) fn listen(&self) {
        self.fleet.listen(&self.key, self.gate.clone());
    }

    /// Sends in background tasks. Without a tokio runtime, an ask times out in the gate.
    pub(super) fn send(&self, ask: Option<LeaseAsk>, pause: Option<Duration>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if let Some(length) = pause {
            runtime.spawn(self.clone().pause(length));
        }
        if let Some(ask) = ask {
            let store = self.clone();
            runtime.spawn(async move { store.lease(ask).await });
        }
    }

    async fn lease(&self, ask: LeaseAsk) {
        let lease = self.fleet.ask_lease(&self.key, ask).await;
        if let Some(gate) = self.gate.upgrade() {
            gate.receive_lease(lease.map_err(|_| ()));
        }
    }

    /// Gives unused tokens back at `at`, and again as long as the gate has some.
    async fn give_back(self, mut at: Instant) {
        loop {
            tokio::time::sleep_until(at).await;
            let Some((ask, next)) = self.gate.upgrade().map(|gate| gate.give_back()) else {
                return;
            };
            if let Some(ask) = ask {
                self.lease(ask).await;
            }
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
    }

    /// Sends a pause until the store has taken it, because the gate sends each pause once.
    async fn pause(self, length: Duration) {
        let end = clock::after(clock::now(), length);
        let mut wait = FIRST_WAIT;
        loop {
            let left = end.saturating_duration_since(clock::now());
            if left.is_zero() || self.fleet.pause(&self.key, left).await.is_ok() {
                return;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
            if self.gate.strong_count() == 0 {
                return;
            }
        }
    }
}

impl Gate {
    /// Takes what the store has leased.
    fn receive_lease(&self, granted: Result<Lease, ()>) {
        let reminder = self.update(|state, now| {
            let lease = state.lease.as_mut()?;
            lease.receive(now, granted);
            if let Some(controller) = &mut state.controller {
                if let Some(rate) = lease.take_pace(controller.rate()) {
                    controller.adopt_rate(now, rate);
                }
            }
            let give_back_at = lease.give_back_at().filter(|_| !state.has_reminder)?;
            state.has_reminder = true;
            Some(give_back_at)
        });
        if let (Some(at), Some(store)) = (reminder, &self.store) {
            let at = clock::after(self.born, at);
            tokio::spawn(GateStore::clone(store).give_back(at));
        }
    }

    /// Returns the leases that it does not need any more, and when to look again.
    fn give_back(&self) -> (Option<LeaseAsk>, Option<Instant>) {
        let now = self.now();
        let mut state = lock(&self.state);
        let Some(lease) = &mut state.lease else {
            return (None, None);
        };
        let ask = lease.give_back(now);
        let next = lease.give_back_at();
        state.has_reminder = next.is_some();
        // A request to the store may be under way.
        let soon = now.saturating_add(LOOK_AGAIN);
        (ask, next.map(|at| clock::after(self.born, at.max(soon))))
    }
}

impl PauseListener for Gate {
    /// Pauses, because a server asked another worker to.
    fn paused(&self, length: Duration) {
        self.update(|state, now| {
            if let Some(lease) = &mut state.lease {
                lease.paused(now, length);
                state.refuse_hopeless(now);
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
        self.controller.as_ref()?;
        let is_new = self.lease.as_mut()?.is_new_pause(now, pause?);
        pause.filter(|_| is_new)
    }
}
