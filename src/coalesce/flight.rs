//! Who leads, who follows, and what they tell each other.
//!
//! A flight is one request on the wire, and those who wait for its answer. Everything runs in the
//! callers' own futures, and any of them may be dropped at any time. So whoever holds a [`Leadership`]
//! owes the others an ending, and if it is dropped without one, another of them is made the leader.

use std::collections::hash_map::{Entry, OccupiedEntry};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::identity::Identity;
use crate::clock;
use crate::response::BufferedResponse;

/// Who has seen so many leaders fail, or leave, goes on alone: nobody waits in a long line of them.
const MAX_FAILURES: u32 = 3;

/// How a leader ended that had nothing to share, which tells who is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Its request failed, or takes too long: who has waited longest is next.
    Failed,
    /// It was dropped, or its own time was up. If all are as patient, those who came soon after it
    /// have as little time left, and would each leave in the middle of a request. Who came last has
    /// the most.
    Left,
}

/// The flights of one middleware. An entry lasts as long as its flight, so there are never more of
/// them than calls.
pub(crate) struct Flights {
    table: Mutex<Table>,
    hasher: RandomState,
    /// How long followers wait for one leader before the next one is sent.
    max_wait: Duration,
}

#[derive(Default)]
struct Table {
    /// By the hash of their identities, or the next number that is free.
    flights: HashMap<u64, Flight, BuildHasherDefault<Hashed>>,
    counter: u64,
}

/// What is hashed already needs no other hash.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Table {
    /// For a flight, a leader or a follower. No number is used twice.
    fn number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}

struct Flight {
    identity: Identity,
    number: u64,
    /// Who leads it now. One that was overtaken finds another number here.
    leader: u64,
    led_since: Instant,
    failures: u32,
    /// In the order of their arrival. None ever comes to most flights.
    followers: Option<BTreeMap<u64, Follower>>,
}

impl Flight {
    fn new(identity: Identity, number: u64, now: Instant) -> Self {
        Self {
            identity,
            number,
            leader: number,
            led_since: now,
            failures: 0,
            followers: None,
        }
    }

    fn is_awaited(&self) -> bool {
        let followers = self.followers.as_ref();
        followers.is_some_and(|followers| !followers.is_empty())
    }
}

struct Follower {
    news: oneshot::Sender<News>,
    /// How many leaders had failed when it came.
    failures_before: u32,
    /// When the timeout of its request is over.
    turn_end: Option<Instant>,
}

/// What a follower waits for.
pub(crate) enum News {
    Answer(Arc<BufferedResponse>),
    /// It is the leader now.
    Lead(Leadership),
    /// Nothing will be shared.
    Alone,
}

/// How a request begins.
pub(crate) enum Boarding {
    Lead(Leadership),
    Follow(Seat),
}

