//! The events of one request at a gate, for observers.

use std::borrow::Cow;
use std::time::Duration;

use http::Method;
use reqwest::Request;

use super::builder::ThrottleSettings;
use super::gate::{Gate, GateChange, GateSnapshot};
use crate::host::Host;
use crate::observe::{
    CallInfo, Event, EventKind, LoadChange, ThrottlePaused, ThrottleRefused, ThrottleWaited,
};
use crate::outcome::{Attempt, Refusal};

/// Sends the events of one request.
///
/// Drop it after the slot or the place in the queue: a request that was abandoned sends its last events
/// then.
pub(super) struct GateEvents<'a> {
    settings: &'a ThrottleSettings,
    gate: &'a Gate,
    method: Method,
    /// Borrowed from the gate, unless a user's function makes the keys.
    host: Cow<'a, str>,
    attempt: Attempt,
    stage: GateStage,
}

/// Where the request is, as observers know it.
#[derive(Clone, Copy, PartialEq)]
enum GateStage {
    Outside,
    Waiting,
    Sent,
}

impl<'a> GateEvents<'a> {
    pub(super) fn new(
        settings: &'a ThrottleSettings,
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
            stage: GateStage::Outside,
        }
    }

    fn notify(&self, kind: EventKind) {
        let call = CallInfo {
            method: &self.method,
            host: &self.host,
            attempt: self.attempt.number(),
        };
        self.settings.observers.notify(&Event { call, kind });
    }

    fn move_to(&mut self, stage: GateStage) {
        let change = match (self.stage, stage) {
            (GateStage::Waiting, _) => Some(LoadChange::Left),
            (GateStage::Sent, _) => Some(LoadChange::Ended),
            (GateStage::Outside, GateStage::Waiting) => Some(LoadChange::Queued),
            (GateStage::Outside, GateStage::Sent) => Some(LoadChange::Sent),
            (GateStage::Outside, GateStage::Outside) => None,
        };
        self.stage = stage;
        if let Some(change) = change {
            self.notify(EventKind::ThrottleLoad(self.gate.load(change)));
        }
    }

    /// The request is queued.
    pub(super) fn queued(&mut self) {
        self.move_to(GateStage::Waiting);
        self.notify_unreported_change();
    }

    /// The gate refused the request, at once or after a wait.
    pub(super) fn refused(&mut self, refusal: &Refusal, waited: Duration) {
        self.move_to(GateStage::Outside);
        self.notify_unreported_change();
        self.notify(EventKind::ThrottleRefused(ThrottleRefused {
            reason: refusal.reason(),
            waited,
            depth: refusal.depth(),
            retry_after: refusal.retry_after(),
        }));
    }

    /// The request went without a wait.
    pub(super) fn sent(&mut self, snapshot: GateSnapshot) {
        self.stage = GateStage::Sent;
        self.notify_snapshot(snapshot);
    }

    /// The request went after a wait.
    pub(super) fn waited(&mut self, wait: Duration) {
        self.move_to(GateStage::Outside);
        self.notify(EventKind::ThrottleWaited(ThrottleWaited { wait }));
        self.move_to(GateStage::Sent);
        self.notify_unreported_change();
    }

    /// The request has a response or an error.
    pub(super) fn ended(&mut self, snapshot: GateSnapshot) {
        self.stage = GateStage::Outside;
        self.notify_snapshot(snapshot);
    }

    fn notify_snapshot(&self, snapshot: GateSnapshot) {
        self.notify(EventKind::ThrottleLoad(snapshot.load));
        self.notify_change(snapshot.change);
    }

    fn notify_unreported_change(&self) {
        self.notify_change(self.gate.unreported_change());
    }

    fn notify_change(&self, change: Option<GateChange>) {
        match change {
            None => {}
            Some(GateChange::Closed(pause)) => {
                self.notify(EventKind::ThrottlePaused(ThrottlePaused { pause }));
            }
            Some(GateChange::Open) => self.notify(EventKind::ThrottleReleased),
        }
    }
}

impl Drop for GateEvents<'_> {
    fn drop(&mut self) {
        if self.stage != GateStage::Outside {
            self.move_to(GateStage::Outside);
            self.notify_unreported_change();
        }
    }
}
