//! What a retry and the throttle inside it tell each other, by way of the extensions.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Extensions;
use tokio::time::Instant;

use crate::admit::Fare;

/// Left by a throttle for the retry around it, if the attempt failed or had to wait here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    /// How long it waited for its turn.
    pub(crate) waited: Duration,
    /// The server said that there were too many, and the throttle sees to it.
    pub(crate) paced: bool,
}

impl Passed {
    pub(crate) fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }
}

/// One attempt on its way through a throttle, as the retry around it wants to know it.
#[derive(Clone, Debug)]
pub(crate) struct Passage(Arc<Mutex<Way>>);

struct Way {
    /// What was paid for the attempt. Given back with the last copy of this, unless it is sent.
    fare: Option<Fare>,
    /// It is not sent later than this.
    latest: Option<Instant>,
    stage: Stage,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage {
    /// There may be no throttle at all.
    Unknown,
    Waiting,
    Sent(Instant),
    /// The retry has lost patience.
    TimedOut,
}

impl Passage {
    pub(crate) fn new(fare: Option<Fare>, latest: Option<Instant>) -> Self {
        Self(Arc::new(Mutex::new(Way {
            fare,
            latest,
            stage: Stage::Unknown,
        })))
    }

    pub(super) fn latest(&self) -> Option<Instant> {
        self.lock().latest
    }

    pub(super) fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().cloned()
    }

    pub(crate) fn stage(&self) -> Stage {
        self.lock().stage
    }

    pub(crate) fn time_out(&self) {
        let mut way = self.lock();
        if way.stage != Stage::Unknown {
            way.stage = Stage::TimedOut;
        }
    }

    /// Whether the retry has lost patience with an attempt that came to a throttle. The throttle could
    /// not leave its own mark then.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.stage() == Stage::TimedOut
    }

    pub(super) fn wait(&self) {
        self.lock().stage = Stage::Waiting;
    }

    /// The attempt is sent now.
    pub(super) fn pass(&self, now: Instant) {
        let mut way = self.lock();
        way.stage = Stage::Sent(now);
        way.pay();
    }

    /// What was paid is not given back any more.
    pub(crate) fn pay(&self) {
        self.lock().pay();
    }

    fn lock(&self) -> MutexGuard<'_, Way> {
        // Held for single assignments only.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Way {
    fn pay(&mut self) {
        if let Some(fare) = self.fare.take() {
            fare.spend();
        }
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way")
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
