//! What needs a real connection: connections that break, fall silent or are never established, and
//! responses that break off.

use std::net::SocketAddr;
use std::time::Duration;

use http::Version;
use reqwest::Response;
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest_middleware::{ClientWithMiddleware, Error, RequestBuilder};
use reqwest_steady::dead_letter::Secrets;
use reqwest_steady::observe::{AttemptOutcome, FailureKind};
use reqwest_steady::{ReportSlot, RequestBuilderExt, RetryReport, SteadyError, StopReason};
use tokio::net::TcpListener;

use crate::support::raw::{Reply, Server, Then, client, direct, in_time, reply, respond, retry};

/// Short for a test, and long for a response over loopback.
const PATIENCE: Duration = Duration::from_millis(800);

const LENGTH_100: &str = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n";
const HALF_A_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-le";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

fn plain() -> ClientWithMiddleware {
    client(direct(), retry())
}

async fn send(request: RequestBuilder) -> Result<Response, Error> {
    in_time(request.send()).await
}

async fn text(response: Response) -> reqwest::Result<String> {
    in_time(response.text()).await
}

fn failed(kind: FailureKind) -> AttemptOutcome {
    AttemptOutcome::Failure(kind)
}

fn status(code: u16) -> AttemptOutcome {
    AttemptOutcome::Status(code.try_into().unwrap())
}

fn outcomes(report: &RetryReport) -> Vec<AttemptOutcome> {
    let attempts = report.attempts();
    attempts.map(|attempt| attempt.outcome()).collect()
}

fn report_of(response: &Response) -> &RetryReport {
    RetryReport::of(response).expect("every response has a report")
}

/// The request, and the slot for its report.
fn reported(request: RequestBuilder) -> (RequestBuilder, ReportSlot) {
    let slot = ReportSlot::new();
    (request.report_to(&slot), slot)
}

/// Fails the first two requests like this, and responds to the third.
async fn failing_twice(failure: impl Fn() -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |index| match index {
        0 | 1 => failure(),
        _ => respond(200, "whole"),
    })
    .await
}

/// After a failure that does not show whether the request was processed, a GET is retried. A POST
/// without a key arrives once, whatever options are on.
async fn is_unclear(failure: fn() -> Reply, kind: FailureKind) {
    let server = failing_twice(failure).await;
    let response = send(plain().get(server.url())).await.unwrap();
    let seen = [failed(kind), failed(kind), status(200)];
    assert_eq!(outcomes(report_of(&response)), seen);
    assert_eq!(text(response).await.unwrap(), "whole");
    assert_eq!(server.count(), 3);
    assert_eq!(server.connections(), 3);

    let opted = || client(direct(), retry().retry_unsent(true).retry_without_key(true));
    for client in [plain(), opted()] {
        let server = failing_twice(failure).await;
        let (post, slot) = reported(client.post(server.url()).body("order"));
        let error = send(post).await.unwrap_err();
        assert!(matches!(error, Error::Reqwest(_)), "{error:?}");
        assert_eq!(error.url().unwrap().as_str(), server.url());
        let report = slot.get().unwrap();
        assert_eq!(outcomes(&report), [failed(kind)]);
        assert_eq!(report.stop_reason(), StopReason::NotIdempotent);
        assert_eq!(server.count(), 1);
        assert_eq!(server.requests()[0].body, b"order");
    }
}

#[tokio::test]
async fn a_reset_before_the_response_is_unclear() {
    is_unclear(|| reply("", Then::Reset), FailureKind::Reset).await;
}

#[tokio::test]
async fn a_connection_closed_without_a_response_is_unclear() {
    is_unclear(|| reply("", Then::Close), FailureKind::Incomplete).await;
}

#[tokio::test]
async fn half_the_response_headers_are_unclear() {
    is_unclear(|| reply(HALF_A_HEAD, Then::Close), FailureKind::Incomplete).await;
}

