//! The main promise, over HTTP.

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::{IdempotencyKey, RequestBuilderExt, RetryMiddleware, RetryReport, StopReason};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::stacks::{MS, doubling, plain_client};

const MAX: u32 = 4;

fn client() -> ClientWithMiddleware {
    let backoff = doubling(MS);
    let retry = RetryMiddleware::builder().max_retries(MAX).backoff(backoff);
    let client = plain_client();
    ClientBuilder::new(client)
        .with(retry.build().unwrap())
        .build()
}

/// Responds with 503 this many times, then with 200.
async fn flaky(failures: u32) -> MockServer {
    let server = MockServer::start().await;
    if failures > 0 {
        let down = ResponseTemplate::new(503).set_body_string("still down");
        Mock::given(any())
            .respond_with(down)
            .up_to_n_times(u64::from(failures))
            .mount(&server)
            .await;
    }
    let up = ResponseTemplate::new(200).set_body_string("here you are");
    Mock::given(any()).respond_with(up).mount(&server).await;
    server
}

async fn arrivals(server: &MockServer) -> Vec<wiremock::Request> {
    server.received_requests().await.unwrap()
}

#[tokio::test]
async fn after_n_failures_the_next_attempt_succeeds() {
    for failures in 0..=MAX {
        let server = flaky(failures).await;
        let response = client().get(server.uri()).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.retries(), failures);
        assert_eq!(report.stop_reason(), StopReason::Succeeded);
        assert_eq!(response.text().await.unwrap(), "here you are");
        assert_eq!(arrivals(&server).await.len() as u32, failures + 1);
    }
}

/// `proof/benches/call_cost.rs` relies on this for real responses: they already have a table of extensions,
/// with room for the report.
#[tokio::test]
async fn a_response_from_a_socket_has_two_extensions_without_us() {
    let server = flaky(0).await;
    let bare = plain_client();
    let response = bare.get(server.uri()).send().await.unwrap();
    assert_eq!(response.extensions().len(), 2);
}

#[tokio::test]
async fn one_failure_too_many_returns_the_last_response_and_body() {
    let server = flaky(MAX + 1).await;
    let response = client().get(server.uri()).send().await.unwrap();
    assert_eq!(response.status(), 503);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.retries(), MAX);
    assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
    assert_eq!(response.text().await.unwrap(), "still down");
    assert_eq!(arrivals(&server).await.len() as u32, MAX + 1);
}

#[tokio::test]
async fn a_request_with_a_final_response_arrives_once() {
    for status in [400, 401, 403, 404, 422] {
        let server = MockServer::start().await;
        let refusal = ResponseTemplate::new(status).set_body_string("no");
        Mock::given(any())
            .respond_with(refusal)
            .mount(&server)
            .await;
        let response = client().get(server.uri()).send().await.unwrap();
        assert_eq!(response.status(), status);
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.stop_reason(), StopReason::NotRetryable);
        assert_eq!(response.text().await.unwrap(), "no");
        assert_eq!(arrivals(&server).await.len(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_post_without_a_key_arrives_once() {
    let server = flaky(1).await;
    let response = client()
        .post(server.uri())
        .body("order")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::NotIdempotent);
    assert_eq!(arrivals(&server).await.len(), 1);
}

#[tokio::test]
async fn a_post_with_a_key_is_retried_byte_for_byte() {
    let server = flaky(3).await;
    let key = IdempotencyKey::random();
    let request = client().post(server.uri()).idempotency_key(key.clone());
    let response = request.body("order").send().await.unwrap();
    assert_eq!(response.status(), 200);
    let arrivals = arrivals(&server).await;
    assert_eq!(arrivals.len(), 4);
    for arrival in arrivals {
        assert_eq!(arrival.headers["idempotency-key"], key.as_str());
        assert_eq!(arrival.body, b"order");
    }
}
