//! Programs for reqwest-retry and their translations, with the same responses. Checks the migration page of the guide.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream;
use http::Extensions;
use reqwest::{Body, Request, Response, StatusCode};
use reqwest_middleware::{
    ClientBuilder, ClientWithMiddleware, Error, Middleware, Next, RequestBuilder, Result,
};
use reqwest_retry::policies::ExponentialBackoff;
use reqwest_retry::{
    RetryError, RetryTransientMiddleware, Retryable, RetryableStrategy, default_on_request_failure,
};
use reqwest_steady::testing::{Reply, ScriptedServer};
use reqwest_steady::{
    Backoff, Budget, Jitter, ReportSlot, RequestBuilderExt, RetryMiddleware,
    RetryMiddlewareBuilder, RetryReport, StatusClass, StopReason,
};

use crate::support::{raw, scripted};

const URL: &str = "https://api.example.com/orders";

/// The common program: the example in the README of reqwest-retry.
fn theirs() -> RetryTransientMiddleware<ExponentialBackoff> {
    let policy = ExponentialBackoff::builder().build_with_max_retries(3);
    RetryTransientMiddleware::new_with_policy(policy)
}

/// The translation that the guide recommends.
fn ours() -> RetryMiddleware {
    RetryMiddleware::builder().max_retries(3).build().unwrap()
}

/// The translation that changes the least.
fn as_before() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder()
        .max_retries(3)
        .backoff(Backoff::exponential(Duration::from_secs(1)).cap(Duration::from_secs(30 * 60)))
        .retry_window(Duration::MAX)
        .budget(Budget::unlimited())
        .client_follows_redirects(false)
        .retry_without_key(true)
}

/// The result of a program: the number of requests, and the last status if there is a response.
#[derive(Debug, PartialEq)]
struct Ended {
    requests: usize,
    status: Option<u16>,
}

fn ended(requests: usize, status: u16) -> Ended {
    let status = Some(status);
    Ended { requests, status }
}

type Call = fn(&ClientWithMiddleware) -> RequestBuilder;

fn get(client: &ClientWithMiddleware) -> RequestBuilder {
    client.get(URL).header("foo", "bar")
}

fn post(client: &ClientWithMiddleware) -> RequestBuilder {
    client.post(URL).body("one teapot")
}

async fn run(retry: impl Middleware, server: &Arc<ScriptedServer>, call: Call) -> Ended {
    let response = call(&server.client(retry)).send().await;
    Ended {
        requests: server.count(),
        status: response.ok().map(|response| response.status().as_u16()),
    }
}

async fn on(statuses: &[u16], retry: impl Middleware, call: Call) -> Ended {
    let server = ScriptedServer::statuses(statuses.iter().copied());
    run(retry, &server, call).await
}

