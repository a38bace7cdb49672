//! How a gate talks to the store of its fleet.
//!
//! A gate decides by the tokens that it holds, under its lock, and never waits for the store. Asks and pauses
//! come out of these decisions, and background tasks send them. A call waits for the store only if the gate
//! holds no token.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::builder::ThrottleSettings;
use super::gate::Gate;
use super::key::GateKey;
use crate::clock;
use crate::fleet::{FleetLimits, KeyKind, LeaseAsk, PauseListener};

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

/// What to send to the store once the lock of the gate is free.
#[derive(Debug, Default)]
pub(super) struct StoreMessages {
    pub(super) ask: Option<LeaseAsk>,
    pub(super) pause: Option<Duration>,
}

impl Gate {
    /// Creates a gate, which shares its limits if the settings name a fleet.
    pub(super) fn in_arc(key: GateKey, settings: &ThrottleSettings, now: Instant) -> Arc<Self> {
        let Some(shared) = &settings.fleet else {
            return Arc::new(Self::new(key, settings, now));
        };
        let fleet = &shared.limits;
        let name = KeyKind::Gate.store_key(key.text(), key.public().is_none());
        let gate = Arc::new_cyclic(|gate| {
            let store = GateStore {
                fleet: fleet.clone(),
                key: name.clone(),
                gate: gate.clone(),
            };
            Self::new(key, settings, now).shared_by(store)
        });
        if settings.adaptive {
            let listener: Weak<Self> = Arc::downgrade(&gate);
            fleet.listen(&name, listener);
        }
        gate
    }
}

impl GateStore {
    /// Sends in background tasks. Without a tokio runtime, an ask times out in the gate.
    pub(super) fn send(&self, messages: StoreMessages) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if let Some(length) = messages.pause {
            runtime.spawn(self.clone().pause(length));
        }
        if let Some(ask) = messages.ask {
            let store = self.clone();
            runtime.spawn(async move { store.lease(ask).await });
        }
    }

    /// Gives unused tokens back at `at`, and again as long as the gate has some.
    pub(super) fn give_back_at(&self, at: Instant) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.clone().give_back(at));
        }
    }

    async fn lease(&self, ask: LeaseAsk) {
        let lease = self.fleet.lease(&self.key, ask).await;
        if let Some(gate) = self.gate.upgrade() {
            gate.receive_lease(lease.map_err(|_| ()));
        }
    }

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

impl PauseListener for Gate {
    fn paused(&self, length: Duration) {
        self.pause(length);
    }
}
