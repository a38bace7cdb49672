//! What a retry and the throttle inside it tell each other about one attempt.
//!
//! The permit for a retry must come back if a throttle never sends the attempt, and the attempt's timeout must not
//! run while it waits in a throttle's queue. So one [`Handoff`] travels in the request's extensions, where either
//! side finds it by type. Clones of the extensions share its marks, which are nothing of value: the permit stays
//! with the retry, so a clone that outlives the call delays no refund.
//!
//! The retry inserts one for a permit, an attempt timeout, earlier time in a queue, a retry with a deadline, or bodies of
//! successes that it reads. The throttle inserts one if the attempt queues or fails: see `docs/decisions/retry.md`. A middleware
//! that passes on empty extensions loses it. Then a retry is charged even if a throttle refuses it, and its timeout also
//! runs in the queue.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::Extensions;
use tokio::time::Instant;

use crate::clock;
use crate::lock::lock;

/// What is known of one attempt on its way through throttles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handoff {
    shared: Arc<Shared>,
    /// What the throttle leaves for the retry. Not shared: a middleware may pass a copy of the extensions to another
    /// client, and a pause that its throttle keeps makes no retry of this one free.
    visit: Option<Box<ThrottleVisit>>,
}

/// Shared by the retry, the throttle and all copies of the request.
#[derive(Debug, Default)]
struct Shared {
    /// Set by the retry, never changed.
    terms: Terms,
    marks: Mutex<Marks>,
}

#[derive(Debug, Default)]
struct Marks {
    /// How many copies of the request wait in a queue now.
    queued: u32,
    /// Since when at least one copy waits. `None` if `queued` is 0.
    queued_since: Option<Instant>,
    /// How long at least one copy waited, without the current wait.
    queue_time: Duration,
    /// When a throttle sent the latest copy.
    sent: Option<Instant>,
    /// A throttle did not send a copy.
    refused: bool,
    /// The permit is spent, however the attempt ends.
    paid: bool,
    /// The deadline or the attempt's timeout is over. Set before the attempt is dropped.
    cut_off: bool,
    /// The same, and the attempt had a timeout. So the server was too slow.
    timed_out: bool,
    /// The retry has seen the end of the attempt. From then on, throttles ignore the terms.
    over: bool,
    /// Another retry inside the one that inserted this has found it.
    inner_retry: bool,
}

/// What a retry asks of the throttles inside it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    /// No throttle sends the attempt later than this.
    pub(crate) latest: Option<Instant>,
    /// How long earlier attempts of the call waited in queues: `max_queue_wait` holds for all of them together.
    pub(crate) queued_before: Duration,
    /// The call could be retried, so it logs how it ends.
    pub(crate) can_retry: bool,
    /// The retry reads the body of a success, so an attempt may fail after its throttle has seen that success.
    pub(crate) reads_successes: bool,
}

/// What a throttle leaves for the retry around it if the attempt failed or waited, or if the retry reads the body of a success.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ThrottleVisit {
    /// How long the attempt waited in queues.
    pub(crate) waited: Duration,
    /// How long it waited before that, already in the report of another retry further inside.
    pub(crate) reported: Duration,
    pub(crate) pacing: Pacing,
}

/// What the throttle does about the retry of an attempt that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Pacing {
    /// Nothing.
    #[default]
    None,
    /// The response is a 503, and the server seems to limit its rate. With an empty budget, the retry waits in line.
    Limited,
    /// The server refused for its rate, and the throttle keeps the pause. So the retry costs no budget and needs no
    /// backoff.
    Paused,
}

/// What happened to an attempt on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AttemptTrace {
    pub(crate) visit: Option<ThrottleVisit>,
    /// Another retry was inside the attempt.
    pub(crate) inner_retry: bool,
    /// A throttle was inside the attempt.
    pub(crate) throttle: bool,
    /// The permit for the attempt is spent.
    pub(crate) paid: bool,
}

impl ThrottleVisit {
    /// Returns the whole time in queues.
    pub(crate) fn queued(self) -> Duration {
        self.waited.saturating_add(self.reported)
    }
}

impl Handoff {
    fn marks(&self) -> MutexGuard<'_, Marks> {
        lock(&self.shared.marks)
    }
}

/// For the retry.
impl Handoff {
    /// Puts a new one into the extensions of an attempt that begins.
    pub(crate) fn insert(extensions: &mut Extensions, terms: Terms) -> Self {
        let shared = Shared {
            terms,
            marks: Mutex::default(),
        };
        let handoff = Self {
            shared: Arc::new(shared),
            visit: None,
        };
        extensions.insert(handoff.clone());
        handoff
    }

    /// Takes out what another retry around this one has inserted, and returns its terms.
    ///
    /// An attempt of the outer retry is a whole call of this one, so the outer one's permit is spent, and a throttle
    /// inside talks to this one only.
    pub(crate) fn take_outer(extensions: &mut Extensions) -> Option<(Self, Terms)> {
        let mut outer = extensions.remove::<Self>()?;
        outer.visit = None;
        let terms = outer.shared.terms;
        let mut marks = outer.marks();
        if marks.over {
            // An earlier call with the same extensions has left it.
            return None;
        }
        marks.paid = true;
        marks.inner_retry = true;
        drop(marks);
        Some((outer, terms))
    }

