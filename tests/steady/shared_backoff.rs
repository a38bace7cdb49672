//! The backoff of a call follows the failures of its host as well as its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_middleware::ClientWithMiddleware;
use reqwest_steady::observe::{EventKind, WaitReason};
use reqwest_steady::{
    Backoff, Budget, Jitter, RequestBuilderExt, RetryMiddleware, RetryReport, StopReason,
    ThrottleMiddleware,
};
use tokio::time::Instant;

use crate::support::scripted::{Server, URL, call, late, respond, respond_with, throttled};
use crate::support::stacks::{MS, SEC, doubling};

/// Two retries without a budget, after 100 ms and 200 ms.
fn client(server: &Arc<Server>, backoff: Backoff) -> ClientWithMiddleware {
    let retry = RetryMiddleware::builder().backoff(backoff).max_retries(2);
    server.client(retry.budget(Budget::unlimited()).build().unwrap())
}

/// Makes a call, and returns its waits in milliseconds with their reasons.
async fn waits(client: &ClientWithMiddleware, url: &str) -> Vec<(u128, WaitReason)> {
    let response = client.get(url).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    let mut attempts = report.attempts();
    assert_eq!(attempts.next().unwrap().wait_reason(), None);
    attempts
        .map(|attempt| (attempt.waited().as_millis(), attempt.wait_reason().unwrap()))
        .collect()
}

use WaitReason::{Backoff as Own, HostFailures, ServerHint};

