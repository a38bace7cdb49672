//! A slot: one request in flight through a gate.

use std::time::Duration;

use rand::RngExt;

use super::super::builder::ThrottleSettings;
use super::super::signal::{Signal, SignalKind};
use super::state::{GateSnapshot, GateState, Grant};
use super::{AfterUnlock, Gate};
use crate::clock::Time;
use crate::handoff::Handoff;
use crate::observe::LoadChange;

/// A request that the gate let through. Dropped before its response, it counts as abandoned.
pub(in crate::throttle) struct Slot<'a> {
    gate: &'a Gate,
    settings: &'a ThrottleSettings,
    /// `None` after the end of the request.
    grant: Option<Grant>,
    /// From the retry around the throttle.
    pub(in crate::throttle) handoff: Option<Handoff>,
    /// How long the request was in the queue.
    pub(in crate::throttle) waited: Duration,
}

impl<'a> Slot<'a> {
    pub(super) fn new(gate: &'a Gate, settings: &'a ThrottleSettings, grant: Grant) -> Self {
        Self {
            gate,
            settings,
            grant: Some(grant),
            handoff: None,
            waited: Duration::ZERO,
        }
    }

    /// Whether this is one of the requests by which the middleware chain is checked.
    pub(in crate::throttle) fn is_sample(&self) -> bool {
        let record = self.grant.and_then(|grant| grant.record);
        record.is_none_or(|record| record.is_sample())
    }

    /// Gives the slot back, and lets the controller learn from the signal.
    ///
    /// Returns what observers see after that, if there are any.
    pub(in crate::throttle) fn on_response(&mut self, signal: &Signal) -> Option<GateSnapshot> {
        let grant = self.grant.take()?;
        let spread = match signal.kind {
            SignalKind::Accepted => 1.0,
            _ => self.spread(),
        };
        let now = self.gate.now();
        let mut after = AfterUnlock::default();
        let mut state = self.gate.lock();
        let has_waiters = !state.queue.is_empty();
        let in_flight = state.in_flight - 1;
        if let Some((controller, record)) = state.end(grant) {
            controller.on_response(now, record, signal, in_flight, has_waiters, spread);
        }
        after.for_store.pause = state.pause_to_share(now, signal.hint);
        if has_waiters {
            if state.controller.is_some() {
                state.refuse_hopeless(now, &mut after);
            }
            state.admit_waiters(now, &mut after);
        }
        let snapshot = self.snapshot(&mut state, now);
        self.gate.finish_update(state, now, after);
        snapshot
    }

    fn snapshot(&self, state: &mut GateState, now: Time) -> Option<GateSnapshot> {
        let has_observers = self.settings.has_observers();
        has_observers.then(|| state.snapshot(now, LoadChange::Ended))
    }

    /// Draws by how much a hold is longer, at most a quarter: clients that were refused together do not
    /// come back together.
    fn spread(&self) -> f64 {
        (self.settings.entropy).with(|rng| rng.random_range(1.0..1.25))
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            let spread = self.spread();
            let timed_out = (self.handoff.as_ref()).is_some_and(Handoff::has_timed_out);
            self.gate.update(|state, now, _| {
                if let Some((controller, record)) = state.end(grant) {
                    controller.on_abandoned(now, record, timed_out, spread);
                }
            });
        }
    }
}
