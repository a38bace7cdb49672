//! Which caller leads a flight, in every order of joining, failing and leaving.

use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use http::Method;
use reqwest::Request;

use super::flights::{FlightMessage, Flights, Role};
use super::follower::Follower;
use super::identity::Identity;
use super::ignored::Ignored;
use super::leader::Leader;
use crate::clock;

fn identity() -> Identity {
    let request = Request::new(Method::GET, "http://a.example".parse().unwrap());
    Identity::of(&request, None, &Ignored::default())
}

fn lead(flights: &Arc<Flights>) -> Leader {
    match flights.join(identity(), LEADER_TIMEOUT, clock::now()) {
        Role::Leader(leader) => leader,
        _ => panic!("another caller leads"),
    }
}

fn follow(flights: &Arc<Flights>) -> Follower {
    match flights.join(identity(), LEADER_TIMEOUT, clock::now()) {
        Role::Follower(follower) => follower,
        _ => panic!("no caller leads"),
    }
}

const LEADER_TIMEOUT: Duration = Duration::from_secs(1);

fn flights() -> Arc<Flights> {
    Arc::default()
}

#[tokio::test]
async fn a_follower_that_leaves_is_forgotten_at_once() {
    let flights = flights();
    let leader = lead(&flights);
    let stays = follow(&flights);
    for _ in 0..1000 {
        drop(follow(&flights));
    }
    assert_eq!(flights.waiting(), [1]);
    leader.if_awaited().unwrap().dissolve();
    assert!(matches!(stays.wait().await, FlightMessage::Alone));
    assert!(flights.waiting().is_empty());
}

#[test]
fn another_request_with_the_same_hash_goes_alone() {
    let flights = flights();
    let leader = lead(&flights);
    let request = Request::new(Method::GET, "http://b.example".parse().unwrap());
    let other = Identity::of(&request, None, &Ignored::default());
    let other = other.with_hash(identity().hash());
    assert!(matches!(
        flights.join(other, LEADER_TIMEOUT, clock::now()),
        Role::Alone
    ));
    assert_eq!(flights.waiting(), [0]);
    assert!(leader.if_awaited().is_none());
    assert!(flights.waiting().is_empty());
}

/// Looks at the flights when it is woken, and notes what it saw. `None`: the table stayed locked.
struct Looker(Arc<Flights>, Mutex<Vec<Option<Vec<usize>>>>);

impl Wake for Looker {
    fn wake(self: Arc<Self>) {
        let (sender, seen) = mpsc::channel();
        let flights = self.0.clone();
        thread::spawn(move || sender.send(flights.waiting()));
        let seen = seen.recv_timeout(Duration::from_secs(5)).ok();
        self.1.lock().unwrap().push(seen);
    }
}

#[tokio::test]
async fn a_follower_that_leaves_is_not_woken_under_the_lock() {
    let flights = flights();
    let _leader = lead(&flights);
    let looker = Arc::new(Looker(flights.clone(), Mutex::default()));
    {
        let mut wait = pin!(follow(&flights).wait());
        let waker = Waker::from(looker.clone());
        assert!(
            wait.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    assert_eq!(*looker.1.lock().unwrap(), [Some(vec![0])]);
}

#[tokio::test]
async fn a_failure_promotes_the_oldest_and_a_drop_the_newest() {
    let flights = flights();
    let leader = lead(&flights);
    let [first, second, third] = std::array::from_fn(|_| follow(&flights));
    leader.fail();
    assert_eq!(flights.waiting(), [2]);
    let FlightMessage::Lead(leader) = first.wait().await else {
        panic!("this follower is next");
    };
    drop(leader);
    assert_eq!(flights.waiting(), [1]);
    let FlightMessage::Lead(leader) = third.wait().await else {
        panic!("this follower is next");
    };
    // The third failure is one too many, however the leader ends.
    let late = follow(&flights);
    leader.leave();
    assert!(matches!(second.wait().await, FlightMessage::Alone));
    let FlightMessage::Lead(leader) = late.wait().await else {
        panic!("it has seen one failure only");
    };
    assert!(leader.if_awaited().is_none());
    assert!(flights.waiting().is_empty());
}

#[tokio::test]
async fn a_successor_that_is_dropped_unaware_hands_over() {
    let flights = flights();
    let leader = lead(&flights);
    let (first, second) = (follow(&flights), follow(&flights));
    drop(leader);
    drop(second);
    assert!(matches!(first.wait().await, FlightMessage::Lead(_)));
    assert!(flights.waiting().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_overtaken_leader_does_not_end_the_flight() {
    let flights = flights();
    let slow = lead(&flights);
    let FlightMessage::Lead(leader) = follow(&flights).wait().await else {
        panic!("the leader is slow");
    };
    assert!(slow.if_awaited().is_none());
    let third = follow(&flights);
    leader.if_awaited().unwrap().dissolve();
    assert!(matches!(third.wait().await, FlightMessage::Alone));
}

#[tokio::test(start_paused = true)]
async fn an_overtaken_leader_can_only_share_or_dissolve() {
    let flights = flights();
    let slow = lead(&flights);
    let (first, second) = (follow(&flights), follow(&flights));
    let FlightMessage::Lead(leader) = first.wait().await else {
        panic!("the leader is slow");
    };
    // Whatever the slow leader does, `second` waits for the new one.
    slow.fail();
    assert_eq!(flights.waiting(), [1]);
    leader.dissolve();
    assert!(matches!(second.wait().await, FlightMessage::Alone));

    let slow = lead(&flights);
    let [first, second, third] = std::array::from_fn(|_| follow(&flights));
    let FlightMessage::Lead(leader) = first.wait().await else {
        panic!("the leader is slow");
    };
    let FlightMessage::Lead(last_leader) = second.wait().await else {
        panic!("the second leader is slow, too");
    };
    slow.if_awaited().unwrap().dissolve();
    assert!(matches!(third.wait().await, FlightMessage::Alone));
    // The old leaders do nothing to a new flight.
    let next = lead(&flights);
    let fourth = follow(&flights);
    assert!(leader.if_awaited().is_none());
    last_leader.fail();
    assert_eq!(flights.waiting(), [1]);
    drop(next);
    assert!(matches!(fourth.wait().await, FlightMessage::Lead(_)));
}
