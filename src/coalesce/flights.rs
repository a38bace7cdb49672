//! The table of flights. A flight is one request on the wire and the callers that wait for its response.
//!
//! The first caller with an identity is the leader and sends the request; the others follow. All of this
//! runs in the callers' own futures, and each of them can be dropped at any time. So each leader holds a [`Leader`]:
//! when that is dropped before its flight has ended, another follower becomes the leader.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, OccupiedEntry};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::follower::Follower;
use super::identity::Identity;
use super::leader::Leader;
use crate::clock;
use crate::hashed::HashedMap;
use crate::lock::lock;
use crate::response::BufferedResponse;

/// A follower that has seen this many leaders fail or leave sends its own request.
const MAX_FAILURES: u32 = 3;

/// The flights of one middleware. Ended flights are removed, so there are never more flights than calls.
#[derive(Default)]
pub(super) struct Flights {
    /// The lock is never held over an `await` or over the sending of a message.
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By the hash of their identity. A second identity with the same hash gets no flight.
    flights: HashedMap<u64, Flight>,
    last_number: u64,
}

impl Table {
    /// A number for a leader or a follower. No number is used twice.
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

struct Flight {
    /// The number of its first leader. A later flight with the same identity has another.
    number: u64,
    identity: Identity,
    /// The current leader. A leader that was overtaken finds another number here.
    leader: u64,
    led_since: Instant,
    /// How many leaders have failed, left or been overtaken.
    failures: u32,
    /// In the order of arrival, so their numbers rise.
    followers: VecDeque<FollowerEntry>,
}

/// A follower, as its flight knows it.
struct FollowerEntry {
    number: u64,
    sender: oneshot::Sender<FlightMessage>,
    /// How many leaders had failed or left when it joined.
    failures_before: u32,
    /// The end of its request's timeout. All followers of a flight have the same timeout.
    timeout_end: Option<Instant>,
}

impl FollowerEntry {
    fn tell(self, message: FlightMessage) {
        // Fails if the follower has just left. Then a `Leader` in the message is dropped and hands over.
        let _ = self.sender.send(message);
    }
}

/// How the wait of a follower ends.
pub(super) enum FlightMessage {
    /// The leader shares its response.
    Response(Arc<BufferedResponse>),
    /// The follower is the leader now.
    Lead(Leader),
    /// There is nothing to share: the follower sends its own request.
    Alone,
}

/// What a call does in its flight.
pub(super) enum Role {
    Leader(Leader),
    Follower(Follower),
    /// A flight of another request has the same hash, so this one is not shared. That is unlikely, and harmless.
    Alone,
}

/// Which follower is the next leader.
#[derive(Clone, Copy, Debug)]
pub(super) enum Successor {
    /// After a failure: the follower that has waited longest.
    Oldest,
    /// After a leader that ran out of time: the follower that joined last. Callers tend to have the same
    /// patience, so the oldest would soon run out of time as well, in the middle of its request.
    Newest,
}

impl Flights {
    /// Returns how many flights there are.
    pub(super) fn count(&self) -> usize {
        lock(&self.table).flights.len()
    }

    /// Follows in the flight of this identity, or starts one as its leader.
    ///
    /// A follower waits for `leader_timeout` before it sends its request as well.
    pub(super) fn join(
        self: &Arc<Self>,
        identity: Identity,
        leader_timeout: Duration,
        now: Instant,
    ) -> Role {
        let timeout_end = identity.timeout().map(|timeout| clock::after(now, timeout));
        let key = identity.hash();
        let mut table = lock(&self.table);
        let number = table.next_number();
        let flight = match table.flights.entry(key) {
            Entry::Occupied(entry) if entry.get().identity == identity => entry.into_mut(),
            Entry::Occupied(_) => return Role::Alone,
            Entry::Vacant(vacant) => {
                vacant.insert(Flight {
                    number,
                    identity,
                    leader: number,
                    led_since: now,
                    failures: 0,
                    followers: VecDeque::new(),
                });
                return Role::Leader(Leader::new(self.flight_ref(key, number), number));
            }
        };
        let flight_ref = self.flight_ref(key, flight.number);
        let (sender, receiver) = oneshot::channel();
        flight.followers.push_back(FollowerEntry {
            number,
            sender,
            failures_before: flight.failures,
            timeout_end,
        });
        Role::Follower(Follower {
            flight: flight_ref,
            number,
            first_leader: flight.leader,
            overtake_at: clock::after(flight.led_since, leader_timeout),
            leader_timeout,
            timeout_end,
            receiver,
        })
    }