impl Flights {
    pub(crate) fn new(max_wait: Duration) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::default(),
            hasher: RandomState::default(),
            max_wait,
        })
    }

    /// With which the identities are made that board here.
    pub(crate) fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// Joins the flight of this identity, or begins one. The hash is one of our [`hasher`](Self::hasher).
    pub(crate) fn board(self: &Arc<Self>, identity: Identity, hash: u64, now: Instant) -> Boarding {
        let mut table = self.lock();
        let number = table.number();
        let mut slot = hash;
        // Of two that share a hash, which hardly ever happens, the second goes beside the first; if that ends,
        // a third may miss the second, and begins a flight of its own.
        let flight = loop {
            match table.flights.entry(slot) {
                Entry::Vacant(free) => {
                    free.insert(Flight::new(identity, number, now));
                    return Boarding::Lead(Leadership {
                        place: self.place(slot, number),
                        leader: number,
                        is_over: false,
                    });
                }
                Entry::Occupied(flight) if flight.get().identity == identity => {
                    break flight.into_mut();
                }
                Entry::Occupied(_) => slot = slot.wrapping_add(1),
            }
        };
        let turn_end = identity.timeout().map(|timeout| clock::after(now, timeout));
        let (sender, news) = oneshot::channel();
        let follower = Follower {
            news: sender,
            failures_before: flight.failures,
            turn_end,
        };
        let followers = flight.followers.get_or_insert_default();
        followers.insert(number, follower);
        Boarding::Follow(Seat {
            place: self.place(slot, flight.number),
            number,
            first_leader: flight.leader,
            patient_until: clock::after(flight.led_since, self.max_wait),
            turn_end,
            news,
        })
    }

    fn place(self: &Arc<Self>, slot: u64, flight: u64) -> Place {
        Place {
            flights: self.clone(),
            slot,
            flight,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing panics halfway through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Flights {
    /// Says how many there are. Their headers, with all credentials, are nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights")
            .field("in_flight", &self.lock().flights.len())
            .field("max_wait", &self.max_wait)
            .finish()
    }
}

/// One flight, as those in it know it.
#[derive(Clone)]
struct Place {
    flights: Arc<Flights>,
    slot: u64,
    flight: u64,
}

impl Place {
    /// Unless it has ended. Another one may have begun since, of the same identity.
    fn entry<'a>(&self, table: &'a mut Table) -> Option<OccupiedEntry<'a, u64, Flight>> {
        match table.flights.entry(self.slot) {
            Entry::Occupied(entry) if entry.get().number == self.flight => Some(entry),
            _ => None,
        }
    }

    fn flight<'a>(&self, table: &'a mut Table) -> Option<&'a mut Flight> {
        self.entry(table).map(OccupiedEntry::into_mut)
    }

    /// Makes another the leader, if `leader` still is.
    fn succeed(&self, leader: u64, ending: Ending, now: Instant) {
        let mut leaving = Vec::new();
        let mut table = self.flights.lock();
        let number = table.number();
        let Some(flight) = self.flight(&mut table).filter(|it| it.leader == leader) else {
            return;
        };
        flight.failures += 1;
        let followers = flight.followers.get_or_insert_default();
        // Those who came first have seen the most, and waited longest: all have the same timeout.
        while let Some(first) = followers.first_entry() {
            if !first.get().has_seen_enough(flight.failures, now) {
                break;
            }
            leaving.push(first.remove());
        }
        let successor = match ending {
            Ending::Failed => followers.pop_first(),
            Ending::Left => followers.pop_last(),
        };
        let mut ended = None;
        if successor.is_some() {
            flight.leader = number;
            flight.led_since = now;
        } else {
            ended = table.flights.remove(&self.slot);
        }
        drop(table);
        drop(ended);
        tell(leaving, || News::Alone);
        if let Some((_, follower)) = successor {
            // If it has just left, what it cannot take is dropped, and so handed to another.
            let _ = follower.news.send(News::Lead(Leadership {
                place: self.clone(),
                leader: number,
                is_over: false,
            }));
        }
    }
}

impl Follower {
    fn has_seen_enough(&self, failures: u32, now: Instant) -> bool {
        failures - self.failures_before >= MAX_FAILURES
            || self.turn_end.is_some_and(|end| end <= now)
    }
}

/// Those who have left in the meantime are told nothing.
fn tell(followers: impl IntoIterator<Item = Follower>, news: impl Fn() -> News) {
    for follower in followers {
        let _ = follower.news.send(news());
    }
}

/// The duty to end a flight. If it is dropped, a follower takes over.
#[must_use = "it is handed over when dropped"]
pub(crate) struct Leadership {
    place: Place,
    leader: u64,
    /// Nobody is left to hand it to.
    is_over: bool,
}

impl Leadership {
    /// Whether anybody waits for the answer. If not, the flight is over, and who comes now begins
    /// another.
    pub(crate) fn is_awaited(&mut self) -> bool {
        let mut table = self.place.flights.lock();
        let flight = self.place.entry(&mut table);
        self.is_over = !(flight.as_ref()).is_some_and(|flight| flight.get().is_awaited());
        let own = flight.filter(|flight| self.is_over && flight.get().leader == self.leader);
        if let Some(flight) = own {
            let ended = flight.remove();
            drop(table);
            drop(ended);
        }
        !self.is_over
    }

    /// Gives the answer to all who wait. One that was overtaken may be the first to have one.
    pub(crate) fn share(self, answer: &Arc<BufferedResponse>) {
        self.end(|| News::Answer(answer.clone()));
    }

    /// Sends all who wait on their own ways, at once.
    pub(crate) fn dissolve(self) {
        self.end(|| News::Alone);
    }

    /// Hands over to the first in line.
    pub(crate) fn fail(self) {
        self.place
            .succeed(self.leader, Ending::Failed, clock::now());
    }

    /// Hands over to the last in line, as if it were dropped.
    pub(crate) fn leave(self) {
        drop(self);
    }

