//! Counts of the events that observers get.

use std::sync::{Mutex, MutexGuard};

use reqwest_steady::dead_letter::DeadLetterOutcome;
use reqwest_steady::observe::{
    Abandoned, AttemptFinished, CallInfo, LoadChange, Observer, Stopped, ThrottleLoad,
};

/// Counts everything that starts and ends.
#[derive(Default)]
pub(super) struct EventCounter(Mutex<Counts>);

#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) calls: usize,
    pub(super) stopped: usize,
    pub(super) given_up: usize,
    pub(super) abandoned: usize,
    attempts: usize,
    pub(super) retries_begun: usize,
    finished: usize,
    abandoned_attempts: usize,
    queued: usize,
    left: usize,
    sent: usize,
    ended: usize,
    /// From the throttle's last event.
    in_flight: u32,
    waiting: usize,
    pub(super) letters: usize,
}

impl EventCounter {
    pub(super) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap()
    }
}

impl Counts {
    /// Every start has one end.
    #[track_caller]
    pub(super) fn assert_all_ended(&self, place: &str) {
        let calls = self.stopped + self.abandoned;
        assert_eq!(self.calls, calls, "{place}: {self:?}");
        let attempts = self.finished + self.abandoned_attempts;
        assert_eq!(self.attempts, attempts, "{place}: {self:?}");
        assert_eq!(self.queued, self.left, "{place}: {self:?}");
        assert_eq!(self.sent, self.ended, "{place}: {self:?}");
    }

    /// The throttle's last event reports it empty. With several threads, the last event to arrive may
    /// not be the last that happened.
    #[track_caller]
    pub(super) fn assert_throttle_empty(&self, place: &str) {
        assert_eq!((self.in_flight, self.waiting), (0, 0), "{place}: {self:?}");
    }
}

impl Observer for EventCounter {
    fn call_started(&self, _: &CallInfo<'_>) {
        self.lock().calls += 1;
    }

    fn attempt_started(&self, call: &CallInfo<'_>) {
        let mut counts = self.lock();
        counts.attempts += 1;
        counts.retries_begun += usize::from(call.attempt > 1);
    }

    fn attempt_finished(&self, _: &CallInfo<'_>, _: &AttemptFinished) {
        self.lock().finished += 1;
    }

    fn stopped(&self, _: &CallInfo<'_>, stop: &Stopped) {
        let mut counts = self.lock();
        counts.stopped += 1;
        counts.given_up += usize::from(stop.stop_reason.is_given_up());
    }

    fn abandoned(&self, _: &CallInfo<'_>, abandoned: &Abandoned) {
        let mut counts = self.lock();
        counts.abandoned += 1;
        counts.abandoned_attempts += usize::from(abandoned.in_attempt);
    }

    fn dead_lettered(&self, _: &CallInfo<'_>, outcome: DeadLetterOutcome) {
        assert_eq!(outcome, DeadLetterOutcome::Delivered);
        self.lock().letters += 1;
    }

    fn throttle_load(&self, _: &CallInfo<'_>, load: &ThrottleLoad) {
        let mut counts = self.lock();
        match load.change {
            LoadChange::Queued => counts.queued += 1,
            LoadChange::Left => counts.left += 1,
            LoadChange::Sent => counts.sent += 1,
            LoadChange::Ended => counts.ended += 1,
            other => panic!("{other:?} is not counted"),
        }
        (counts.in_flight, counts.waiting) = (load.in_flight, load.waiting);
    }
}