#[tokio::test(start_paused = true)]
async fn the_common_program_and_its_translation_behave_the_same() {
    for (statuses, expected) in [
        (&[200][..], ended(1, 200)),
        (&[503, 502, 200], ended(3, 200)),
        (&[408, 429, 500, 204], ended(4, 204)),
        (&[504], ended(4, 504)),
        (&[404], ended(1, 404)),
        (&[521, 200], ended(2, 200)),
    ] {
        assert_eq!(on(statuses, theirs(), get).await, expected, "{statuses:?}");
        assert_eq!(on(statuses, ours(), get).await, expected, "{statuses:?}");
        let literal = as_before().build().unwrap();
        assert_eq!(on(statuses, literal, get).await, expected, "{statuses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_literal_translation_has_the_same_longest_waits() {
    let exactly = ExponentialBackoff::builder()
        .jitter(reqwest_retry::Jitter::None)
        .build_with_max_retries(3);
    let before = ScriptedServer::statuses([503]);
    run(
        RetryTransientMiddleware::new_with_policy(exactly),
        &before,
        get,
    )
    .await;
    let after = ScriptedServer::statuses([503]);
    let second = Duration::from_secs(1);
    let exactly = Backoff::exponential(second).jitter(Jitter::None);
    run(as_before().backoff(exactly).build().unwrap(), &after, get).await;
    assert_eq!(after.gaps(), [second, 2 * second, 4 * second]);
    for (before, after) in before.gaps().into_iter().zip(after.gaps()) {
        // reqwest-retry measures with the wall clock, which is not paused.
        assert!(before.abs_diff(after) < second / 2, "{before:?}, {after:?}");
    }
}

/// The example of reqwest-retry for strategies: retries a 201, and no other response.
struct OnCreated;

impl RetryableStrategy for OnCreated {
    fn handle(&self, result: &Result<Response>) -> Option<Retryable> {
        match result {
            Ok(response) if response.status() == StatusCode::CREATED => Some(Retryable::Transient),
            Ok(_) => None,
            Err(error) => default_on_request_failure(error),
        }
    }
}

fn their_strategy() -> impl Middleware {
    let policy = ExponentialBackoff::builder().build_with_max_retries(2);
    RetryTransientMiddleware::new_with_policy_and_strategy(policy, OnCreated)
}

fn our_strategy() -> RetryMiddlewareBuilder {
    let retry = RetryMiddleware::builder().max_retries(2);
    retry.classify_fn(|attempt| match attempt.status() {
        Some(StatusCode::CREATED) => Some(StatusClass::Conditional),
        Some(_) => Some(StatusClass::Never),
        None => None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_strategy_and_its_translation_behave_the_same() {
    for (statuses, expected) in [
        (&[201][..], ended(3, 201)),
        (&[201, 200], ended(2, 200)),
        (&[200], ended(1, 200)),
        (&[503], ended(1, 503)),
    ] {
        assert_eq!(on(statuses, their_strategy(), get).await, expected);
        let ours = our_strategy().build().unwrap();
        assert_eq!(on(statuses, ours, get).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn none_means_no_retry_there_and_the_default_tables_here() {
    // A translation that keeps the `None` of the strategy.
    let trap = RetryMiddleware::builder()
        .max_retries(2)
        .classify_fn(|attempt| (attempt.status()? == 201).then_some(StatusClass::Conditional));
    assert_eq!(on(&[503], their_strategy(), get).await, ended(1, 503));
    let trap = on(&[503], trap.build().unwrap(), get).await;
    assert_eq!(trap, ended(3, 503));
}

#[tokio::test(start_paused = true)]
async fn a_post_is_always_retried_there_and_here_only_if_safe() {
    let keyed: Call = |client| post(client).idempotency_key("order-4711");
    let marked: Call = |client| post(client).mark_idempotent();
    let without_key = || as_before().build().unwrap();
    for status in [500, 503] {
        let all = ended(4, status);
        assert_eq!(on(&[status], theirs(), post).await, all);
        assert_eq!(on(&[status], ours(), post).await, ended(1, status));
        assert_eq!(on(&[status], ours(), keyed).await, all);
        assert_eq!(on(&[status], ours(), marked).await, all);
    }
    // The statuses that the opt-in covers, and others.
    for (status, requests) in [(429, 4), (502, 4), (503, 4), (504, 4), (500, 1), (408, 1)] {
        let opted_in = on(&[status], without_key(), post).await;
        assert_eq!(opted_in, ended(requests, status));
        assert_eq!(on(&[status], theirs(), post).await, ended(4, status));
    }
}

#[tokio::test(start_paused = true)]
async fn these_statuses_are_treated_differently() {
    let (mut no_longer, mut now) = (Vec::new(), Vec::new());
    for status in 200..=599 {
        let before = on(&[status], theirs(), get).await.requests;
        let after = on(&[status], ours(), get).await.requests;
        match (before, after) {
            (4, 1) => no_longer.push(status),
            (1, 4) => now.push(status),
            _ => assert_eq!(before, after, "{status}"),
        }
    }
    assert_eq!(no_longer, [501, 505, 506, 507, 508, 510, 511]);
    assert_eq!(now, [425]);
    let turned_back = RetryMiddleware::builder()
        .max_retries(3)
        .status(StatusCode::NOT_IMPLEMENTED, StatusClass::Conditional)
        .status(StatusCode::TOO_EARLY, StatusClass::Never)
        .build()
        .unwrap();
    assert_eq!(on(&[501], turned_back.clone(), get).await, ended(4, 501));
    assert_eq!(on(&[425], turned_back, get).await, ended(1, 425));
}

#[tokio::test(start_paused = true)]
async fn the_servers_directives_are_ignored_there_and_applied_here() {
    let asks_for = |pause: &'static str| {
        ScriptedServer::new(move |before| match before {
            0 => Reply::status(503).header("retry-after", pause),
            _ => Reply::status(200),
        })
    };
    let server = asks_for("30");
    assert_eq!(run(theirs(), &server, get).await, ended(2, 200));
    assert!(server.gaps()[0] < Duration::from_secs(2));
    let server = asks_for("30");
    assert_eq!(run(ours(), &server, get).await, ended(2, 200));
    assert!(server.gaps()[0] >= Duration::from_secs(30));

    let server = asks_for("3600");
    assert_eq!(run(theirs(), &server, get).await, ended(2, 200));
    let server = asks_for("3600");
    assert_eq!(run(ours(), &server, get).await, ended(1, 503));

    for name in ["x-should-retry", "stripe-should-retry"] {
        let veto = || ScriptedServer::new(move |_| Reply::status(503).header(name, "false"));
        assert_eq!(run(theirs(), &veto(), get).await, ended(4, 503));
        assert_eq!(run(ours(), &veto(), get).await, ended(1, 503));
    }
}

#[tokio::test(start_paused = true)]
async fn many_failures_are_all_retried_there_and_limited_here() {
    async fn requests(retry: impl Middleware) -> usize {
        let server = ScriptedServer::statuses([503]);
        let client = server.client(retry);
        join_all((0..100).map(|_| client.get(URL).send())).await;
        server.count()
    }
    assert_eq!(requests(theirs()).await, 400);
    // The reserve: 2 per second × 10 s.
    assert_eq!(requests(ours()).await, 120);
    assert_eq!(requests(as_before().build().unwrap()).await, 400);
}

#[tokio::test(start_paused = true)]
async fn no_retry_starts_after_the_window() {
    let day = Duration::from_secs(24 * 60 * 60);
    let until = |window: Option<Duration>| {
        let retry = RetryMiddleware::builder()
            .max_retries(u32::MAX)
            .budget(Budget::unlimited())
            .backoff(Backoff::exponential(Duration::from_secs(1)).cap(Duration::from_secs(60)));
        let retry = match window {
            Some(window) => retry.retry_window(window),
            None => retry,
        };
        async move {
            let server = ScriptedServer::statuses([503]);
            run(retry.build().unwrap(), &server, get).await;
            server.gaps().into_iter().sum::<Duration>()
        }
    };
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let default = until(None).await;
    assert!(default <= minutes(5) && default > minutes(3), "{default:?}");
    let long = until(Some(day)).await;
    assert!(long <= day && long > day - minutes(2), "{long:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_an_error_there_and_sent_once_here() {
    fn body() -> Body {
        Body::wrap_stream(stream::iter([Ok::<_, std::io::Error>("one teapot")]))
    }
    let streamed: Call = |client| client.put(URL).body(body());
    let nothing = Ended {
        requests: 0,
        status: None,
    };
    assert_eq!(on(&[503], theirs(), streamed).await, nothing);
    assert_eq!(on(&[503], ours(), streamed).await, ended(1, 503));
    let rebuilt: Call = |client| client.put(URL).body_with(body);
    assert_eq!(on(&[503], ours(), rebuilt).await, ended(4, 503));
}

#[tokio::test(start_paused = true)]
async fn a_failure_inside_a_middleware_error_is_final_only_there() {
    let broken = || ScriptedServer::new(|_| Reply::fail(ErrorKind::ConnectionReset));
    let all = |requests| Ended {
        requests,
        status: None,
    };
    assert_eq!(run(theirs(), &broken(), get).await, all(1));
    assert_eq!(run(ours(), &broken(), get).await, all(4));
}

/// Inserts a mark into the extensions of each attempt, and a header if the mark already exists.
struct Marks;

#[derive(Clone)]
struct Mark;

#[async_trait::async_trait]
impl Middleware for Marks {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        if extensions.insert(Mark).is_some() {
            let headers = request.headers_mut();
            headers.insert("x-marked", http::HeaderValue::from_static("before"));
        }
        next.run(request, extensions).await
    }
}

#[tokio::test(start_paused = true)]
async fn extensions_of_an_attempt_stay_there_and_are_reset_here() {
    for (retry, marked) in [
        (Arc::new(theirs()) as Arc<dyn Middleware>, 3),
        (Arc::new(ours()), 0),
    ] {
        let server = ScriptedServer::statuses([503]);
        let client = server.client_behind([retry, Arc::new(Marks) as Arc<dyn Middleware>]);
        client.get(URL).send().await.unwrap();
        let received = server.received();
        let seen = received
            .iter()
            .filter(|it| it.headers.contains_key("x-marked"));
        assert_eq!((received.len(), seen.count()), (4, marked));
    }
}

/// Has no waits, because the test uses a real socket.
fn their_quick(retries: u32) -> RetryTransientMiddleware<ExponentialBackoff> {
    let policy = ExponentialBackoff::builder()
        .retry_bounds(Duration::from_millis(1), Duration::from_millis(5))
        .build_with_max_retries(retries);
    RetryTransientMiddleware::new_with_policy(policy)
}

fn socket(retry: impl Middleware, inner: reqwest::ClientBuilder) -> ClientWithMiddleware {
    ClientBuilder::new(inner.build().unwrap())
        .with(retry)
        .build()
}

fn with_retries(error: &Error) -> Option<u32> {
    let Error::Middleware(error) = error else {
        return None;
    };
    match error.downcast_ref()? {
        RetryError::WithRetries { retries, .. } => Some(*retries),
        RetryError::Error(_) => None,
    }
}

#[tokio::test]
async fn a_refused_connection_is_wrapped_there_and_unchanged_here() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);

    let client = socket(their_quick(2), raw::direct());
    let error = raw::in_time(client.get(&url).send()).await.unwrap_err();
    assert!(error.is_middleware() && !error.is_connect() && error.url().is_none());
    assert_eq!(with_retries(&error), Some(2));

    let client = raw::client(raw::direct(), raw::retry().max_retries(2));
    let slot = ReportSlot::new();
    let call = client.get(&url).report_to(&slot).send();
    let error = raw::in_time(call).await.unwrap_err();
    assert!(!error.is_middleware() && error.is_connect() && error.url().is_some());
    let report = slot.get().unwrap();
    assert_eq!(report.retries(), 2);
    assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
}

#[tokio::test]
async fn a_timeout_is_wrapped_there_and_unchanged_here() {
    let hangs = || raw::Server::start(|_| raw::reply("", raw::Then::Silence));
    let impatient = || raw::direct().timeout(Duration::from_millis(50));

    let server = hangs().await;
    let client = socket(their_quick(1), impatient());
    let call = client.get(server.url()).send();
    let error = raw::in_time(call).await.unwrap_err();
    assert!(error.is_middleware() && !error.is_timeout());
    assert_eq!((with_retries(&error), server.count()), (Some(1), 2));

    let server = hangs().await;
    let client = raw::client(impatient(), raw::retry().max_retries(1));
    let call = client.get(server.url()).send();
    let error = raw::in_time(call).await.unwrap_err();
    assert!(!error.is_middleware() && error.is_timeout());
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn a_strategy_with_default_failures_retries_them_in_both() {
    // First a close without a response, then a 200, which the strategy does not retry.
    let server = || {
        raw::Server::start(|before| match before {
            0 => raw::reply("", raw::Then::Close),
            _ => raw::respond(200, "hello"),
        })
    };
    let quick = ExponentialBackoff::builder()
        .retry_bounds(Duration::from_millis(1), Duration::from_millis(5))
        .build_with_max_retries(2);
    let before = server().await;
    let retry = RetryTransientMiddleware::new_with_policy_and_strategy(quick, OnCreated);
    let client = socket(retry, raw::direct());
    let response = raw::in_time(client.get(before.url()).send()).await.unwrap();
    assert_eq!((response.status().as_u16(), before.count()), (200, 2));

    let after = server().await;
    let backoff = Backoff::exponential(Duration::from_millis(1));
    let client = raw::client(raw::direct(), our_strategy().backoff(backoff));
    let response = raw::in_time(client.get(after.url()).send()).await.unwrap();
    assert_eq!((response.status().as_u16(), after.count()), (200, 2));
    assert_eq!(RetryReport::of(&response).unwrap().retries(), 1);
}

#[tokio::test(start_paused = true)]
async fn nested_clients_of_reqwest_retry_multiply() {
    let server = ScriptedServer::statuses([503]);
    let inner = server.client(theirs());
    let client = scripted::stacked(theirs(), inner);
    client.get(URL).send().await.unwrap();
    assert_eq!(server.count(), 16);
}