    fn end(self, news: impl Fn() -> News) {
        let mut table = self.place.flights.lock();
        if self.place.flight(&mut table).is_none() {
            return;
        }
        let flight = table.flights.remove(&self.place.slot);
        drop(table);
        let followers = flight.and_then(|flight| flight.followers);
        tell(followers.unwrap_or_default().into_values(), news);
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        // Nothing happens if the flight is over, or another leads it.
        if !self.is_over {
            self.place.succeed(self.leader, Ending::Left, clock::now());
        }
    }
}

/// A follower's place in the line. If it is dropped, nothing is left of it.
pub(crate) struct Seat {
    place: Place,
    number: u64,
    /// Who led when it came.
    first_leader: u64,
    patient_until: Instant,
    /// When the timeout of its request is over, until that has been looked at.
    turn_end: Option<Instant>,
    news: oneshot::Receiver<News>,
}

impl Seat {
    /// Waits for whatever the leader has to tell, or for its own turn.
    pub(crate) async fn news(mut self) -> News {
        loop {
            let end = self.patient_until;
            let end = self.turn_end.map_or(end, |turn_end| turn_end.min(end));
            match tokio::time::timeout_at(end, &mut self.news).await {
                Ok(Ok(news)) => return news,
                // Nobody drops a follower without news; but if so, nobody waits for ever.
                Ok(Err(_)) => return News::Alone,
                Err(_) if self.turn_end.is_some_and(|turn_end| turn_end <= end) => {
                    if self.is_led_by_another() {
                        return News::Alone;
                    }
                    // The timeout is for one attempt, and the leader may be making its second. If it
                    // ends without an answer, whose time is up will be told.
                    self.turn_end = None;
                }
                Err(_) => self.patient_until = self.overtake(clock::now()),
            }
        }
    }

    /// Whether the leader that it came to has failed or left.
    fn is_led_by_another(&self) -> bool {
        let mut table = self.place.flights.lock();
        let flight = self.place.flight(&mut table);
        // If it has ended just now, the news are on their way.
        flight.is_some_and(|flight| flight.leader != self.first_leader)
    }

    /// Sends the next one if the leader takes too long, and says how long to wait for that one. The
    /// next is the first in line, which need not be this one.
    fn overtake(&self, now: Instant) -> Instant {
        let max_wait = self.place.flights.max_wait;
        let mut table = self.place.flights.lock();
        let flight = self.place.flight(&mut table);
        let led = flight.map(|flight| (flight.leader, clock::after(flight.led_since, max_wait)));
        drop(table);
        match led {
            Some((_, patient_until)) if patient_until > now => return patient_until,
            Some((leader, _)) => self.place.succeed(leader, Ending::Failed, now),
            // It has ended just now, and the news are on their way.
            None => {}
        }
        clock::after(now, max_wait)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.place.flights.lock();
        let flight = self.place.flight(&mut table);
        let followers = flight.and_then(|flight| flight.followers.as_mut());
        let own = followers.and_then(|followers| followers.remove(&self.number));
        drop(table);
        drop(own);
    }
}

#[cfg(test)]
mod tests {
    use http::{Extensions, Method};
    use reqwest::Request;

    use super::super::identity::Ignored;
    use super::*;

    fn identity(flights: &Flights) -> (Identity, u64) {
        identity_of("http://a.example", flights)
    }

    fn identity_of(url: &str, flights: &Flights) -> (Identity, u64) {
        let request = Request::new(Method::GET, url.parse().unwrap());
        let hasher = flights.hasher();
        Identity::of(&request, &Extensions::new(), &Ignored::default(), hasher)
            .unwrap_or_else(|reason| panic!("{reason:?}"))
    }

    fn lead(flights: &Arc<Flights>) -> Leadership {
        let (identity, hash) = identity(flights);
        match flights.board(identity, hash, clock::now()) {
            Boarding::Lead(leadership) => leadership,
            Boarding::Follow(_) => panic!("somebody leads"),
        }
    }

    fn follow(flights: &Arc<Flights>) -> Seat {
        let (identity, hash) = identity(flights);
        match flights.board(identity, hash, clock::now()) {
            Boarding::Lead(_) => panic!("nobody leads"),
            Boarding::Follow(seat) => seat,
        }
    }

    fn waiting(flights: &Flights) -> Vec<usize> {
        let table = flights.lock();
        let flights = table.flights.values();
        let followers = flights.map(|flight| flight.followers.as_ref());
        followers
            .map(|line| line.map_or(0, BTreeMap::len))
            .collect()
    }

    fn flights() -> Arc<Flights> {
        Flights::new(Duration::from_secs(1))
    }

