//! A call that waits in the queue of a gate.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::super::builder::ThrottleSettings;
use super::super::queue::{WaiterId, WaiterState};
use super::state::Grant;
use super::{Gate, Slot};
use crate::clock;
use crate::outcome::Refusal;

/// A call in the queue. Dropped, it leaves the queue.
pub(in crate::throttle) struct QueuedRequest<'a> {
    pub(super) gate: &'a Gate,
    pub(super) settings: &'a ThrottleSettings,
    /// `None` once the call has left the queue.
    pub(super) id: Option<WaiterId>,
}

enum WaitProgress {
    /// Look again at this time, or when woken.
    Pending(Instant),
    Done(Result<Grant, Refusal>),
}

impl<'a> QueuedRequest<'a> {
    /// Waits until the call may go, or until its limit.
    pub(in crate::throttle) async fn slot(mut self) -> Result<Slot<'a>, Refusal> {
        let mut sleep = pin!(tokio::time::sleep_until(self.gate.born));
        let outcome = poll_fn(|context| {
            loop {
                let until = match self.progress(context.waker()) {
                    WaitProgress::Pending(until) => until,
                    WaitProgress::Done(outcome) => return Poll::Ready(outcome),
                };
                if sleep.deadline() != until {
                    sleep.as_mut().reset(until);
                }
                if sleep.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        });
        let grant = outcome.await?;
        Ok(Slot::new(self.gate, self.settings, grant))
    }

    /// Looks whether the call may go, and keeps the time if it is the next in the queue.
    fn progress(&mut self, waker: &Waker) -> WaitProgress {
        let Some(id) = self.id else {
            // A future is not polled again after it is ready.
            return WaitProgress::Pending(clock::after(self.gate.born, Duration::MAX));
        };
        let gate = self.gate;
        gate.update(|state, now, after| {
            state.admit_waiters(now, after);
            state.stop_waiting_for_store(id, now, after);
            let waiter = state.queue.get(id);
            let limit = waiter.limit;
            let outcome = match waiter.state {
                WaiterState::Waiting if now < limit.at => {
                    match &mut waiter.waker {
                        Some(known) if known.will_wake(waker) => {}
                        known => after.to_drop.extend(known.replace(waker.clone())),
                    }
                    let until = state.wake_at(id, limit.at, now);
                    return WaitProgress::Pending(clock::after(gate.born, until));
                }
                WaiterState::Waiting => Err(limit.reason),
                WaiterState::Refused(reason) => Err(reason),
                WaiterState::Admitted(grant) => Ok(grant),
            };
            state.remove_waiter(id, after);
            self.id = None;
            WaitProgress::Done(outcome.map_err(|reason| gate.refusal(state, reason, now)))
        })
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.gate.update(|state, _, after| {
                if let WaiterState::Admitted(grant) = state.remove_waiter(id, after) {
                    state.undo_send(grant);
                }
            });
        }
    }
}