    fn flight_ref(self: &Arc<Self>, key: u64, number: u64) -> FlightRef {
        FlightRef {
            flights: Arc::clone(self),
            key,
            number,
        }
    }

    /// How many followers each flight has.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> Vec<usize> {
        let table = lock(&self.table);
        let flights = table.flights.values();
        flights.map(|flight| flight.followers.len()).collect()
    }
}

/// Finds one flight in the table, for its leaders and followers.
#[derive(Clone)]
pub(super) struct FlightRef {
    pub(super) flights: Arc<Flights>,
    key: u64,
    /// A later flight with the same key has another.
    number: u64,
}

impl FlightRef {
    /// The leader and the start of its lead, unless the flight has ended.
    pub(super) fn led(&self) -> Option<(u64, Instant)> {
        let mut table = lock(&self.flights.table);
        let flight = self.entry(&mut table)?;
        Some((flight.get().leader, flight.get().led_since))
    }

    /// Removes a follower.
    pub(super) fn leave(&self, follower: u64) {
        let mut table = lock(&self.flights.table);
        let left = self.entry(&mut table).and_then(|mut flight| {
            let followers = &mut flight.get_mut().followers;
            let place = followers.binary_search_by_key(&follower, |it| it.number);
            followers.remove(place.ok()?)
        });
        // Its sender wakes the follower, which must not happen under the lock.
        drop(table);
        drop(left);
    }

    /// Returns whether any follower waits. Otherwise the flight ends, if `leader` still leads it.
    pub(super) fn is_awaited(&self, leader: u64) -> bool {
        let mut table = lock(&self.flights.table);
        match self.entry(&mut table) {
            Some(flight) if !flight.get().followers.is_empty() => true,
            Some(flight) if flight.get().leader == leader => {
                flight.remove();
                false
            }
            _ => false,
        }
    }

    /// Ends the flight, whichever leader it has, with one message for all followers.
    pub(super) fn end(&self, message: impl Fn() -> FlightMessage) {
        let mut table = lock(&self.flights.table);
        let ended = self.entry(&mut table).map(OccupiedEntry::remove);
        drop(table);
        for follower in ended.into_iter().flat_map(|flight| flight.followers) {
            follower.tell(message());
        }
    }

    /// Makes a follower the leader, if `leader` still leads. Without followers, the flight ends.
    pub(super) fn hand_over(&self, leader: u64, to: Successor, now: Instant) {
        let mut done_waiting = Vec::new();
        let mut table = lock(&self.flights.table);
        let number = table.next_number();
        let successor = {
            let Some(mut entry) = self.entry(&mut table) else {
                return;
            };
            let flight = entry.get_mut();
            if flight.leader != leader {
                return;
            }
            flight.leader = number;
            flight.led_since = now;
            flight.failures += 1;
            // The oldest followers have seen the most failures, and their timeouts end first.
            let is_done = |it: &&FollowerEntry| {
                flight.failures - it.failures_before >= MAX_FAILURES
                    || it.timeout_end.is_some_and(|end| end <= now)
            };
            let done = flight.followers.iter().take_while(is_done).count();
            done_waiting.extend(flight.followers.drain(..done));
            let successor = match to {
                Successor::Oldest => flight.followers.pop_front(),
                Successor::Newest => flight.followers.pop_back(),
            };
            if successor.is_none() {
                entry.remove();
            }
            successor
        };
        drop(table);
        for follower in done_waiting {
            follower.tell(FlightMessage::Alone);
        }
        if let Some(follower) = successor {
            let leader = Leader::new(self.clone(), number);
            follower.tell(FlightMessage::Lead(leader));
        }
    }

    /// The flight, unless it has ended.
    fn entry<'a>(&self, table: &'a mut Table) -> Option<OccupiedEntry<'a, u64, Flight>> {
        match table.flights.entry(self.key) {
            Entry::Occupied(entry) if entry.get().number == self.number => Some(entry),
            _ => None,
        }
    }
}