#[tokio::test]
async fn a_reset_within_the_response_headers_is_unclear() {
    // The failure kind depends on what the client reads first.
    let server = failing_twice(|| reply(HALF_A_HEAD, Then::Reset)).await;
    let response = send(plain().get(server.url())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.count(), 3);

    let server = failing_twice(|| reply(HALF_A_HEAD, Then::Reset)).await;
    send(plain().post(server.url())).await.unwrap_err();
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_post_on_a_reused_connection_that_closes_arrives_once() {
    let server = Server::start(|index| match index {
        0 => respond(200, "warm"),
        _ => reply("", Then::Close),
    })
    .await;
    let client = client(direct(), retry().retry_unsent(true));
    let response = send(client.get(server.url())).await.unwrap();
    assert_eq!(text(response).await.unwrap(), "warm");

    send(client.post(server.url()).body("order"))
        .await
        .unwrap_err();
    assert_eq!(server.count(), 2);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_keyed_post_is_retried_with_the_same_key() {
    let server = failing_twice(|| reply("", Then::Reset)).await;
    let post = plain().post(server.url()).body("order");
    let response = send(post.idempotency_key("order-4711")).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.count(), 3);
    for request in server.requests() {
        assert_eq!(request.target(), "POST /orders");
        assert_eq!(request.header("idempotency-key"), Some("order-4711"));
        assert_eq!(request.body, b"order");
    }
}

#[tokio::test]
async fn without_a_key_a_503_may_be_opted_into_but_not_a_reset() {
    let opted = || client(direct(), retry().retry_without_key(true));
    let server = failing_twice(|| respond(503, "later")).await;
    let response = send(opted().post(server.url()).body("order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.count(), 3);

    let server = failing_twice(|| reply("", Then::Reset)).await;
    send(opted().post(server.url()).body("order"))
        .await
        .unwrap_err();
    assert_eq!(server.count(), 1);
}

// Silence.

#[tokio::test]
async fn silence_before_the_headers_ends_with_the_attempt() {
    let patient = client(direct(), retry().attempt_timeout(PATIENCE));
    let server = Server::start(|index| match index {
        0 => reply("", Then::Silence),
        _ => respond(200, "whole"),
    })
    .await;
    let response = send(patient.get(server.url())).await.unwrap();
    let seen = [failed(FailureKind::Timeout), status(200)];
    assert_eq!(outcomes(report_of(&response)), seen);
    assert_eq!(server.count(), 2);

    let server = Server::start(|_| reply("", Then::Silence)).await;
    let get = patient.get(server.url()).max_retries(1);
    let error = send(get).await.unwrap_err();
    let timed_out = SteadyError::of(&error).expect("the middleware cut it off");
    assert!(!timed_out.is_deadline());
    assert_eq!(timed_out.time_limit().unwrap(), PATIENCE);
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn a_post_into_silence_arrives_once() {
    let server = Server::start(|_| reply("", Then::Silence)).await;
    let patient = client(
        direct(),
        retry().retry_unsent(true).attempt_timeout(PATIENCE),
    );
    let (post, slot) = reported(patient.post(server.url()).body("order"));
    let error = send(post).await.unwrap_err();
    assert!(SteadyError::of(&error).is_some_and(SteadyError::is_timeout));
    assert_eq!(slot.get().unwrap().stop_reason(), StopReason::NotIdempotent);
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn the_timeout_of_reqwest_comes_back_as_it_is() {
    let server = Server::start(|_| reply("", Then::Silence)).await;
    let get = plain().get(server.url()).timeout(PATIENCE).max_retries(1);
    let error = send(get).await.unwrap_err();
    assert!(matches!(error, Error::Reqwest(_)));
    assert!(error.is_timeout());
    assert_eq!(error.url().unwrap().as_str(), server.url());
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn an_attempt_timeout_covers_only_the_headers() {
    let server = Server::start(|_| reply(LENGTH_100, Then::Silence)).await;
    let patient = client(direct(), retry().attempt_timeout(PATIENCE));
    let response = send(patient.get(server.url())).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = tokio::time::timeout(PATIENCE * 5 / 4, response.bytes()).await;
    assert!(
        body.is_err(),
        "the attempt's timeout cut the body: {body:?}"
    );
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_buffered_response_that_falls_silent_is_retried() {
    let patient = client(direct(), retry().attempt_timeout(PATIENCE));
    let script = |index| match index {
        0 => reply(LENGTH_100, Then::Silence),
        _ => respond(200, "whole"),
    };
    let server = Server::start(script).await;
    let get = patient.get(server.url()).buffer_response(1024);
    let response = send(get).await.unwrap();
    let seen = [failed(FailureKind::Timeout), status(200)];
    assert_eq!(outcomes(report_of(&response)), seen);
    assert_eq!(text(response).await.unwrap(), "whole");
    assert_eq!(server.count(), 2);

    let server = Server::start(script).await;
    let post = patient.post(server.url()).buffer_response(1024);
    let error = send(post).await.unwrap_err();
    assert!(SteadyError::of(&error).is_some_and(SteadyError::is_timeout));
    assert_eq!(server.count(), 1);
}

// Bodies of responses.

/// Responses whose connection closes in the middle of the body.
fn cut_bodies() -> [fn() -> Reply; 3] {
    [
        || reply(format!("{LENGTH_100}half"), Then::Close),
        || reply(format!("{CHUNKED}4\r\nhalf\r\n"), Then::Close),
        || reply(format!("{CHUNKED}64\r\nhalf"), Then::Close),
    ]
}

/// A reset may overtake the bytes written before it, even the headers.
fn reset_body() -> Reply {
    reply(format!("{LENGTH_100}half"), Then::Reset)
}

#[tokio::test]
async fn a_body_cut_short_fails_where_it_is_read() {
    for cut in cut_bodies() {
        let server = failing_twice(cut).await;
        let response = send(plain().get(server.url())).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(report_of(&response).stop_reason(), StopReason::Succeeded);
        text(response).await.unwrap_err();
        assert_eq!(server.count(), 1);
    }
}

#[tokio::test]
async fn a_buffered_body_cut_short_is_retried() {
    for cut in cut_bodies()
        .into_iter()
        .chain([reset_body as fn() -> Reply])
    {
        let server = failing_twice(cut).await;
        let get = plain().get(server.url()).buffer_response(1024);
        let response = send(get).await.unwrap();
        assert_eq!(report_of(&response).retries(), 2);
        assert_eq!(text(response).await.unwrap(), "whole");
        assert_eq!(server.count(), 3);
    }
}

#[tokio::test]
async fn a_post_whose_buffered_response_is_cut_short_arrives_once() {
    for cut in cut_bodies()
        .into_iter()
        .chain([reset_body as fn() -> Reply])
    {
        let server = failing_twice(cut).await;
        let eager = client(direct(), retry().retry_unsent(true).retry_without_key(true));
        let post = eager.post(server.url()).body("order");
        let (post, slot) = reported(post.buffer_response(1024));
        let error = send(post).await.unwrap_err();
        assert!(matches!(error, Error::Reqwest(_)), "{error:?}");
        assert_eq!(slot.get().unwrap().stop_reason(), StopReason::NotIdempotent);
        assert_eq!(server.count(), 1);
    }
}

#[tokio::test]
async fn a_body_over_the_buffers_limit_is_a_stream_of_the_whole() {
    let body: String = ('a'..='z').cycle().take(300_000).collect();
    let sent = body.clone();
    let server = Server::start(move |_| respond(200, &sent)).await;
    let get = plain().get(server.url()).buffer_response(1000);
    let response = send(get).await.unwrap();
    assert_eq!(report_of(&response).retries(), 0);
    assert!(text(response).await.unwrap() == body);
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_body_cut_short_beyond_the_buffers_limit_is_not_retried() {
    let server = failing_twice(|| reply(format!("{LENGTH_100}half"), Then::Close)).await;
    let get = plain().get(server.url()).buffer_response(3);
    let response = send(get).await.unwrap();
    assert_eq!(response.status(), 200);
    text(response).await.unwrap_err();
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_buffered_response_is_unchanged() {
    const RESPONSE: &str = "HTTP/1.0 203 Sure\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
                          content-length: 5\r\n\r\nwhole";
    // The body exceeds the second limit, so it is returned as a stream.
    for limit in [5, 4] {
        let server = Server::start(|index| match index {
            0 => respond(503, ""),
            1 => reply(
                "HTTP/1.1 302 Found\r\nlocation: /final\r\ncontent-length: 0\r\n\r\n",
                Then::KeepOpen,
            ),
            _ => reply(RESPONSE, Then::Close),
        })
        .await;
        let get = client(following(), retry()).get(server.url());
        let response = send(get.buffer_response(limit)).await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
        assert_eq!(response.remote_addr(), Some(address));
        assert_eq!(response.url().path(), "/final");
        assert_eq!(response.status(), 203);
        assert_eq!(response.version(), Version::HTTP_10);
        let cookies = response.headers().get_all("set-cookie");
        assert_eq!(cookies.iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!(response.content_length(), Some(5));
        assert_eq!(outcomes(report_of(&response)), [status(503), status(203)]);
        assert_eq!(text(response).await.unwrap(), "whole");
        let requests = server.requests();
        let targets: Vec<_> = requests.iter().map(|request| request.target()).collect();
        assert_eq!(targets, ["GET /orders", "GET /orders", "GET /final"]);
    }
}

// Responses that are discarded.

/// Sends `refusal` to three requests, and 200 to the fourth. Returns the number of connections.
async fn connections_for_four(refusal: impl Fn() -> Reply + Send + Sync + 'static) -> usize {
    let server = Server::start(move |index| match index {
        0..=2 => refusal(),
        _ => respond(200, "whole"),
    })
    .await;
    let response = send(plain().get(server.url())).await.unwrap();
    let seen = [status(503), status(503), status(503), status(200)];
    assert_eq!(outcomes(report_of(&response)), seen);
    assert_eq!(text(response).await.unwrap(), "whole");
    assert_eq!(server.count(), 4);
    server.connections()
}

#[tokio::test]
async fn a_refusal_with_a_body_leaves_its_connection_usable() {
    let body = "x".repeat(100_000);
    let connections = connections_for_four(move || respond(503, &body)).await;
    assert_eq!(connections, 1);
}

#[tokio::test]
async fn a_refusal_with_a_chunked_body_leaves_its_connection_usable() {
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
    let head = "HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n";
    let bytes = format!("{head}{}0\r\n\r\n", chunk.repeat(100));
    let connections = connections_for_four(move || reply(bytes.clone(), Then::KeepOpen)).await;
    assert_eq!(connections, 1);
}

#[tokio::test]
async fn a_refusal_without_end_does_not_hold_up_the_retry() {
    let head = "HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000)).into_bytes();
    let endless = move || reply(head, Then::Repeat(chunk.clone(), Duration::ZERO));
    assert_eq!(connections_for_four(endless).await, 4);
}

#[tokio::test]
async fn a_refusal_that_drips_does_not_hold_up_the_retry() {
    let head = "HTTP/1.1 503 Busy\r\ncontent-length: 1000\r\n\r\n";
    let drip = Then::Repeat(b"x".to_vec(), Duration::from_millis(20));
    assert_eq!(
        connections_for_four(move || reply(head, drip.clone())).await,
        4
    );
}

#[tokio::test]
async fn a_refusal_of_megabytes_is_not_read_to_its_end() {
    let body = "x".repeat(10_000_000);
    let connections = connections_for_four(move || respond(503, &body)).await;
    assert_eq!(connections, 4);
}

#[tokio::test]
async fn a_refusal_that_breaks_off_is_a_refusal() {
    let half = "HTTP/1.1 503 Busy\r\ncontent-length: 1000\r\n\r\nhalf";
    let connections = connections_for_four(move || reply(half, Then::Close)).await;
    assert_eq!(connections, 4);
}

// No connection.

/// An address where no server listens.
async fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/orders", listener.local_addr().unwrap())
}

#[tokio::test]
async fn a_refused_connection_is_retried_and_its_error_unchanged() {
    let url = refusing().await;
    let (get, slot) = reported(plain().get(&url).max_retries(2));
    let error = send(get).await.unwrap_err();
    assert!(error.is_connect());
    assert_eq!(error.url().unwrap().as_str(), url);
    let report = slot.get().unwrap();
    assert_eq!(outcomes(&report), [failed(FailureKind::Connect); 3]);
    assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
}

#[tokio::test]
async fn a_post_to_a_refused_port_is_retried_only_if_opted_into() {
    let url = refusing().await;
    let (post, slot) = reported(plain().post(&url).body("order").max_retries(2));
    assert!(send(post).await.unwrap_err().is_connect());
    let report = slot.get().unwrap();
    assert_eq!(outcomes(&report), [failed(FailureKind::Connect)]);
    assert_eq!(report.stop_reason(), StopReason::NotIdempotent);

    let eager = client(direct(), retry().retry_unsent(true));
    let (post, slot) = reported(eager.post(&url).body("order").max_retries(2));
    assert!(send(post).await.unwrap_err().is_connect());
    let report = slot.get().unwrap();
    assert_eq!(outcomes(&report), [failed(FailureKind::Connect); 3]);
    assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
}

struct NoSuchName;

impl Resolve for NoSuchName {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(async { Err("no such name".into()) })
    }
}

#[tokio::test]
async fn an_unknown_host_name_is_looked_up_again() {
    let url = "http://does-not-exist.invalid/orders";
    let lost = || direct().dns_resolver(NoSuchName);
    let (get, slot) = reported(client(lost(), retry()).get(url).max_retries(2));
    let error = send(get).await.unwrap_err();
    assert!(error.is_connect());
    assert_eq!(error.url().unwrap().as_str(), url);
    let report = slot.get().unwrap();
    assert_eq!(outcomes(&report), [failed(FailureKind::Dns); 3]);
    assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);

    for (retry, attempts) in [(retry(), 1), (retry().retry_unsent(true), 3)] {
        let (post, slot) = reported(client(lost(), retry).post(url).max_retries(2));
        assert!(send(post).await.unwrap_err().is_connect());
        assert_eq!(slot.get().unwrap().attempts().count(), attempts);
    }
}

// Failures that a retry cannot change.

#[tokio::test]
async fn an_unsupported_scheme_is_final() {
    let (get, slot) = reported(plain().get("ftp://127.0.0.1/orders"));
    let error = send(get).await.unwrap_err();
    assert!(error.is_builder());
    let report = slot.get().unwrap();
    assert_eq!(outcomes(&report), [failed(FailureKind::Builder)]);
    assert_eq!(report.stop_reason(), StopReason::NotRetryable);
}

#[tokio::test]
async fn a_redirect_loop_is_final() {
    let found = "HTTP/1.1 302 Found\r\nlocation: /orders\r\ncontent-length: 0\r\n\r\n";
    let server = Server::start(move |_| reply(found, Then::KeepOpen)).await;
    let inner = direct().redirect(reqwest::redirect::Policy::limited(3));
    let (get, slot) = reported(client(inner, retry()).get(server.url()));
    let error = send(get).await.unwrap_err();
    assert!(error.is_redirect());
    let report = slot.get().unwrap();
    assert_eq!(outcomes(&report), [failed(FailureKind::Redirect)]);
    assert_eq!(report.stop_reason(), StopReason::NotRetryable);
    assert_eq!(server.count(), 4);
}

#[tokio::test]
async fn a_response_that_is_not_http_is_final() {
    let server = failing_twice(|| reply("not http at all\r\n\r\n", Then::Close)).await;
    let (get, slot) = reported(plain().get(server.url()));
    let error = send(get).await.unwrap_err();
    assert_eq!(error.url().unwrap().as_str(), server.url());
    let report = slot.get().unwrap();
    assert_eq!(outcomes(&report), [failed(FailureKind::Other)]);
    assert_eq!(report.stop_reason(), StopReason::NotRetryable);
    assert_eq!(server.count(), 1);
}

// Redirects, which reqwest follows within one attempt by default. A failure after a redirect
// does not show whether the redirected POST was processed.

fn redirect(location: &str) -> Reply {
    let head = format!("HTTP/1.1 303 See Other\r\nlocation: {location}\r\n");
    reply(head + "content-length: 0\r\n\r\n", Then::KeepOpen)
}

/// A client that follows redirects, as reqwest does by default.
fn following() -> reqwest::ClientBuilder {
    direct().redirect(reqwest::redirect::Policy::default())
}

/// Accepts every POST with a 303 to the same URL, where every GET fails.
async fn accepting_and_failing() -> Server {
    Server::start(|index| match index % 2 {
        0 => redirect("/orders"),
        _ => respond(503, "later"),
    })
    .await
}

fn targets(server: &Server) -> Vec<String> {
    let requests = server.requests();
    let targets = requests.iter().map(|request| request.target().to_owned());
    targets.collect()
}

#[test]
fn clients_that_follow_redirects_get_no_option_for_bare_posts() {
    for builder in [retry().retry_without_key(true), retry().retry_unsent(true)] {
        let refused = builder.client_follows_redirects(true).build();
        let error = refused.unwrap_err().to_string();
        assert!(
            error.contains("set `client_follows_redirects` to false"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_post_accepted_with_a_303_to_its_own_url_arrives_once() {
    for retry in [
        retry().retry_without_key(true),
        retry().retry_without_key(true).retry_unsent(true),
    ] {
        let server = accepting_and_failing().await;
        let careful = client(direct(), retry);
        let response = send(careful.post(server.url()).body("order"))
            .await
            .unwrap();
        assert_eq!(response.status(), 303);
        assert_eq!(report_of(&response).stop_reason(), StopReason::Succeeded);
        assert_eq!(targets(&server), ["POST /orders"]);
    }
}

// This is why the options are refused for such clients. If reqwest ever reports such a redirect, this test fails.
#[tokio::test]
async fn a_redirect_to_the_same_url_is_invisible() {
    let server = accepting_and_failing().await;
    let misled = client(following(), retry().retry_without_key(true).max_retries(2));
    let response = send(misled.post(server.url()).body("order")).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.url().as_str(), server.url());
    assert_eq!(targets(&server), ["POST /orders", "GET /orders"].repeat(3));
}

#[tokio::test]
async fn a_keyed_post_may_be_redirected_to_its_own_url() {
    let server = accepting_and_failing().await;
    let retry = retry().client_follows_redirects(true).max_retries(2);
    let post = client(following(), retry).post(server.url()).body("order");
    let response = send(post.idempotency_key("order-4711")).await.unwrap();
    assert_eq!(response.status(), 503);
    let requests = server.requests();
    let posts = requests
        .iter()
        .filter(|it| it.target() == "POST /orders")
        .map(|post| post.header("idempotency-key"));
    assert_eq!(posts.collect::<Vec<_>>(), [Some("order-4711"); 3]);
}

#[tokio::test]
async fn a_post_redirected_to_a_refused_port_arrives_once() {
    let nowhere = refusing().await;
    let server = Server::start(move |_| redirect(&nowhere)).await;
    let careful = client(direct(), retry().retry_unsent(true));
    let response = send(careful.post(server.url()).body("order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 303);
    assert_eq!(server.count(), 1);
}

// If the setting does not match the client, a redirect to another URL is still detected.
#[tokio::test]
async fn a_post_redirected_to_a_refusal_arrives_once() {
    let server = Server::start(|index| match index {
        0 => redirect("/receipt"),
        _ => respond(503, "later"),
    })
    .await;
    let eager = client(following(), retry().retry_without_key(true));
    let response = send(eager.post(server.url()).body("order")).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(
        report_of(&response).stop_reason(),
        StopReason::NotIdempotent
    );
    assert_eq!(targets(&server), ["POST /orders", "GET /receipt"]);
}

#[tokio::test]
async fn no_setting_takes_over_a_header_that_http_acts_upon() {
    let reserved = [
        "content-length",
        "Transfer-Encoding",
        "connection",
        "host",
        "expect",
        "authorization",
        "Cookie",
        "content-type",
        "if-match",
        // Credentials, recognised by their names.
        "api-key",
        "apikey",
        "dpop",
        "private-token",
        "x-access-token",
        "x-amz-security-token",
        "x-auth-key",
        "x-csrf-token",
        "x-goog-api-key",
        "x-vault-token",
        // Headers that gateways act upon.
        "sec-websocket-key",
        "X-HTTP-Method-Override",
        "x-original-url",
        "x-real-ip",
        "x-rewrite-url",
    ];
    for name in reserved {
        for builder in [
            retry().attempt_header(name),
            retry().idempotency_header(name),
        ] {
            let error = match builder.build() {
                Err(error) => error.to_string(),
                Ok(retry) => {
                    let server = Server::start(|_| respond(200, "")).await;
                    let inner = direct().build().unwrap();
                    let client = reqwest_middleware::ClientBuilder::new(inner)
                        .with(retry)
                        .build();
                    let put = client.put(server.url()).idempotency_key("1");
                    let sent = put.body("a body of thirty-three characters").send();
                    let sent = tokio::time::timeout(PATIENCE, sent).await;
                    panic!("{name}: {sent:?}, arrived: {:?}", server.requests());
                }
            };
            assert!(error.contains(&format!("({name:?})")), "{error}");
        }
    }
}

#[test]
fn settings_accept_the_names_that_servers_use_for_keys() {
    for name in [
        "Cko-Idempotency-Key",
        "Idempotency-Key",
        "opc-retry-token",
        "PayPal-Request-Id",
        "X-Amz-Client-Token",
        "x-client-token",
        "X-Idempotency-Key",
        "x-ms-client-request-id",
        "X-Order-Key",
        "x-request-id",
    ] {
        let built = retry().idempotency_header(name).build();
        assert!(built.is_ok(), "{:?}", built.err());
    }
    assert!(retry().attempt_header("X-Attempt").build().is_ok());

    // A server may have a name that looks like a credential to this crate.
    let odd = || retry().idempotency_header("X-Posting-Key");
    let refused = odd().build().unwrap_err().to_string();
    assert!(refused.contains("(\"X-Posting-Key\")"), "{refused}");
    assert!(
        refused.contains("add it to retry.secrets.keep"),
        "{refused}"
    );
    let kept = Secrets::default().keep("x-posting-key");
    assert!(odd().secrets(kept.clone()).build().is_ok());
    assert!(
        retry()
            .secrets(kept)
            .idempotency_header("X-Posting-Key")
            .build()
            .is_ok()
    );
}

#[test]
fn an_attempt_header_is_never_the_idempotency_key() {
    // A request may set the default header by hand, whatever header this client uses.
    for (key, attempt) in [
        ("Idempotency-Key", "idempotency-key"),
        ("PayPal-Request-Id", "Idempotency-Key"),
        ("PayPal-Request-Id", "paypal-request-id"),
    ] {
        let built = retry().idempotency_header(key).attempt_header(attempt);
        let refused = built.build().unwrap_err().to_string();
        let value = format!("attempt_header ({attempt:?})");
        assert!(refused.starts_with(&value), "{refused}");
    }
}

#[tokio::test]
async fn a_body_built_anew_keeps_its_length() {
    for built in [
        || reqwest::Body::from("a body"),
        || reqwest::Body::wrap(String::from("a body")),
    ] {
        let server = failing_twice(|| respond(503, "")).await;
        let request = plain().put(server.url()).body_with(built);
        assert_eq!(send(request).await.unwrap().status(), 200);
        assert_eq!(server.count(), 3);
        for request in server.requests() {
            assert_eq!(request.header("content-length"), Some("6"));
            assert_eq!(request.header("transfer-encoding"), None);
            assert_eq!(request.body, b"a body");
        }
    }
}
