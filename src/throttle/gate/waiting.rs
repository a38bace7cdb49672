//! Who waits before a gate, and keeps the time for it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::super::builder::Settings;
use super::super::controller::SendRecord;
use super::super::queue::{Place, State};
use super::{Gate, Pass};
use crate::clock;
use crate::outcome::Refusal;

/// A place in the queue, which is left when this is dropped.
pub(in crate::throttle) struct Waiting<'a> {
    pub(super) gate: &'a Gate,
    pub(super) settings: &'a Settings,
    /// `None` once it is given back.
    pub(super) place: Option<Place>,
}

/// What one who waits finds.
enum Look {
    /// Nothing yet; look again then.
    Waits(Instant),
    Settled(Result<Option<SendRecord>, Refusal>),
}

impl<'a> Waiting<'a> {
    /// Waits for the turn, and not longer than it makes sense.
    pub(in crate::throttle) async fn turn(mut self) -> Result<Pass<'a>, Refusal> {
        let mut sleep = pin!(tokio::time::sleep_until(self.gate.born));
        let outcome = poll_fn(|context| {
            loop {
                let until = match self.look(context.waker()) {
                    Look::Waits(until) => until,
                    Look::Settled(outcome) => return Poll::Ready(outcome),
                };
                if sleep.deadline() != until {
                    sleep.as_mut().reset(until);
                }
                if sleep.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        });
        let record = outcome.await?;
        Ok(Pass::new(self.gate, self.settings, record))
    }

    /// Looks whether the turn has come, and keeps the time if it is the next.
    fn look(&mut self, waker: &Waker) -> Look {
        let Some(place) = self.place else {
            // Nobody polls a future again that is done.
            return Look::Waits(clock::after(self.gate.born, Duration::MAX));
        };
        let gate = self.gate;
        gate.change(|room, now, wakers| {
            room.let_through(now, wakers);
            room.stop_asking(place, now, wakers);
            let waiter = room.queue.get(place);
            let limit = waiter.limit;
            let settled = match waiter.state {
                State::Waiting if now < limit.at => {
                    match &mut waiter.waker {
                        Some(known) if known.will_wake(waker) => {}
                        known => wakers.unused.extend(known.replace(waker.clone())),
                    }
                    let until = room.keep_time(place, limit.at, now);
                    return Look::Waits(clock::after(gate.born, until));
                }
                State::Waiting => Err(limit.reason),
                State::Refused(reason) => Err(reason),
                State::Granted(record) => Ok(record),
            };
            room.leave(place, wakers);
            self.place = None;
            Look::Settled(settled.map_err(|reason| gate.refusal(room, reason, now)))
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.gate.change(|room, _, wakers| {
                if let State::Granted(record) = room.leave(place, wakers) {
                    room.unsend(record);
                }
            });
        }
    }
}
