//! What a retry and the throttle inside it tell each other.

use std::time::Duration;

use http::Extensions;
use reqwest::Url;
use tokio::time::Instant;

use crate::admit::{Fare, chain_of};
use crate::outcome::Attempt;

/// Left in the extensions by a throttle for the retry around it, if the attempt failed or had to wait here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    /// How long it waited for its turn.
    pub(crate) waited: Duration,
    /// How long it waited before that, as another retry further inside has reported.
    pub(crate) reported: Duration,
    /// The server said that there were too many, and the throttle sees to it.
    pub(crate) paced: bool,
}

impl Passed {
    pub(crate) fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }

    /// Leaves a mark, and adds the time in the queue of another throttle further inside.
    pub(crate) fn leave(extensions: &mut Extensions, waited: Duration, paced: bool) {
        let inside = Self::of(extensions).unwrap_or_default();
        extensions.insert(Self {
            waited: waited.saturating_add(inside.waited),
            reported: inside.reported,
            paced,
        });
    }

    /// Notes that a retry has reported so much time in the queue. Another one around it must not add it again.
    pub(crate) fn report(extensions: &mut Extensions, queued: Duration) {
        let paced = Self::of(extensions).is_some_and(|passed| passed.paced);
        extensions.insert(Self {
            waited: Duration::ZERO,
            reported: queued,
            paced,
        });
    }

    /// How long it waited in all.
    pub(crate) fn queued(self) -> Duration {
        self.waited.saturating_add(self.reported)
    }
}

/// How long the earlier attempts of this call waited in a throttle's queue. The retry leaves it in the extensions of
/// its later attempts, because [`max_wait`](crate::ThrottleMiddlewareBuilder::max_wait) holds for all attempts of a call together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedBefore(pub(crate) Duration);

impl QueuedBefore {
    pub(crate) fn of(extensions: &Extensions) -> Duration {
        extensions.get().map_or(Duration::ZERO, |Self(time)| *time)
    }
}

/// One attempt on its way through a throttle, as the retry around it wants to know it.
///
/// While the attempt is polled, it is kept beside the current allowance (`admit::with_passage`). A throttle knows
/// by [`is_of`](Self::is_of) whether it is the one of its own request: another client may be asked within the
/// attempt, and its throttle has no part in this.
pub(crate) struct Passage {
    stage: Stage,
    way: Way,
    /// The time in the throttle's queue so far. The throttle cannot tell of it if the attempt is cut off.
    queued: Duration,
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

/// By what a request on its way is known. Addresses, to compare and nothing else.
#[derive(Clone, Copy)]
struct Way {
    /// Of its extensions, unless somebody between has copied them.
    extensions: usize,
    /// Of the text of its URL, which goes wherever the request goes.
    url: usize,
}

impl Way {
    /// Nobody's.
    const NONE: Self = Self {
        extensions: 0,
        url: 0,
    };

    fn of(extensions: &Extensions, url: &Url) -> Self {
        Self {
            extensions: chain_of(extensions),
            url: url.as_str().as_ptr() as usize,
        }
    }
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage {
    /// There may be no throttle at all.
    Unknown,
    Waiting,
    Sent(Instant),
    /// A throttle did not let it through.
    Refused,
    /// The retry has lost patience.
    TimedOut,
}

impl Passage {
    pub(crate) fn first(extensions: &Extensions, url: &Url) -> Self {
        Self {
            stage: Stage::Unknown,
            way: Way::of(extensions, url),
            queued: Duration::ZERO,
            again: None,
        }
    }

    pub(crate) fn again(
        extensions: &Extensions,
        url: &Url,
        fare: Option<Fare>,
        latest: Instant,
    ) -> Self {
        Self {
            again: Some(Box::new(Again { fare, latest })),
            ..Self::first(extensions, url)
        }
    }

    /// Whether it is the one of this request. Where extensions were copied, the number of a repeated attempt is
    /// among them, which another client's request does not have; a first attempt is known by its URL.
    pub(crate) fn is_of(&self, extensions: &Extensions, url: &Url) -> bool {
        let way = Way::of(extensions, url);
        let is_copy = || match self.again {
            Some(_) => Attempt::of(extensions).is_retry(),
            None => self.way.url == way.url,
        };
        self.way.extensions == way.extensions || is_copy()
    }

    /// It belongs to a retry around another one in the same chain: its attempt is a whole call of that one, and a
    /// throttle inside belongs to that one.
    pub(crate) fn hide(&mut self) {
        self.pay();
        self.way = Way::NONE;
        self.again = None;
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

    pub(crate) fn queued(&self) -> Duration {
        self.queued
    }

    /// Whether the retry has lost patience with an attempt that came to a throttle. The throttle could
    /// not leave its own mark then.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.stage == Stage::TimedOut
    }

    /// How far it was before.
    pub(super) fn wait(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Waiting)
    }

    /// It waits no longer, and is not sent either.
    pub(super) fn leave(&mut self, before: Stage, waited: Duration) {
        // A nested call that is dropped may leave its queue while this attempt is under way.
        if matches!(self.stage, Stage::Waiting | Stage::TimedOut) {
            self.queued = self.queued.saturating_add(waited);
        }
        if self.stage == Stage::Waiting {
            self.stage = before;
        }
    }

    pub(super) fn refuse(&mut self) {
        // Another copy of it may have been sent.
        if !matches!(self.stage, Stage::Sent(_)) {
            self.stage = Stage::Refused;
        }
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

    /// The attempt has ended. If it came to no throttle, it may have been sent all the same. Says whether what was
    /// paid for it is given back.
    pub(crate) fn end(mut self) -> bool {
        if self.stage == Stage::Unknown {
            self.pay();
        }
        self.again.is_some_and(|again| again.fare.is_some())
    }
}
