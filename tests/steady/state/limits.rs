//! Which limit the queue waits for, and how long it has waited.

use std::time::Duration;

use reqwest_steady::ThrottleMiddlewareBuilder;
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::observe::{BreakerState, GateLimit};
use tokio::time::sleep;

use super::{client, gate, once, start, status, steady, throttle};
use crate::support::scripted::{Server, call, late, respond};
use crate::support::stacks::{MS, SEC};

/// Starts calls to a server that takes 10 s, and returns the limit and the numbers in flight and queued.
async fn limited_by(
    throttle: ThrottleMiddlewareBuilder,
    calls: usize,
) -> (Option<GateLimit>, u32, usize) {
    let server = Server::new(|_| late(10 * SEC, respond(200)));
    let steady = steady(once(), throttle);
    let client = client(&server, &steady);
    let calls: Vec<_> = (0..calls)
        .map(|name| start(&client, &name.to_string()))
        .collect();
    sleep(50 * MS).await;
    let seen = gate(&steady);
    assert_eq!(seen.breaker, BreakerState::Passing);
    assert_eq!(seen.in_flight as usize, server.count());
    calls.iter().for_each(|call| call.abort());
    (seen.limited_by, seen.in_flight, seen.queued)
}

#[tokio::test(start_paused = true)]
async fn the_limit_that_the_queue_waits_for_has_a_name() {
    let fixed = || throttle().adaptive(false);
    for (throttle, calls, expected) in [
        (throttle(), 16, (None, 16, 0)),
        (throttle(), 17, (Some(GateLimit::Window), 16, 1)),
        (
            throttle().max_in_flight(4),
            6,
            (Some(GateLimit::MaxInFlight), 4, 2),
        ),
        (
            fixed().max_in_flight(2),
            3,
            (Some(GateLimit::MaxInFlight), 2, 1),
        ),
        (fixed().rate(1.0, 3), 5, (Some(GateLimit::Rate), 3, 2)),
        (throttle().rate(1.0, 3), 5, (Some(GateLimit::Rate), 3, 2)),
        (
            throttle().rate(1.0, 3).fleet(FleetLimits::in_memory()),
            5,
            (Some(GateLimit::Fleet), 2, 3),
        ),
    ] {
        let shown = format!("{throttle:?}");
        assert_eq!(limited_by(throttle, calls).await, expected, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pace_that_holds_the_queue_back_is_the_reason() {
    let server = Server::new(|index| match index {
        0 => respond(429),
        _ => late(MS, respond(200)),
    });
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    assert_eq!(call(&client, 0).await.unwrap(), 429);
    let calls: Vec<_> = (0..200)
        .map(|name| start(&client, &name.to_string()))
        .collect();
    sleep(SEC).await;
    let sent = server.count();
    let seen = gate(&steady);
    assert_eq!(seen.limited_by, Some(GateLimit::Pace));
    assert_eq!(
        seen.queued + seen.in_flight as usize + sent - 1,
        200 + seen.in_flight as usize
    );
    // The pace is what really goes.
    let pace = seen.pace.unwrap();
    sleep(100 * MS).await;
    let went = (server.count() - sent) as f64 * 10.0;
    assert!((0.5 * pace..=2.0 * pace).contains(&went), "{pace}, {went}");
    for call in calls {
        assert_eq!(status(call).await, 200);
    }
    assert_eq!(gate(&steady).limited_by, None);
    assert_eq!(server.count(), 201);
}

#[tokio::test(start_paused = true)]
async fn the_queue_shows_its_length_and_its_oldest_wait() {
    let server = Server::new(|_| late(10 * SEC, respond(200)));
    let steady = steady(once(), throttle().max_in_flight(1));
    let client = client(&server, &steady);
    let first = start(&client, "a");
    sleep(2 * SEC).await;
    let seen = gate(&steady);
    assert_eq!((seen.in_flight, seen.queued), (1, 0));
    assert_eq!(seen.oldest_wait, Duration::ZERO);

    let second = start(&client, "b");
    sleep(3 * SEC).await;
    let third = start(&client, "c");
    sleep(4 * SEC).await;
    let seen = gate(&steady);
    assert_eq!((seen.in_flight, seen.queued), (1, 2));
    assert_eq!(seen.oldest_wait, 7 * SEC);
    assert_eq!(seen.max_in_flight, 1);

    // The first has ended, and the second is in flight.
    sleep(2 * SEC).await;
    let seen = gate(&steady);
    assert_eq!((seen.in_flight, seen.queued), (1, 1));
    assert_eq!(seen.oldest_wait, 6 * SEC);
    for call in [first, second, third] {
        assert_eq!(status(call).await, 200);
    }
    let seen = gate(&steady);
    assert_eq!((seen.in_flight, seen.queued), (0, 0));
    let gaps = server.gaps();
    assert!(
        gaps.iter()
            .all(|gap| (10 * SEC..=10 * SEC + MS).contains(gap))
    );
    assert_eq!(gaps.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_grows_is_shown() {
    let server = Server::new(|_| late(20 * MS, respond(200)));
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    let calls: Vec<_> = (0..500)
        .map(|name| start(&client, &name.to_string()))
        .collect();
    sleep(MS).await;
    assert_eq!(gate(&steady).window, Some(16));
    sleep(60 * MS).await;
    let seen = gate(&steady);
    assert!(seen.window.unwrap() > 32, "{seen:?}");
    assert_eq!(seen.in_flight, seen.window.unwrap(), "it is in use");
    for call in calls {
        assert_eq!(status(call).await, 200);
    }
    assert_eq!(server.count(), 500);
}
