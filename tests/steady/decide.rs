//! Which requests are retried, after which responses.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use http::Method;
use reqwest::StatusCode;
use reqwest_steady::observe::{AttemptOutcome, FailureKind};
use reqwest_steady::{
    Budget, RequestBuilderExt, RetryMiddleware, RetryMiddlewareBuilder, RetryReport, StatusClass,
    StopReason,
};

use crate::support::scripted::{Reply, Server, URL, respond, respond_with};
use crate::support::stacks::{MS, doubling};

/// Two retries, 1 ms apart.
fn quick() -> RetryMiddlewareBuilder {
    let backoff = doubling(MS);
    RetryMiddleware::builder()
        .max_retries(2)
        .backoff(backoff)
        .budget(Budget::unlimited())
        .client_follows_redirects(false)
}

/// How often a request arrives at a server that always responds with this status.
async fn arrivals(retry: &RetryMiddleware, method: &str, key: bool, status: u16) -> usize {
    let server = Server::new(move |_| respond(status));
    let client = server.client(retry.clone());
    let mut request = client.request(Method::from_bytes(method.as_bytes()).unwrap(), URL);
    if key {
        request = request.header("Idempotency-Key", "order-1");
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), status);
    server.count()
}

const METHODS: [&str; 10] = [
    "GET", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "QUERY", "POST", "PATCH", "PURGE",
];

const WORTH_A_RETRY: [u16; 8] = [408, 425, 429, 500, 502, 503, 504, 509];

