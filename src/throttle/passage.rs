//! What a retry and the throttle inside it tell each other.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Extensions;
use tokio::time::Instant;

use crate::admit::{Fare, chain_of, with_passage};

/// Left by a throttle for the retry around it, if the attempt failed or had to wait here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    /// How long it waited for its turn.
    pub(crate) waited: Duration,
    /// The server said that there were too many, and the throttle sees to it.
    pub(crate) paced: bool,
}

impl Passed {
    /// Of an attempt that had no passage.
    pub(crate) fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }

    /// Leaves it with the attempt. What runs in no allowance has only its extensions, which take longer.
    pub(super) fn leave(self, extensions: &mut Extensions) {
        let left = with_passage(chain_of(extensions), |passage| {
            passage.get_or_insert_default().lock().passed = Some(self);
        });
        if left.is_none() {
            extensions.insert(self);
        }
    }
}

/// One attempt on its way through a throttle, as the retry around it wants to know it. It is kept with the
/// allowance that the attempt runs in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passage(Arc<Mutex<Way>>);

#[derive(Default)]
struct Way {
    /// What was paid for the attempt. Given back with the last copy of this, unless it is sent.
    fare: Option<Fare>,
    /// It is not sent later than this.
    latest: Option<Instant>,
    stage: Stage,
    passed: Option<Passed>,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Stage {
    /// There may be no throttle at all.
    #[default]
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
            ..Way::default()
        })))
    }

    /// Of an attempt of which only this is known.
    pub(crate) fn after(passed: Passed) -> Self {
        let passage = Self::default();
        passage.lock().passed = Some(passed);
        passage
    }

    pub(super) fn latest(&self) -> Option<Instant> {
        self.lock().latest
    }

    pub(super) fn of(extensions: &Extensions) -> Option<Self> {
        with_passage(chain_of(extensions), |passage| passage.clone()).flatten()
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

    /// What the throttle has left, if the attempt came to one.
    pub(crate) fn passed(&self) -> Option<Passed> {
        let way = self.lock();
        // If the retry has lost patience, the throttle could not leave its own mark.
        let timed_out = || (way.stage == Stage::TimedOut).then(Passed::default);
        way.passed.or_else(timed_out)
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

    /// What was paid for an attempt that was not sent is given back.
    pub(crate) fn give_back(&self) {
        // Dropped when the lock is free again.
        let _fare = self.lock().fare.take();
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
