//! What a retry and the throttle inside it tell each other.

use std::time::Duration;

use http::Extensions;
use reqwest::Response;
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::refusal::Refusal;
use crate::admit::Fare;

/// Left in the extensions by a throttle for the retry around it, if the attempt failed or had to wait here.
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
///
/// While the attempt is polled, it is kept beside the current allowance (`admit::with_passage`): so a throttle
/// finds it, whatever stands between the two. A throttle of another client that is asked within the attempt
/// finds it as well. Then the clock stops while that one lets the attempt wait, too.
pub(crate) struct Passage {
    stage: Stage,
    /// In a box, so that a poll of a first attempt has little to move.
    again: Option<Box<Again>>,
}

/// What is known of an attempt that is not the first.
struct Again {
    /// What was paid for it. Given back when this is dropped, unless it is sent.
    fare: Option<Fare>,
    /// It is not sent later than this.
    latest: Instant,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage {
    /// There may be no throttle at all.
    Unknown,
    /// At a throttle, which may let it wait, or not let it through at all.
    Waiting,
    Sent(Instant),
    /// The retry has lost patience.
    TimedOut,
}

impl Passage {
    pub(crate) fn first() -> Self {
        Self {
            stage: Stage::Unknown,
            again: None,
        }
    }

    pub(crate) fn again(fare: Option<Fare>, latest: Instant) -> Self {
        Self {
            again: Some(Box::new(Again { fare, latest })),
            ..Self::first()
        }
    }

    pub(crate) fn latest(&self) -> Option<Instant> {
        self.again.as_ref().map(|again| again.latest)
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    pub(crate) fn time_out(&mut self) {
        if self.stage != Stage::Unknown {
            self.stage = Stage::TimedOut;
        }
    }

    /// Whether the retry has lost patience with an attempt that came to a throttle. The throttle could
    /// not leave its own mark then.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.stage == Stage::TimedOut
    }

    pub(super) fn wait(&mut self) {
        self.stage = Stage::Waiting;
    }

    /// The attempt is sent now.
    pub(super) fn pass(&mut self, now: Instant) {
        self.stage = Stage::Sent(now);
        self.pay();
    }

    /// What was paid is not given back any more.
    pub(crate) fn pay(&mut self) {
        if let Some(fare) = self.again.as_mut().and_then(|again| again.fare.take()) {
            fare.spend();
        }
    }

    /// The attempt has ended with this. Unless a throttle kept it from being sent, it may have been, although
    /// none has said so: there may be none any more.
    pub(crate) fn end(mut self, result: &Result<Response>) {
        let refused = result
            .as_ref()
            .is_err_and(|error| Refusal::of(error).is_some());
        if !refused && self.stage != Stage::TimedOut {
            self.pay();
        }
    }
}