#[tokio::test(start_paused = true)]
async fn every_status_with_every_method_with_and_without_a_key() {
    let retry = quick().build().unwrap();
    for status in 100..=599 {
        let worth_it = WORTH_A_RETRY.contains(&status) || status >= 512;
        for method in METHODS {
            for key in [true, false] {
                let repeatable = key || !["POST", "PATCH", "PURGE"].contains(&method);
                let expected = if worth_it && repeatable { 3 } else { 1 };
                assert_eq!(
                    arrivals(&retry, method, key, status).await,
                    expected,
                    "{method} {status}, key: {key}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retry_without_key_covers_only_429_502_503_and_504() {
    let retry = quick().retry_without_key(true).build().unwrap();
    for status in 100..=599 {
        let expected = if [429, 502, 503, 504].contains(&status) {
            3
        } else {
            1
        };
        assert_eq!(
            arrivals(&retry, "POST", false, status).await,
            expected,
            "{status}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn failures_without_a_response_need_a_repeatable_request() {
    for (kind, expected) in [
        (ErrorKind::ConnectionReset, FailureKind::Reset),
        (ErrorKind::BrokenPipe, FailureKind::Reset),
        (ErrorKind::ConnectionRefused, FailureKind::Connect),
        (ErrorKind::UnexpectedEof, FailureKind::Incomplete),
        (ErrorKind::TimedOut, FailureKind::Timeout),
    ] {
        for (method, count) in [(Method::GET, 3), (Method::POST, 1)] {
            let server = Server::new(move |_| Reply::fail(kind));
            let slot = reqwest_steady::ReportSlot::new();
            let client = server.client(quick().build().unwrap());
            let request = client.request(method, URL).report_to(&slot);
            request.send().await.unwrap_err();
            assert_eq!(server.count(), count, "{kind:?}");
            let report = slot.get().unwrap();
            assert!(
                report
                    .attempts()
                    .all(|attempt| attempt.outcome() == AttemptOutcome::Failure(expected))
            );
        }
    }
    let server = Server::new(|_| Reply::fail(ErrorKind::InvalidData));
    let client = server.client(quick().build().unwrap());
    client.get(URL).send().await.unwrap_err();
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_middlewares_failure_does_not_prove_it_was_unsent() {
    let server = Server::new(|_| Reply::fail(ErrorKind::ConnectionRefused));
    let client = server.client(quick().retry_unsent(true).build().unwrap());
    client.post(URL).send().await.unwrap_err();
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_post_marked_as_idempotent_is_retried_without_a_key() {
    let server = Server::statuses([500, 500, 201]);
    let client = server.client(quick().build().unwrap());
    let response = client.post(URL).mark_idempotent().send().await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(server.count(), 3);
    assert!(
        server
            .received()
            .iter()
            .all(|arrival| !arrival.headers.contains_key("idempotency-key"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_can_change_class_and_the_last_setting_wins() {
    let retry = quick()
        .status(StatusCode::CONFLICT, StatusClass::Never)
        .status(StatusCode::CONFLICT, StatusClass::Conditional)
        .status(StatusCode::SERVICE_UNAVAILABLE, StatusClass::Never)
        .status(StatusCode::ACCEPTED, StatusClass::Retry)
        .build()
        .unwrap();
    assert_eq!(arrivals(&retry, "GET", false, 409).await, 3);
    assert_eq!(arrivals(&retry, "POST", false, 409).await, 1);
    assert_eq!(arrivals(&retry, "GET", false, 503).await, 1);
    assert_eq!(arrivals(&retry, "GET", false, 202).await, 3);
    assert_eq!(arrivals(&retry, "GET", false, 504).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_409_is_retried_only_with_a_key_after_an_unclear_attempt() {
    // The first attempt failed here, but the server is still processing it.
    let still_running = |first: fn() -> Reply| {
        Server::new(move |index| match index {
            0 => first(),
            1 => respond(409),
            _ => respond(201),
        })
    };
    let unclear: [fn() -> Reply; 3] = [
        || respond(500),
        || respond(503),
        || Reply::fail(ErrorKind::ConnectionReset),
    ];
    for first in unclear {
        let server = still_running(first);
        let client = server.client(quick().build().unwrap());
        let response = client.post(URL).idempotency_key("order-1").send().await;
        assert_eq!(response.unwrap().status(), 201);
        assert_eq!(server.count(), 3);

        let server = still_running(first);
        let client = server.client(quick().build().unwrap());
        let response = client.put(URL).send().await.unwrap();
        assert_eq!(response.status(), 409);
        assert_eq!(server.count(), 2);
    }

    // A 429 is clear: the server did not start to process the request.
    let server = still_running(|| respond(429));
    let client = server.client(quick().build().unwrap());
    let response = client.post(URL).idempotency_key("order-1").send().await;
    assert_eq!(response.unwrap().status(), 409);
    assert_eq!(server.count(), 2);

    // But it does not make an earlier unclear attempt clear.
    let server = Server::new(|index| match index {
        0 => Reply::fail(ErrorKind::ConnectionReset),
        1 => respond(429),
        2 => respond(409),
        _ => respond(201),
    });
    let client = server.client(quick().max_retries(3).build().unwrap());
    let response = client.post(URL).idempotency_key("order-1").send().await;
    assert_eq!(response.unwrap().status(), 201);
    assert_eq!(server.count(), 4);

    // The user's own class for 409 takes precedence.
    let server = still_running(|| respond(500));
    let retry = quick().status(StatusCode::CONFLICT, StatusClass::Never);
    let client = server.client(retry.build().unwrap());
    let response = client.post(URL).idempotency_key("order-1").send().await;
    assert_eq!(response.unwrap().status(), 409);
    assert_eq!(server.count(), 2);

    // The first response may be a genuine 409, which is not retried.
    let server = Server::statuses([409]);
    let client = server.client(quick().build().unwrap());
    let response = client.post(URL).idempotency_key("order-1").send().await;
    assert_eq!(response.unwrap().status(), 409);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_server_can_veto_a_retry_and_allow_one() {
    for (status, header, value, method, count, stop) in [
        (
            503,
            "x-should-retry",
            "false",
            Method::GET,
            1,
            StopReason::ServerVeto,
        ),
        (
            503,
            "stripe-should-retry",
            "false",
            Method::GET,
            1,
            StopReason::ServerVeto,
        ),
        (
            503,
            "x-should-retry",
            "true",
            Method::GET,
            3,
            StopReason::RetriesExhausted,
        ),
        (
            400,
            "x-should-retry",
            "true",
            Method::GET,
            3,
            StopReason::RetriesExhausted,
        ),
        (
            400,
            "stripe-should-retry",
            "true",
            Method::GET,
            3,
            StopReason::RetriesExhausted,
        ),
        (
            400,
            "x-should-retry",
            "false",
            Method::GET,
            1,
            StopReason::NotRetryable,
        ),
        (
            400,
            "x-should-retry",
            "true",
            Method::POST,
            1,
            StopReason::NotRetryable,
        ),
        (
            503,
            "x-should-retry",
            "true",
            Method::POST,
            1,
            StopReason::NotIdempotent,
        ),
        (
            200,
            "x-should-retry",
            "true",
            Method::GET,
            1,
            StopReason::Succeeded,
        ),
        (
            200,
            "x-should-retry",
            "false",
            Method::GET,
            1,
            StopReason::Succeeded,
        ),
        (
            304,
            "x-should-retry",
            "true",
            Method::GET,
            1,
            StopReason::Succeeded,
        ),
    ] {
        let server = Server::new(move |_| respond_with(status, &[(header, value)]));
        let client = server.client(quick().build().unwrap());
        let response = client.request(method.clone(), URL).send().await.unwrap();
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(
            (server.count(), report.stop_reason()),
            (count, stop),
            "{method} {status} {header}: {value}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_veto_counts_for_any_status_that_would_be_retried() {
    let server = Server::new(|_| respond_with(202, &[("x-should-retry", "false")]));
    let retry = quick().status(StatusCode::ACCEPTED, StatusClass::Retry);
    let client = server.client(retry.build().unwrap());
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(server.count(), 1);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::ServerVeto);
}

#[tokio::test(start_paused = true)]
async fn a_hint_never_makes_a_retry() {
    for status in [200, 301, 403, 404, 413, 418] {
        let server = Server::new(move |_| {
            respond_with(
                status,
                &[("retry-after", "1"), ("x-ratelimit-remaining", "0")],
            )
        });
        let client = server.client(quick().build().unwrap());
        let response = client.get(URL).send().await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(server.count(), 1, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_classifier_sees_each_attempt_before_the_tables_apply() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let retry = quick()
        .status(StatusCode::IM_A_TEAPOT, StatusClass::Never)
        .classify_fn(move |attempt| {
            log.lock().unwrap().push(format!(
                "{} {} {} {}",
                attempt.attempt(),
                attempt.method(),
                attempt.url(),
                attempt.outcome(),
            ));
            match attempt.status() {
                Some(status) if status == 418 => {
                    assert_eq!(attempt.headers()?.get("x-kind")?, "short and stout");
                    assert!(attempt.error().is_none());
                    Some(StatusClass::Conditional)
                }
                Some(_) => None,
                None => {
                    assert!(attempt.headers().is_none());
                    assert!(attempt.error().is_some());
                    Some(StatusClass::Never)
                }
            }
        })
        .build()
        .unwrap();
    let server = Server::new(|index| match index {
        0 => respond_with(418, &[("x-kind", "short and stout")]),
        1 => respond(503),
        _ => Reply::fail(ErrorKind::ConnectionReset),
    });
    server.client(retry).get(URL).send().await.unwrap_err();
    assert_eq!(server.count(), 3);
    assert_eq!(
        *seen.lock().unwrap(),
        [
            format!("1 GET {URL} 418"),
            format!("2 GET {URL} 503"),
            format!("3 GET {URL} reset"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_class_from_a_function_does_not_make_a_post_repeatable() {
    for (class, without_key, count) in [
        (StatusClass::Conditional, false, 1),
        (StatusClass::Conditional, true, 1),
        (StatusClass::Retry, false, 1),
        (StatusClass::Retry, true, 3),
    ] {
        let mut builder = quick().classify_fn(move |_| Some(class));
        if without_key {
            builder = builder.retry_without_key(true);
        }
        let server = Server::statuses([500]);
        let client = server.client(builder.build().unwrap());
        client.post(URL).send().await.unwrap();
        assert_eq!(server.count(), count, "{class:?}, {without_key}");
    }
}