    #[tokio::test]
    async fn a_follower_that_leaves_is_forgotten_at_once() {
        let flights = flights();
        let mut leader = lead(&flights);
        let stays = follow(&flights);
        for _ in 0..1000 {
            drop(follow(&flights));
        }
        assert_eq!(waiting(&flights), [1]);
        assert!(leader.is_awaited());
        leader.dissolve();
        assert!(matches!(stays.news().await, News::Alone));
        assert!(waiting(&flights).is_empty());
    }

    #[tokio::test]
    async fn after_a_failure_the_first_is_next_and_after_a_cancellation_the_last() {
        let flights = flights();
        let leader = lead(&flights);
        let [first, second, third] = std::array::from_fn(|_| follow(&flights));
        leader.fail();
        assert_eq!(waiting(&flights), [2]);
        let News::Lead(leader) = first.news().await else {
            panic!("it is the next");
        };
        drop(leader);
        assert_eq!(waiting(&flights), [1]);
        let News::Lead(leader) = third.news().await else {
            panic!("it is the next");
        };
        // A third one is too much, however it ends.
        let late = follow(&flights);
        leader.leave();
        assert!(matches!(second.news().await, News::Alone));
        let News::Lead(mut leader) = late.news().await else {
            panic!("it has seen but one");
        };
        assert!(!leader.is_awaited());
        assert!(waiting(&flights).is_empty());
    }

    #[tokio::test]
    async fn who_was_appointed_and_leaves_without_knowing_hands_over() {
        let flights = flights();
        let leader = lead(&flights);
        let (first, second) = (follow(&flights), follow(&flights));
        drop(leader);
        drop(second);
        assert!(matches!(first.news().await, News::Lead(_)));
        assert!(waiting(&flights).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_overtaken_does_not_end_the_flight_of_another() {
        let flights = flights();
        let mut slow = lead(&flights);
        let News::Lead(mut leader) = follow(&flights).news().await else {
            panic!("the leader is slow");
        };
        assert!(!slow.is_awaited());
        drop(slow);
        let third = follow(&flights);
        assert!(leader.is_awaited());
        leader.dissolve();
        assert!(matches!(third.news().await, News::Alone));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_overtaken_hands_over_nothing_but_an_answer() {
        let flights = flights();
        let slow = lead(&flights);
        let (first, second) = (follow(&flights), follow(&flights));
        let News::Lead(leader) = first.news().await else {
            panic!("the leader is slow");
        };
        // Whatever becomes of the slow one, `second` waits for the new leader.
        slow.fail();
        assert_eq!(waiting(&flights), [1]);
        leader.dissolve();
        assert!(matches!(second.news().await, News::Alone));

        let mut slow = lead(&flights);
        let (first, second) = (follow(&flights), follow(&flights));
        let News::Lead(mut leader) = first.news().await else {
            panic!("the leader is slow");
        };
        assert!(slow.is_awaited());
        slow.dissolve();
        assert!(matches!(second.news().await, News::Alone));
        // A new flight is none of the old leaders' business.
        let next = lead(&flights);
        let third = follow(&flights);
        assert!(!leader.is_awaited());
        leader.fail();
        assert_eq!(waiting(&flights), [1]);
        drop(next);
        assert!(matches!(third.news().await, News::Lead(_)));
    }

    #[tokio::test]
    async fn two_that_share_a_hash_share_nothing_else() {
        let flights = flights();
        let board = |url| {
            let (identity, _) = identity_of(url, &flights);
            flights.board(identity, u64::MAX, clock::now())
        };
        let lead = |url| match board(url) {
            Boarding::Lead(leadership) => leadership,
            Boarding::Follow(_) => panic!("somebody leads"),
        };
        let follow = |url| match board(url) {
            Boarding::Lead(_) => panic!("nobody leads"),
            Boarding::Follow(seat) => seat,
        };
        let mut one = lead("http://a.example");
        let mut other = lead("http://b.example");
        let (first, second) = (follow("http://b.example"), follow("http://b.example"));
        assert!(!one.is_awaited());
        assert!(other.is_awaited());
        other.fail();
        let News::Lead(leader) = first.news().await else {
            panic!("it is the next");
        };
        // The place of the first is free, and another of its kind takes it.
        let mut one = lead("http://a.example");
        assert!(!one.is_awaited());
        leader.dissolve();
        assert!(matches!(second.news().await, News::Alone));
        assert!(waiting(&flights).is_empty());
    }
}