    /// Returns since when the attempt's timeout counts, if a throttle has changed that.
    pub(crate) fn clock_start(&self, now: Instant) -> Option<Instant> {
        let marks = self.marks();
        match marks.queued {
            0 => marks.sent,
            _ => Some(now),
        }
    }

    /// Notes that a time limit is over, before the attempt is dropped. `timed_out`: the attempt had a timeout, and not
    /// only what was left of a deadline.
    pub(crate) fn mark_cut_off(&self, timed_out: bool) {
        let mut marks = self.marks();
        marks.cut_off = true;
        marks.timed_out = timed_out;
    }

    /// Ends the attempt and the retry's part in it. If no throttle saw the attempt, it may have been sent.
    ///
    /// `left` is what the extensions have now: usually a copy of this handoff. A middleware between may have
    /// replaced it.
    pub(crate) fn end(&self, left: Option<&Self>) -> AttemptTrace {
        let (copy, other) = match left {
            Some(left) if Arc::ptr_eq(&left.shared, &self.shared) => (Some(left), None),
            other => (None, other),
        };
        let mut marks = self.marks();
        marks.paid |= !marks.reached_throttle();
        marks.over = true;
        let mut trace = marks.trace(copy.and_then(|copy| copy.visit.as_deref()));
        drop(marks);
        if let Some(other) = other.map(Self::trace) {
            trace.visit = other.visit.or(trace.visit);
            trace.inner_retry |= other.inner_retry;
            trace.throttle |= other.throttle;
        }
        trace
    }

    /// Ends the retry's part in an attempt that was dropped. Returns whether it is paid.
    pub(crate) fn close(&self) -> bool {
        let mut marks = self.marks();
        marks.over = true;
        marks.paid
    }

    /// Returns what a throttle and another retry have left.
    pub(crate) fn trace(&self) -> AttemptTrace {
        self.marks().trace(self.visit.as_deref())
    }

    /// Tells an outer retry that this one was inside, and passes on what its throttles did.
    pub(crate) fn pass_on(&mut self, visit: Option<ThrottleVisit>) {
        self.marks().inner_retry = true;
        self.visit = visit.map(Box::new);
    }
}

/// For the throttle.
impl Handoff {
    /// Returns the handoff of an attempt that is under way, and the terms of its retry.
    pub(crate) fn of(extensions: &Extensions) -> Option<(Self, Terms)> {
        let handoff = extensions.get::<Self>()?;
        let is_over = handoff.marks().over;
        (!is_over).then(|| (handoff.clone(), handoff.shared.terms))
    }

    /// Stops the attempt's timeout until the value is dropped.
    pub(crate) fn enter_queue(&self, now: Instant) -> QueueStay {
        let mut marks = self.marks();
        marks.queued += 1;
        marks.queued_since.get_or_insert(now);
        drop(marks);
        QueueStay(self.clone())
    }

    /// Notes that the attempt is sent now.
    pub(crate) fn mark_sent(&self, now: Instant) {
        let mut marks = self.marks();
        marks.sent = Some(now);
        marks.paid = true;
    }

    /// Notes that the attempt is not sent.
    pub(crate) fn mark_refused(&self) {
        self.marks().refused = true;
    }

    /// Leaves what the retry around the throttle needs to know.
    pub(crate) fn leave_visit(&mut self, pacing: Pacing) {
        self.visit.get_or_insert_default().pacing = pacing;
    }

    pub(crate) fn has_timed_out(&self) -> bool {
        self.marks().timed_out
    }
}

impl Marks {
    fn trace(&self, left: Option<&ThrottleVisit>) -> AttemptTrace {
        let reached_throttle = self.reached_throttle();
        // The throttle may have been dropped with the attempt, and then it has left nothing.
        let was_cut_off = (self.cut_off && reached_throttle) || !self.queue_time.is_zero();
        let visit = left.copied().or(was_cut_off.then(ThrottleVisit::default));
        AttemptTrace {
            visit: visit.map(|visit| ThrottleVisit {
                waited: self.queue_time,
                ..visit
            }),
            inner_retry: self.inner_retry,
            throttle: reached_throttle || visit.is_some(),
            paid: self.paid,
        }
    }

    /// Whether a throttle has queued, sent or refused a copy.
    fn reached_throttle(&self) -> bool {
        self.queued > 0 || self.sent.is_some() || self.refused
    }
}

/// A copy of the request in a throttle's queue.
pub(crate) struct QueueStay(Handoff);

impl Drop for QueueStay {
    fn drop(&mut self) {
        let mut marks = self.0.marks();
        marks.queued = marks.queued.saturating_sub(1);
        // The attempt ended in the queue, so it was never sent.
        marks.refused |= marks.cut_off;
        if marks.queued == 0 {
            if let Some(since) = marks.queued_since.take() {
                let waited = clock::now().saturating_duration_since(since);
                marks.queue_time = marks.queue_time.saturating_add(waited);
            }
        }
    }
}

#[cfg(test)]
#[path = "handoff_tests.rs"]
mod tests;
