//! Recovery: what happened since the controller last reacted to a refusal.

use std::time::Duration;

use super::SendRecord;
use crate::clock::Time;

/// A rate that is measured across a longer pause says little about what the server accepts.
const SHORT_PAUSE: Duration = Duration::from_millis(400);

#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// The last request that was sent before the controller reacted. Responses up to here are old:
    /// many refusals of one burst count once.
    point: u64,
    refused_in_a_row: u32,
    /// Requests sent after `point` that the server accepted.
    accepted: u32,
    pub(super) last_refused: Time,
}

impl Recovery {
    /// Whether the request was sent before the controller reacted.
    pub(super) fn covers(&self, record: SendRecord) -> bool {
        record.number <= self.point
    }

    pub(super) fn is_first_refusal(&self) -> bool {
        self.refused_in_a_row == 1
    }

    /// Whether there was one refusal, and then a long pause: the server asked for it, and no probe was refused.
    pub(super) fn was_long_pause(&self, now: Time, round_trip: Duration) -> bool {
        let paused = now.saturating_sub(self.last_refused);
        self.is_first_refusal() && paused > SHORT_PAUSE + 2 * round_trip
    }

    pub(super) fn on_success(&mut self) {
        self.accepted = self.accepted.saturating_add(1);
        self.refused_in_a_row = 0;
    }

    /// Begins anew with a refusal. Returns which share of the requests the server accepted before it.
    pub(super) fn on_refusal(&mut self, now: Time, last_sent: u64) -> f64 {
        self.last_refused = now;
        self.point = last_sent;
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
        let accepted = f64::from(std::mem::take(&mut self.accepted));
        accepted / (accepted + 1.0)
    }

    /// Begins anew after a cut for strain, which is no refusal.
    pub(super) fn on_strain(&mut self, last_sent: u64) {
        self.point = last_sent;
        self.accepted = 0;
    }

    /// Ignores all responses to requests that were sent so far.
    pub(super) fn ignore_sent(&mut self, last_sent: u64) {
        self.point = last_sent;
    }
}
