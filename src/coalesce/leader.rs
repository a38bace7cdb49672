//! The leader of a flight. It ends the flight, or hands it over when it is dropped.

use std::sync::Arc;

use super::flights::{FlightMessage, FlightRef, Successor};
use crate::clock;
use crate::response::BufferedResponse;

/// The duty to end a flight. When it is dropped, the newest follower becomes the leader.
#[must_use = "dropping it hands the flight over"]
pub(super) struct Leader {
    flight: FlightRef,
    number: u64,
    /// The flight has ended, so there is nothing left to hand over.
    is_over: bool,
}

impl Leader {
    pub(super) fn new(flight: FlightRef, number: u64) -> Self {
        Self {
            flight,
            number,
            is_over: false,
        }
    }

    /// Returns the leader if any follower waits. Otherwise the flight ends, and the next caller starts another.
    pub(super) fn if_awaited(mut self) -> Option<Self> {
        self.is_over = !self.flight.is_awaited(self.number);
        match self.is_over {
            true => None,
            false => Some(self),
        }
    }

    /// Gives the response to all followers, also if another leader has overtaken this one.
    pub(super) fn share(mut self, response: &Arc<BufferedResponse>) {
        self.is_over = true;
        (self.flight).end(|| FlightMessage::Response(response.clone()));
    }

    /// Lets all followers send their own requests, at once.
    pub(super) fn dissolve(mut self) {
        self.is_over = true;
        self.flight.end(|| FlightMessage::Alone);
    }

    /// Hands over after a failure: the oldest follower leads next.
    pub(super) fn fail(self) {
        let now = clock::now();
        self.flight.hand_over(self.number, Successor::Oldest, now);
        // The drop that follows does nothing, because this leader no longer leads.
    }

    /// Hands over after running out of time: the newest follower leads next.
    pub(super) fn leave(self) {
        drop(self);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // Does nothing if another leader has taken over.
        if !self.is_over {
            let now = clock::now();
            self.flight.hand_over(self.number, Successor::Newest, now);
        }
    }
}
