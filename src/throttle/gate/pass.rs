//! What a gate has let through, and learns from.

use std::sync::MutexGuard;
use std::time::Duration;

use rand::RngExt;

use super::super::builder::Settings;
use super::super::controller::{SendRecord, Time};
use super::super::signal::{Signal, SignalKind};
use super::{Gate, Room, Sight, Wakers};
use crate::handoff::Handoff;
use crate::observe::LoadChange;

/// A request that was let through. It gives its slot back when dropped.
pub(in crate::throttle) struct Pass<'a> {
    gate: &'a Gate,
    settings: &'a Settings,
    /// `None` while it has no slot, or once that is given back.
    record: Option<Option<SendRecord>>,
    /// What the retry around it has put into the extensions.
    pub(in crate::throttle) handoff: Option<Handoff>,
}

impl<'a> Pass<'a> {
    #[inline]
    pub(super) fn new(gate: &'a Gate, settings: &'a Settings, record: Option<SendRecord>) -> Self {
        Self {
            gate,
            settings,
            record: Some(record),
            handoff: None,
        }
    }

    /// For a request that has no slot yet.
    pub(in crate::throttle) fn none(gate: &'a Gate, settings: &'a Settings) -> Self {
        Self {
            gate,
            settings,
            record: None,
            handoff: None,
        }
    }

    /// Whether this is one of the requests by which the whole chain is judged.
    #[inline]
    pub(in crate::throttle) fn is_sample(&self) -> bool {
        self.record
            .flatten()
            .is_none_or(|record| record.is_sample())
    }

    /// Gives the slot back, and lets everybody learn from the signal. Says what there is to see then, if
    /// somebody wants to know.
    #[inline]
    pub(in crate::throttle) fn answered(&mut self, signal: &Signal) -> Option<Sight> {
        let record = self.record.take()?;
        let spread = match signal.kind {
            SignalKind::Accepted => 1.0,
            _ => self.spread(),
        };
        let now = self.gate.now();
        let mut room = self.gate.lock();
        room.in_flight -= 1;
        let (in_flight, waiting) = (room.in_flight, !room.queue.is_empty());
        if let (Some(controller), Some(record)) = (&mut room.controller, record) {
            controller.on_response(now, record, signal, in_flight, waiting, spread);
        }
        if waiting || signal.hint.is_some() {
            return self.answered_with_others(room, now, signal.hint);
        }
        let sight = self.sight(&mut room, now);
        if room.share.is_some() {
            self.gate.ask(room, now);
        }
        sight
    }

    /// Lets those who wait go or give up, and other workers know of a pause. Most calls have neither.
    #[cold]
    fn answered_with_others(
        &self,
        mut room: MutexGuard<'_, Room>,
        now: Time,
        hint: Option<Duration>,
    ) -> Option<Sight> {
        let mut wakers = Wakers::default();
        let has_learned = room.controller.is_some();
        if let (true, Some(share), Some(hint)) = (has_learned, &mut room.share, hint) {
            wakers.to_tell.pause = share.is_asked_to_pause(now, hint).then_some(hint);
        }
        if has_learned && !room.queue.is_empty() {
            room.refuse_hopeless(now, &mut wakers);
        }
        if !room.queue.is_empty() {
            room.let_through(now, &mut wakers);
        }
        let sight = self.sight(&mut room, now);
        self.gate.settle(room, now, wakers);
        sight
    }

    #[inline]
    fn sight(&self, room: &mut Room, now: Time) -> Option<Sight> {
        let watched = self.settings.is_watched();
        watched.then(|| room.sight(now, LoadChange::Ended))
    }

    /// Holds are up to a quarter longer: clients that were refused together do not come back
    /// together.
    fn spread(&self) -> f64 {
        (self.settings.entropy).with(|rng| rng.random_range(1.0..1.25))
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            let spread = self.spread();
            let late = self.handoff.as_ref().is_some_and(Handoff::has_timed_out);
            self.gate.change(|room, now, _| {
                room.in_flight -= 1;
                if let (Some(controller), Some(record)) = (&mut room.controller, record) {
                    controller.on_abandoned(now, record, late, spread);
                }
            });
        }
    }
}
