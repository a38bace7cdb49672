//! What a gate shares with the gates of other workers.
//!
//! The gate decides by what it holds, under its own lock, and asks nobody. Questions to the store come out of
//! that as a by-product, and are put in tasks of their own: no call waits for one, unless it has nothing to go
//! by.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::builder::ThrottleSettings;
use super::gate::Gate;
use super::key::GateKey;
use crate::clock;
use crate::fleet::{FleetLimits, KeyKind, Lease, LeaseAsk, PauseListener};

/// A pause that the store did not take is told again after this long, and then after a while that doubles.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// By which name a gate is known to the store, and how to get back to it.
#[derive(Debug)]
pub(super) struct Sharing {
    fleet: FleetLimits,
    key: String,
    gate: Weak<Gate>,
}

/// What is to be told to the store, once the lock of the gate is free again.
#[derive(Debug, Default)]
pub(super) struct ToTell {
    pub(super) ask: Option<LeaseAsk>,
    pub(super) pause: Option<Duration>,
}

impl Gate {
    /// With others, if the settings say so.
    pub(super) fn in_arc(key: GateKey, settings: &ThrottleSettings, now: Instant) -> Arc<Self> {
        let Some(shared) = &settings.fleet else {
            return Arc::new(Self::new(key, settings, now));
        };
        let fleet = &shared.limits;
        let name = FleetLimits::key(KeyKind::Gate, key.text(), key.public().is_none());
        let gate = Arc::new_cyclic(|gate| {
            let sharing = Sharing {
                fleet: fleet.clone(),
                key: name.clone(),
                gate: gate.clone(),
            };
            Self::new(key, settings, now).shared_by(sharing)
        });
        if settings.adaptive {
            let listener: Weak<Self> = Arc::downgrade(&gate);
            fleet.listen(&name, listener);
        }
        gate
    }
}

impl Sharing {
    /// Sees to it that the store gets to know.
    pub(super) fn tell(&self, news: ToTell) {
        let Ok(runtime) = Handle::try_current() else {
            // Nobody can ask. When a question is not answered in time, the gate goes by what it knows.
            return;
        };
        if let Some(length) = news.pause {
            runtime.spawn(self.question().pause(length));
        }
        if let Some(ask) = news.ask {
            runtime.spawn(self.question().put(ask));
        }
    }

    /// Looks at `at` whether there is something to give back.
    pub(super) fn remind(&self, at: Instant) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.question().give_back(at));
        }
    }

    fn question(&self) -> Question {
        Question {
            fleet: self.fleet.clone(),
            key: self.key.clone(),
            gate: self.gate.clone(),
        }
    }
}

/// Put without holding on to the gate: if nobody needs it any more, nobody needs the answer.
struct Question {
    fleet: FleetLimits,
    key: String,
    gate: Weak<Gate>,
}

impl Question {
    async fn put(self, ask: LeaseAsk) {
        let lease = self.ask(ask).await;
        if let Some(gate) = self.gate.upgrade() {
            gate.told(lease);
        }
    }

    async fn give_back(self, mut at: Instant) {
        loop {
            tokio::time::sleep_until(at).await;
            let Some((ask, next)) = self.gate.upgrade().map(|gate| gate.give_back()) else {
                return;
            };
            if let Some(ask) = ask {
                let lease = self.ask(ask).await;
                if let Some(gate) = self.gate.upgrade() {
                    gate.told(lease);
                }
            }
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
    }

    /// Tells of it until the store has taken it. The gate tells each pause once, so nobody else would.
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

    async fn ask(&self, ask: LeaseAsk) -> Result<Lease, ()> {
        self.fleet.lease(&self.key, ask).await.map_err(|_| ())
    }
}

impl PauseListener for Gate {
    fn paused(&self, length: Duration) {
        self.pause(length);
    }
}
