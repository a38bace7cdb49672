//! Servers that try to attract more requests than the limits allow.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_middleware::ClientWithMiddleware;
use reqwest_steady::testing::Reply;
use reqwest_steady::{RetryMiddleware, RetryReport, StopReason, ThrottleMiddleware};
use tokio::time::{Instant, sleep};

use crate::support::scripted::{
    Server, URL, assert_few_requests_arrive, call, late, respond, respond_with, throttled,
};
use crate::support::stacks::MS;

/// Makes 10 calls per second for a minute.
async fn a_minute(client: &ClientWithMiddleware) {
    let calls = (0..600).map(|number| async move {
        sleep(number * 100 * MS).await;
        let _ = call(client, number as usize).await;
    });
    join_all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_asking_for_instant_retries_gets_only_the_budget() {
    for status in [503, 429] {
        let server = Server::new(move |_| respond_with(status, &[("retry-after", "0")]));
        let client = server.client(RetryMiddleware::default());
        a_minute(&client).await;
        // The reserve that a budget starts with, and what the line lets through: after 0.5 s, 1 s, 2 s and so on.
        assert!(
            (610..=600 + 20 + 8).contains(&server.count()),
            "{}",
            server.count()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_asking_for_instant_retries_is_throttled() {
    for status in [503, 429] {
        let server =
            Server::new(move |_| late(5 * MS, respond_with(status, &[("retry-after", "0")])));
        let client = throttled(
            &server,
            RetryMiddleware::builder(),
            ThrottleMiddleware::builder(),
        );
        a_minute(&client).await;
        assert!(server.count() < 60, "{}", server.count());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_promises_and_refuses_gets_few_requests() {
    for promise in [
        &[("ratelimit", "\"default\";r=1000000;t=1")][..],
        &[("ratelimit", "limit=1000000, remaining=1000000, reset=1")],
        &[
            ("x-ratelimit-remaining", "18446744073709551615"),
            ("x-ratelimit-reset", "1"),
        ],
        &[
            ("x-ratelimit-remaining", "1000000"),
            ("x-ratelimit-reset", "0"),
        ],
    ] {
        let server = Server::new(move |_| late(5 * MS, respond_with(429, promise)));
        let client = throttled(
            &server,
            RetryMiddleware::builder(),
            ThrottleMiddleware::builder(),
        );
        assert_few_requests_arrive(&server, &client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_only_probes_gets_few_extra_requests() {
    // The server refuses every request that arrives within 90 ms of another.
    let last = Mutex::new(None::<Instant>);
    let server = Server::new(move |_| {
        let now = Instant::now();
        let before = last.lock().unwrap().replace(now);
        let alone = before.is_none_or(|before| now - before >= 90 * MS);
        late(5 * MS, respond(if alone { 200 } else { 429 }))
    });
    let client = throttled(
        &server,
        RetryMiddleware::builder(),
        ThrottleMiddleware::builder(),
    );
    let results = join_all((0..200).map(|name| call(&client, name))).await;
    let succeeded = results
        .iter()
        .filter(|result| matches!(result, Ok(200)))
        .count();
    assert_eq!(succeeded, 200);
    assert!(server.count() < 300, "{}", server.count());
}

#[tokio::test(start_paused = true)]
async fn a_veto_ends_a_call_whatever_form_it_has() {
    let vetoes = [
        [("x-should-retry", "false"), ("retry-after", "0")],
        [("stripe-should-retry", "FALSE"), ("x-should-retry", "true")],
        [("x-should-retry", "False"), ("stripe-should-retry", "true")],
    ];
    for first in 0..vetoes.len() {
        let server = Server::new(move |index| {
            let status = [503, 429, 500][index % 3];
            respond_with(status, &vetoes[(first + index) % vetoes.len()])
        });
        let client = server.client(RetryMiddleware::default());
        for calls in 1..=20 {
            let response = client.get(URL).send().await.unwrap();
            assert_eq!(
                RetryReport::of(&response).unwrap().stop_reason(),
                StopReason::ServerVeto
            );
            assert_eq!(server.count(), calls);
        }
        assert!(server.gaps().iter().all(Duration::is_zero));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_always_asks_for_retries_gets_no_extra_ones() {
    fn please(status: u16) -> Reply {
        respond_with(status, &[("x-should-retry", "true"), ("retry-after", "0")])
    }
    for status in [400, 404, 422, 501, 503] {
        let server = Server::new(move |_| please(status));
        let client = server.client(RetryMiddleware::default());
        let response = client.get(URL).send().await.unwrap();
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
        assert_eq!(server.count(), 6);

        let server = Server::new(move |_| please(status));
        let client = server.client(RetryMiddleware::default());
        join_all((0..100).map(|name| call(&client, name))).await;
        // The reserve, and what the line lets through in a minute: after 0.5 s, 1 s, 2 s and so on.
        let in_line = if status == 503 { 7 } else { 0 };
        let most = 100 + 20 + in_line;
        assert!(server.count() <= most, "{status}: {}", server.count());
    }
    // Every response contradicts the one before.
    let server = Server::new(|index| match index % 2 {
        0 => please(404),
        _ => respond_with(503, &[("x-should-retry", "false")]),
    });
    let client = server.client(RetryMiddleware::default());
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(
        RetryReport::of(&response).unwrap().stop_reason(),
        StopReason::ServerVeto
    );
    assert_eq!(server.count(), 2);
}
