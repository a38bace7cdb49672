//! One request at a throttle, as its observers see it.

use std::borrow::Cow;
use std::time::Duration;

use http::Method;
use reqwest::Request;

use super::builder::Settings;
use super::gate::{Gate, News, Sight};
use crate::host::Host;
use crate::observe::{
    CallInfo, Event, EventKind, LoadChange, ThrottlePaused, ThrottleRefused, ThrottleWaited,
};
use crate::outcome::{Attempt, Refusal};

/// Dropped after the request has given up its place, it tells of that, too.
pub(super) struct Watch<'a> {
    settings: &'a Settings,
    gate: &'a Gate,
    method: Method,
    /// Its own only if the gate does not know it.
    host: Cow<'a, str>,
    attempt: Attempt,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Outside,
    Waiting,
    Sent,
}

impl<'a> Watch<'a> {
    #[inline]
    pub(super) fn new(
        settings: &'a Settings,
        gate: &'a Gate,
        request: &Request,
        attempt: Attempt,
    ) -> Self {
        let host = match gate.host() {
            Some(host) => Cow::Borrowed(host),
            None => Cow::Owned(Host(request.url()).as_str().to_owned()),
        };
        Self {
            settings,
            gate,
            method: request.method().clone(),
            host,
            attempt,
            stage: Stage::Outside,
        }
    }

    fn tell(&self, kind: EventKind) {
        let call = CallInfo {
            method: &self.method,
            host: &self.host,
            attempt: self.attempt.number(),
        };
        self.settings.observers.tell(&Event { call, kind });
    }

    fn enter(&mut self, stage: Stage) {
        let change = match (self.stage, stage) {
            (Stage::Waiting, _) => Some(LoadChange::Left),
            (Stage::Sent, _) => Some(LoadChange::Ended),
            (Stage::Outside, Stage::Waiting) => Some(LoadChange::Queued),
            (Stage::Outside, Stage::Sent) => Some(LoadChange::Sent),
            (Stage::Outside, Stage::Outside) => None,
        };
        self.stage = stage;
        if let Some(change) = change {
            self.tell(EventKind::ThrottleLoad(self.gate.load(change)));
        }
    }

    /// It has to wait for its turn.
    pub(super) fn queued(&mut self) {
        self.enter(Stage::Waiting);
        self.tell_news();
    }

    /// It is not let through, now or after a wait.
    pub(super) fn refused(&mut self, refusal: &Refusal, waited: Duration) {
        self.enter(Stage::Outside);
        self.tell_news();
        self.tell(EventKind::ThrottleRefused(ThrottleRefused {
            reason: refusal.reason(),
            waited,
            depth: refusal.depth(),
            retry_after: refusal.retry_after(),
        }));
    }

    /// It goes to the server at once.
    pub(super) fn sent(&mut self, sight: Sight) {
        self.stage = Stage::Sent;
        self.tell_sight(sight);
    }

    /// It goes to the server after a wait.
    pub(super) fn waited(&mut self, wait: Duration) {
        self.enter(Stage::Outside);
        self.tell(EventKind::ThrottleWaited(ThrottleWaited { wait }));
        self.enter(Stage::Sent);
        self.tell_news();
    }

    /// It has its answer, or knows that there will be none.
    pub(super) fn answered(&mut self, sight: Sight) {
        self.stage = Stage::Outside;
        self.tell_sight(sight);
    }

    fn tell_sight(&self, sight: Sight) {
        self.tell(EventKind::ThrottleLoad(sight.load));
        self.tell_new(sight.news);
    }

    /// What has become of the gate since somebody looked the last time.
    fn tell_news(&self) {
        self.tell_new(self.gate.news());
    }

    fn tell_new(&self, news: Option<News>) {
        match news {
            None => {}
            Some(News::Closed(pause)) => {
                self.tell(EventKind::ThrottlePaused(ThrottlePaused { pause }));
            }
            Some(News::Open) => self.tell(EventKind::ThrottleReleased),
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.stage != Stage::Outside {
            self.enter(Stage::Outside);
            self.tell_news();
        }
    }
}
