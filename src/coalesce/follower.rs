//! The wait of a caller for the response of another.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::flights::{FlightMessage, FlightRef, Successor};
use crate::clock;

/// A caller that waits for the response of a leader. When it is dropped, its flight forgets it.
pub(super) struct Follower {
    pub(super) flight: FlightRef,
    pub(super) number: u64,
    /// The leader when this follower joined.
    pub(super) first_leader: u64,
    /// When the current leader has taken too long.
    pub(super) overtake_at: Instant,
    /// How long it waits for one leader before another request is sent as well.
    pub(super) leader_timeout: Duration,
    /// The end of its request's timeout. `None` once the first leader was still busy at that time.
    pub(super) timeout_end: Option<Instant>,
    pub(super) receiver: oneshot::Receiver<FlightMessage>,
}

impl Follower {
    /// Waits until the leader ends the flight or hands it over.
    pub(super) async fn wait(mut self) -> FlightMessage {
        loop {
            let wake = self.overtake_at;
            let wake = self.timeout_end.map_or(wake, |end| end.min(wake));
            if let Some(message) = clock::within(wake, &mut self.receiver).await {
                // A flight sends every follower a message. If it did not, the follower must not wait forever.
                return message.unwrap_or(FlightMessage::Alone);
            }
            // If the flight has just ended, a message is on its way.
            let led = self.flight.led();
            if self.timeout_end.is_some_and(|end| end <= wake) {
                if led.is_some_and(|(leader, _)| leader != self.first_leader) {
                    return FlightMessage::Alone;
                }
                // The timeout limits one attempt, and this leader may be at its second. If it ends
                // without a response, the flight lets followers go whose timeout has passed.
                self.timeout_end = None;
            } else {
                self.overtake_at = self.overtake(led, clock::now());
            }
        }
    }

    /// Sends the oldest follower as well if the leader takes too long. Returns when to look again.
    fn overtake(&self, led: Option<(u64, Instant)>, now: Instant) -> Instant {
        let leader_timeout = self.leader_timeout;
        if let Some((leader, since)) = led {
            let too_long = clock::after(since, leader_timeout);
            if now < too_long {
                return too_long;
            }
            self.flight.hand_over(leader, Successor::Oldest, now);
        }
        clock::after(now, leader_timeout)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.flight.leave(self.number);
    }
}
