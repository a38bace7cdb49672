//! How a gate serves its queue.
//!
//! No task runs behind a gate. The next waiter sets a timer for the queue, and every change of the state is
//! followed by [`GateState::admit_waiters`].

use super::super::controller::{Admission, Controller};
use super::super::queue::{WaiterId, WaiterState};
use super::state::GateState;
use crate::clock::Time;

impl GateState {
    /// Admits as many waiters as may go now. If some have to wait, one of them sets a timer.
    pub(super) fn admit_waiters(&mut self, now: Time) {
        while let Some(id) = self.next_waiter() {
            match self.admission(now) {
                Admission::Now => {
                    let grant = self.send(now);
                    let waker = self.queue.finish(id, WaiterState::Admitted(grant));
                    self.after_unlock.to_wake.extend(waker);
                }
                Admission::At(due) => {
                    let has_timer = self.timer.is_some_and(|(it, at)| it == id && at <= due);
                    if !has_timer {
                        // Wakes it, so that it sets its timer.
                        let waker = self.queue.get(id).waker.take();
                        self.after_unlock.to_wake.extend(waker);
                    }
                    return;
                }
                Admission::AfterResponse => return,
            }
        }
        // The queue is empty.
        self.first_limit = None;
    }

    fn next_waiter(&self) -> Option<WaiterId> {
        let probing = (self.controller.as_ref()).is_some_and(Controller::is_half_open);
        self.queue.next(probing)
    }

    /// Refuses waiters whose limit ends before the gate opens again.
    pub(super) fn refuse_hopeless(&mut self, now: Time) {
        let Some(controller) = &self.controller else {
            return;
        };
        let closed = controller.closed_until(now);
        let closed = (self.lease.as_ref()).map_or(closed, |it| it.paused_until().max(closed));
        if self.first_limit.is_some_and(|first| first < closed) {
            (self.queue).refuse_before(closed, &mut self.after_unlock.to_wake);
            self.first_limit = Some(closed);
        }
    }

    /// Admits a waiter by local limits if its time is over and only the store of a fleet delays it. No call fails
    /// because the store does not respond.
    pub(super) fn stop_waiting_for_store(&mut self, id: WaiterId, now: Time) {
        let waiter = self.queue.get(id);
        if !matches!(waiter.state, WaiterState::Waiting) || now < waiter.limit.at {
            return;
        }
        if let Some(lease) = &mut self.lease {
            lease.stop_waiting(now);
            self.admit_waiters(now);
        }
    }

    /// Returns when a waiter has to look again: at its limit, or earlier if it is the next one and its timer
    /// wakes the queue.
    pub(super) fn wake_at(&mut self, id: WaiterId, limit: Time, now: Time) -> Time {
        self.release_timer(id);
        if self.next_waiter() != Some(id) {
            return limit;
        }
        match self.admission(now) {
            Admission::At(due) => {
                let until = limit.min(due);
                self.timer = Some((id, until));
                until
            }
            Admission::Now | Admission::AfterResponse => limit,
        }
    }

    /// Removes a waiter, and returns its last state.
    pub(super) fn remove_waiter(&mut self, id: WaiterId) -> WaiterState {
        self.release_timer(id);
        let waker = self.queue.get(id).waker.take();
        self.after_unlock.to_drop.extend(waker);
        self.queue.remove(id)
    }

    fn release_timer(&mut self, id: WaiterId) {
        self.timer = self.timer.filter(|(it, _)| *it != id);
    }
}
