//! The circuit breaker: passing, paused, probing, and what it has learned after that.

use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::observe::{BreakerState, GateLimit, PauseSource};
use tokio::time::{Instant, sleep};

use super::{client, gate, once, pause, retry, start, status, steady, throttle};
use crate::support::scripted::{Reply, Server, call, late, respond, respond_with};
use crate::support::stacks::{MS, SEC};

#[tokio::test(start_paused = true)]
async fn a_pause_shows_who_asked_and_how_long_it_lasts() {
    let server = Server::new(|index| match index {
        0 => respond_with(429, &[("retry-after", "7")]),
        _ => late(SEC, respond(200)),
    });
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    assert_eq!(call(&client, 0).await.unwrap(), 429);

    let (whole, asked_by) = pause(&steady);
    assert_eq!(asked_by, PauseSource::Server);
    assert!(whole >= 7 * SEC && whole <= 8 * SEC, "{whole:?}");
    sleep(2 * SEC).await;
    assert_eq!(pause(&steady), (whole - 2 * SEC, PauseSource::Server));

    // A call waits for the end of the pause, and is the probe then.
    let waiting = start(&client, "a");
    sleep(SEC).await;
    let seen = gate(&steady);
    assert_eq!(seen.limited_by, Some(GateLimit::Pause));
    assert_eq!((seen.queued, seen.oldest_wait), (1, SEC));
    sleep(whole - 3 * SEC + 2 * MS).await;
    let seen = gate(&steady);
    assert_eq!(seen.breaker, BreakerState::Probing);
    assert_eq!((seen.in_flight, seen.queued), (1, 0));
    assert_eq!(status(waiting).await, 200);
    assert_eq!(gate(&steady).breaker, BreakerState::Passing);
    assert_eq!(server.count(), 2);
    assert!(server.gaps()[0] >= whole, "{:?}", server.gaps());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_has_passed_is_not_shown() {
    let server = Server::statuses([429]);
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    assert_eq!(call(&client, 0).await.unwrap(), 429);
    let (whole, asked_by) = pause(&steady);
    assert_eq!(asked_by, PauseSource::Refusal);
    assert!(whole >= 100 * MS && whole <= 125 * MS, "{whole:?}");
    sleep(whole - MS).await;
    assert!(pause(&steady).0 <= MS);
    sleep(2 * MS).await;
    // Nothing has happened since, but the next request is a probe.
    assert_eq!(gate(&steady).breaker, BreakerState::Probing);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_a_probe_is_in_flight_the_others_wait_for_it() {
    let server = Server::new(|index| match index {
        0 => respond(429),
        _ => late(SEC, respond(200)),
    });
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    assert_eq!(call(&client, 0).await.unwrap(), 429);
    sleep(SEC).await;
    let calls = [start(&client, "a"), start(&client, "b")];
    sleep(400 * MS).await;
    let seen = gate(&steady);
    assert_eq!(seen.breaker, BreakerState::Probing);
    assert_eq!(seen.limited_by, Some(GateLimit::Probe));
    assert_eq!((seen.in_flight, seen.queued), (1, 1));
    assert_eq!(seen.oldest_wait, 400 * MS);
    assert_eq!(seen.pace, None);
    for call in calls {
        assert_eq!(status(call).await, 200);
    }
    // From now on there is a pace.
    let seen = gate(&steady);
    assert_eq!(seen.breaker, BreakerState::Passing);
    assert!(seen.pace.is_some(), "{seen:?}");
    assert_eq!((seen.in_flight, seen.queued), (0, 0));
    assert_eq!(server.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_paused_for_and_probed() {
    let server = Server::new(|index| match index {
        0..=5 | 7 => respond(503),
        _ => respond(200),
    });
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    for name in 0..5 {
        assert_eq!(call(&client, name).await.unwrap(), 503);
    }
    let (first, asked_by) = pause(&steady);
    assert_eq!(asked_by, PauseSource::Failures);
    assert_eq!(gate(&steady).failures_in_a_row, Some(5));
    // A probe that fails makes the next pause longer.
    assert_eq!(call(&client, 5).await.unwrap(), 503);
    let (second, asked_by) = pause(&steady);
    assert_eq!(asked_by, PauseSource::Failures);
    assert!(second >= first * 3 / 2, "{first:?}, {second:?}");
    assert_eq!(gate(&steady).failures_in_a_row, Some(6));
    assert_eq!(call(&client, 6).await.unwrap(), 200);
    let seen = gate(&steady);
    assert_eq!(seen.breaker, BreakerState::Passing);
    assert_eq!(seen.failures_in_a_row, Some(0));
    // The next failure is the first one again.
    assert_eq!(call(&client, 7).await.unwrap(), 503);
    assert_eq!(gate(&steady).failures_in_a_row, Some(1));
    assert_eq!(server.count(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_spent_pauses_until_its_reset() {
    let spent = [("ratelimit", "\"minute\";r=0;t=30")];
    let server = Server::new(move |_| respond_with(200, &spent));
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    assert_eq!(call(&client, 0).await.unwrap(), 200);
    assert_eq!(pause(&steady), (30 * SEC, PauseSource::Quota));
    sleep(29 * SEC).await;
    assert_eq!(pause(&steady), (SEC, PauseSource::Quota));
    sleep(2 * SEC).await;
    // The next request finds out the new quota.
    assert_eq!(gate(&steady).breaker, BreakerState::Probing);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_quota_counted_down_by_the_client_is_the_reason() {
    let server = Server::new(|index| match index {
        0 => respond_with(
            200,
            &[
                ("x-ratelimit-remaining", "2"),
                ("x-ratelimit-reset-after", "30"),
            ],
        ),
        _ => late(SEC, respond(200)),
    });
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    assert_eq!(call(&client, 0).await.unwrap(), 200);
    let started = Instant::now();
    let calls = ["a", "b", "c"].map(|path| start(&client, path));
    sleep(10 * SEC).await;
    let seen = gate(&steady);
    assert_eq!(seen.breaker, BreakerState::Passing);
    assert_eq!(seen.limited_by, Some(GateLimit::Quota));
    assert_eq!((seen.in_flight, seen.queued), (0, 1));
    for call in calls {
        assert_eq!(status(call).await, 200);
    }
    assert!(started.elapsed() >= 30 * SEC, "{:?}", started.elapsed());
    assert_eq!(server.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_another_worker_is_shown_as_the_fleets() {
    let server = Server::by_request(|request| match request.url().path() {
        "/limited" => respond_with(429, &[("retry-after", "7")]),
        _ => respond(200),
    });
    let fleet = FleetLimits::in_memory();
    let [one, other] = [1, 2].map(|_| {
        let throttle = throttle().fleet(fleet.clone());
        steady(once(), throttle)
    });
    let (first, second) = (client(&server, &one), client(&server, &other));
    assert_eq!(status(start(&second, "ok")).await, 200);
    assert_eq!(status(start(&first, "limited")).await, 429);
    sleep(10 * MS).await;
    // Each worker has its own jitter.
    assert_eq!(pause(&one).1, PauseSource::Server);
    let (remaining, asked_by) = pause(&other);
    assert_eq!(asked_by, PauseSource::Fleet);
    assert!(remaining >= 6900 * MS && remaining <= 7 * SEC);
    assert!(gate(&other).has_fleet);
    sleep(7 * SEC).await;
    assert_eq!(gate(&other).breaker, BreakerState::Passing);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pace_is_shown_until_nothing_needs_it_any_more() {
    let server = Server::statuses([429, 200]);
    let steady = steady(retry(), throttle());
    let client = client(&server, &steady);
    assert_eq!(call(&client, 0).await.unwrap(), 200);
    let pace = gate(&steady).pace.expect("a pace");
    assert!((1.0..100.0).contains(&pace), "{pace}");
    sleep(59 * SEC).await;
    assert_eq!(gate(&steady).pace, Some(pace));
    // The next request will forget it.
    sleep(3 * SEC).await;
    let idle = gate(&steady);
    assert_eq!((idle.pace, idle.window), (None, Some(16)));
    assert_eq!(call(&client, 1).await.unwrap(), 200);
    let after = gate(&steady);
    assert_eq!((after.pace, after.window), (None, Some(16)));
    assert_eq!(server.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_throttle_that_does_not_learn_never_pauses() {
    let server = Server::new(|_| respond_with(429, &[("retry-after", "7")]));
    let steady = steady(once(), throttle().adaptive(false).rate(50.0, 5));
    let client = client(&server, &steady);
    for name in 0..5 {
        assert_eq!(call(&client, name).await.unwrap(), 429);
    }
    let seen = gate(&steady);
    assert_eq!(seen.breaker, BreakerState::Passing);
    assert_eq!((seen.pace, seen.window), (None, None));
    assert_eq!((seen.rate, seen.has_fleet), (Some(50.0), false));
    assert_eq!(seen.failures_in_a_row, None);
    assert_eq!(server.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_a_response_stays_a_probe() {
    let server = Server::new(|index| match index {
        0 => respond(429),
        _ => Reply::silence(),
    });
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    assert_eq!(call(&client, 0).await.unwrap(), 429);
    let hung = start(&client, "a");
    sleep(60 * SEC).await;
    let seen = gate(&steady);
    assert_eq!(seen.breaker, BreakerState::Probing);
    assert_eq!((seen.in_flight, seen.queued), (1, 0));
    hung.abort();
    assert_eq!(server.count(), 2);
}