#[tokio::test(start_paused = true)]
async fn a_call_that_starts_late_in_an_outage_waits_longer() {
    let server = Server::new(|_| late(MS, respond(503)));
    let client = client(&server, doubling(100 * MS));
    // What others have found out counts up to the fifth failure in a row.
    for expected in [
        [(100, Own), (200, Own)],
        [(800, HostFailures), (1600, HostFailures)],
        [(1600, HostFailures), (1600, HostFailures)],
    ] {
        assert_eq!(waits(&client, URL).await, expected);
    }
    let gaps: Vec<_> = server.gaps().iter().map(Duration::as_millis).collect();
    assert_eq!(gaps, [101, 201, 1, 801, 1601, 1, 1601, 1601]);
    // Another host has its own failures.
    let other = waits(&client, "http://other.example.com/").await;
    assert_eq!(other, [(100, Own), (200, Own)]);
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_after_a_success_waits_as_usual() {
    let server = Server::new(|index| late(MS, respond(if index == 6 { 200 } else { 503 })));
    let client = client(&server, doubling(100 * MS));
    waits(&client, URL).await;
    waits(&client, URL).await;
    assert_eq!(waits(&client, URL).await, []);
    assert_eq!(waits(&client, URL).await, [(100, Own), (200, Own)]);
    assert_eq!(server.count(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_no_failure_ends_the_row_as_well() {
    let server = Server::new(|index| late(MS, respond(if index == 6 { 404 } else { 503 })));
    let client = client(&server, doubling(100 * MS));
    waits(&client, URL).await;
    waits(&client, URL).await;
    assert_eq!(waits(&client, URL).await, []);
    assert_eq!(waits(&client, URL).await, [(100, Own), (200, Own)]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_fail_together_are_one_failure() {
    let server = Server::new(|_| late(20 * MS, respond(503)));
    let client = client(&server, doubling(100 * MS));
    let started = Instant::now();
    join_all((0..9).map(|name| call(&client, name))).await;
    assert_eq!(server.count(), 27);
    assert_eq!(started.elapsed(), (3 * 20 + 100 + 200) * MS);
}

#[tokio::test(start_paused = true)]
async fn a_backoff_may_ignore_the_failures_of_other_calls() {
    let server = Server::new(|_| late(MS, respond(503)));
    let backoff = doubling(100 * MS).alone();
    assert!(backoff.is_alone());
    assert!(!Backoff::default().is_alone());
    let client = client(&server, backoff);
    for _ in 0..4 {
        assert_eq!(waits(&client, URL).await, [(100, Own), (200, Own)]);
    }
    assert_eq!(server.count(), 12);
}

#[tokio::test(start_paused = true)]
async fn behind_a_throttle_a_call_backs_off_alone() {
    let server = Server::new(|_| late(MS, respond(503)));
    let retry = RetryMiddleware::builder().backoff(doubling(100 * MS));
    let retry = retry.max_retries(2).budget(Budget::unlimited());
    let throttle = ThrottleMiddleware::builder().adaptive(false);
    let client = throttled(&server, retry, throttle);
    for _ in 0..4 {
        assert_eq!(waits(&client, URL).await, [(100, Own), (200, Own)]);
    }
    assert_eq!(server.count(), 12);
}

#[tokio::test(start_paused = true)]
async fn behind_an_adaptive_throttle_a_call_backs_off_alone() {
    let server = Server::new(|_| late(MS, respond(503)));
    // Without the time in the queue, which the report adds to each wait.
    let backoffs = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&backoffs);
    let retry = RetryMiddleware::builder().backoff(doubling(100 * MS));
    let retry = retry.max_retries(2).budget(Budget::unlimited());
    let retry = retry.observe_fn(move |event| {
        if let EventKind::RetryScheduled(retry) = event.kind {
            let mut kept = kept.lock().unwrap();
            kept.push((retry.wait.as_millis(), retry.reason));
        }
    });
    let client = throttled(&server, retry, ThrottleMiddleware::builder().seed(1));
    for calls in 1..=4 {
        let response = client.get(URL).send().await.unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(server.count(), 3 * calls);
    }
    assert_eq!(
        *backoffs.lock().unwrap(),
        [(100, Own), (200, Own)].repeat(4)
    );
    // From the fifth failure on, the gate lets one probe go at a time, and the waits between them grow.
    let gaps = server.gaps();
    assert_eq!(gaps[..2], [101 * MS, 201 * MS]);
    assert!(gaps[4..].iter().sum::<Duration>() > 2 * SEC, "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_longer_hint_is_the_reason_of_a_wait() {
    let server = Server::new(|index| match index {
        // With the spread of 1 s, it is still the hint that counts.
        0 => respond_with(503, &[("retry-after", "3")]),
        1 => respond_with(503, &[("retry-after-ms", "1")]),
        _ => respond(200),
    });
    let client = client(&server, doubling(100 * MS));
    let [(hinted, first), (own, second)] = waits(&client, URL).await[..] else {
        panic!("two retries");
    };
    assert!((3000..=4000).contains(&hinted), "{hinted}");
    assert!((200..=202).contains(&own), "{own}");
    assert_eq!([first, second], [ServerHint, Own]);
}

#[tokio::test(start_paused = true)]
async fn the_cap_holds_for_the_shared_backoff_too() {
    let server = Server::new(|_| late(MS, respond(503)));
    let client = client(&server, doubling(100 * MS).cap(300 * MS));
    waits(&client, URL).await;
    let late = waits(&client, URL).await;
    assert_eq!(late, [(300, HostFailures), (300, HostFailures)]);
}

#[tokio::test(start_paused = true)]
async fn a_random_wait_is_drawn_within_the_deadline() {
    // A wait of up to a minute hardly ever fits into a second.
    for seed in 0..50 {
        let server = Server::statuses([503, 200]);
        let backoff = Backoff::exponential(60 * SEC);
        let retry = RetryMiddleware::builder().seed(seed).backoff(backoff);
        let client = server.client(retry.build().unwrap());
        let started = Instant::now();
        let response = client.get(URL).deadline(SEC).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(started.elapsed() < SEC, "{:?}", started.elapsed());
        assert_eq!(server.count(), 2);
    }
    // An exact wait is not changed.
    let server = Server::statuses([503, 200]);
    let backoff = Backoff::exponential(60 * SEC).jitter(Jitter::None);
    let client = client(&server, backoff);
    let response = client.get(URL).deadline(SEC).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::DeadlineTooClose);
    assert_eq!(server.count(), 1);
}
