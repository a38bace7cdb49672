//! Coalescing: identical requests at the same time are one request on the wire.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Method, StatusCode};
use reqwest::{Body, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, RequestBuilder, Result};
use reqwest_steady::{
    CoalesceMiddleware, ReportSlot, RequestBuilderExt, RetryMiddleware, RetryReport, Scope,
    SteadyError, StopReason, ThrottleMiddleware,
};
use tokio::time::{Instant, sleep, timeout};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::log::Log;
use crate::support::scripted::{Reply, Server, URL, late, respond, respond_with};
use crate::support::stacks::{MS, SEC, middleware, plain_client, retry_after};

/// A client, and the coalescing middleware in it.
struct Shared {
    coalesce: Arc<CoalesceMiddleware>,
    client: ClientWithMiddleware,
}

impl Shared {
    fn new(server: &Arc<Server>, coalesce: CoalesceMiddleware) -> Self {
        let coalesce = Arc::new(coalesce);
        let client = server.client_behind([coalesce.clone() as Arc<dyn Middleware>]);
        Self { coalesce, client }
    }

    fn of(server: &Arc<Server>) -> Self {
        Self::new(server, CoalesceMiddleware::default())
    }

    fn get(&self) -> RequestBuilder {
        self.client.get(URL)
    }

    /// Makes this many calls at once.
    async fn calls(&self, count: usize) -> Vec<Result<Response>> {
        join_all((0..count).map(|_| self.get().send())).await
    }

    /// Checks that no flight remains in the table.
    #[track_caller]
    fn assert_empty(&self) {
        let debug = format!("{:?}", self.coalesce);
        assert!(debug.contains("in_flight: 0"), "{debug}");
    }
}

/// A client that coalesces calls, with another middleware inside.
fn coalesced(server: &Arc<Server>, inside: impl Middleware) -> ClientWithMiddleware {
    let coalesce: Arc<dyn Middleware> = Arc::new(CoalesceMiddleware::default());
    server.client_behind([coalesce, Arc::new(inside)])
}

async fn text(response: Result<Response>) -> String {
    response.unwrap().text().await.unwrap()
}

async fn texts(responses: Vec<Result<Response>>) -> Vec<String> {
    join_all(responses.into_iter().map(text)).await
}

/// A body of this many bytes, without a known length.
fn streamed(bytes: usize) -> Body {
    let chunks = vec![vec![b'x'; 1000]; bytes / 1000];
    Body::wrap_stream(stream::iter(chunks.into_iter().map(Ok::<_, Infallible>)))
}

fn reply(body: impl Into<Body>) -> Reply {
    Reply::response(http::Response::new(body.into()))
}

/// A server that takes 50 ms and numbers its responses.
fn numbered() -> Arc<Server> {
    Server::new(|index| late(50 * MS, reply(format!("response {index}"))))
}

#[tokio::test(start_paused = true)]
async fn a_thousand_identical_requests_share_one_response() {
    let server = Server::new(|_| {
        let headers = [("x-served-by", "one"), ("content-type", "text/plain")];
        late(50 * MS, respond_with(200, &headers))
    });
    let shared = Shared::of(&server);
    let started = Instant::now();
    let responses = shared.calls(1000).await;
    assert_eq!(server.count(), 1);
    assert_eq!(started.elapsed(), 50 * MS);
    for response in responses {
        let response = response.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.url().as_str(), URL);
        assert_eq!(response.headers()["x-served-by"], "one");
        assert_eq!(response.content_length(), Some(11));
        assert_eq!(response.text().await.unwrap(), "body of 200");
    }
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_caller_after_the_response_sends_its_own_request() {
    let server = numbered();
    let shared = Shared::of(&server);
    assert_eq!(texts(shared.calls(3).await).await, ["response 0"; 3]);
    assert_eq!(texts(shared.calls(3).await).await, ["response 1"; 3]);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn requests_that_differ_are_never_shared() {
    let server = numbered();
    let shared = Shared::of(&server);
    let client = &shared.client;
    let different = vec![
        shared.get(),
        client.get("http://api.example.com/orders?page=8"),
        client.get("https://api.example.com/orders?page=7"),
        client.head(URL),
        client.request(Method::OPTIONS, URL),
        shared.get().bearer_auth("alice"),
        shared.get().bearer_auth("bob"),
        shared.get().basic_auth("alice", Some("secret")),
        shared.get().header("proxy-authorization", "Basic YQ=="),
        shared.get().header("cookie", "session=1"),
        shared.get().header("cookie", "session=2"),
        shared.get().header("x-api-key", "1"),
        shared.get().header("accept", "text/html"),
        shared.get().header("accept", "application/json"),
        shared.get().header("accept-language", "de"),
        shared.get().header("range", "bytes=0-9"),
        shared.get().header("if-none-match", "\"a\""),
        shared.get().header("baggage", "tenant=1"),
        shared.get().timeout(SEC),
        shared.get().timeout(2 * SEC),
        shared.get().version(http::Version::HTTP_2),
        shared.get().no_retry(),
    ];
    let count = different.len();
    let twice = different.into_iter().flat_map(|request| {
        let again = request.try_clone().unwrap();
        [request, again]
    });
    let responses = join_all(twice.map(RequestBuilder::send)).await;
    assert_eq!(server.count(), count);
    let texts = texts(responses).await;
    for (index, pair) in texts.chunks(2).enumerate() {
        assert_eq!(
            pair,
            [format!("response {index}"), format!("response {index}")]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_change_the_response_is_not_compared() {
    let server = numbered();
    let coalesce = CoalesceMiddleware::builder().ignore_header("X-Client-Start");
    let shared = Shared::new(&server, coalesce.build().unwrap());
    let same = [
        shared.get().header("accept", "a").header("cookie", "b"),
        shared.get().header("cookie", "b").header("accept", "a"),
        shared.get().header("traceparent", "00-1-2-01"),
        shared.get().header("x-b3-traceid", "1"),
        shared.get().header("x-request-id", "1"),
        shared.get().header("x-request-id", "2"),
        shared.get().header("x-client-start", "12:00"),
        shared.client.get(format!("{URL}#top")),
        shared.get(),
    ];
    let same = same.into_iter().enumerate().map(|(index, request)| {
        let request = match index {
            0 | 1 => request,
            _ => request.header("accept", "a").header("cookie", "b"),
        };
        request.send()
    });
    assert_eq!(texts(join_all(same).await).await, ["response 0"; 9]);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn unsafe_and_unknown_requests_pass_through() {
    let server = numbered();
    let shared = Shared::of(&server);
    let client = &shared.client;
    let requests: [fn(&ClientWithMiddleware) -> RequestBuilder; 12] = [
        |client| client.post(URL),
        |client| client.put(URL),
        |client| client.delete(URL),
        |client| client.patch(URL),
        |client| client.get(URL).body("query"),
        |client| client.get(URL).header("cache-control", "no-cache"),
        |client| client.get(URL).header("cache-control", "no-store"),
        |client| client.get(URL).header("cache-control", "max-age=0"),
        |client| client.get(URL).header("pragma", "no-cache"),
        |client| client.get(URL).header("idempotency-key", "key"),
        |client| client.get(URL).idempotency_key("key"),
        |client| client.get(URL).with_extension("the user's name"),
    ];
    let twice = requests.map(|request| join(request(client).send(), request(client).send()));
    join_all(twice).await;
    assert_eq!(server.count(), 24);

    let server = numbered();
    let coalesce = CoalesceMiddleware::builder()
        .ignore_extensions(true)
        .build();
    let shared = Shared::new(&server, coalesce.unwrap());
    let request = || shared.get().with_extension("a label").send();
    let (one, other) = join(request(), request()).await;
    assert_eq!([text(one).await, text(other).await], ["response 0"; 2]);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sensitive_value_counts_in_an_ignored_header() {
    let server = numbered();
    let coalesce = CoalesceMiddleware::builder().ignore_header("x-session");
    let shared = Shared::new(&server, coalesce.build().unwrap());
    let call = |session, is_sensitive| {
        let mut value = HeaderValue::from_static(session);
        value.set_sensitive(is_sensitive);
        shared.get().header("x-session", value).send()
    };
    join_all([call("alice", false), call("bob", false)]).await;
    assert_eq!(server.count(), 1);
    join_all([call("alice", true), call("bob", true)]).await;
    assert_eq!(server.count(), 3);
}

/// Sends every request twice, as a retry from another crate might.
fn sends_twice() -> impl Middleware {
    middleware(|request, extensions, next| {
        Box::pin(async move {
            let again = request.try_clone().unwrap();
            next.clone().run(request, extensions).await?;
            next.run(again, extensions).await
        })
    })
}

#[tokio::test(start_paused = true)]
async fn extensions_of_a_throttle_inside_do_not_stop_sharing() {
    let server = Server::new(|index| match index {
        0 => late(50 * MS, respond(503)),
        _ => late(50 * MS, respond(200)),
    });
    let client = server.client_behind([
        Arc::new(sends_twice()) as Arc<dyn Middleware>,
        Arc::new(CoalesceMiddleware::default()),
        Arc::new(ThrottleMiddleware::default()),
    ]);
    let calls = join_all((0..5).map(|_| client.get(URL).send())).await;
    assert_eq!(texts(calls).await, ["body of 200"; 5]);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn clients_that_are_built_from_one_client_share_its_table() {
    let server = numbered();
    let base = ClientBuilder::new(reqwest::Client::new())
        .with(CoalesceMiddleware::default())
        .build();
    let built = || {
        ClientBuilder::from_client(base.clone())
            .with_arc(server.clone())
            .build()
    };
    let (one, other) = (built(), built());
    let (one, other) = join(one.get(URL).send(), other.get(URL).send()).await;
    assert_eq!([text(one).await, text(other).await], ["response 0"; 2]);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn cloned_middlewares_do_not_share() {
    let server = numbered();
    let one = Shared::of(&server);
    let other = Shared::new(&server, (*one.coalesce).clone());
    join(one.calls(5), other.calls(5)).await;
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lone_caller_gets_its_response_unread() {
    let read = Arc::new(AtomicBool::new(false));
    let seen = read.clone();
    let server = Server::new(move |_| {
        let read = read.clone();
        let body = stream::once(async move {
            read.store(true, Ordering::Relaxed);
            Ok::<_, Infallible>("content")
        });
        reply(Body::wrap_stream(body))
    });
    let shared = Shared::of(&server);
    let response = shared.get().send().await;
    assert!(!seen.load(Ordering::Relaxed));
    shared.assert_empty();
    assert_eq!(text(response).await, "content");
}

#[tokio::test(start_paused = true)]
async fn error_responses_are_shared_like_others() {
    for status in [404, 429, 503] {
        let server = Server::new(move |_| late(MS, respond(status)));
        let responses = Shared::of(&server).calls(10).await;
        assert_eq!(server.count(), 1);
        for response in responses {
            let response = response.unwrap();
            assert_eq!(response.status(), status);
            assert_eq!(response.text().await.unwrap(), format!("body of {status}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn responses_for_one_caller_are_not_shared() {
    for (name, value) in [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("content-type", "multipart/x-mixed-replace; boundary=a"),
        ("vary", "*"),
        ("vary", "x-request-id"),
        ("set-cookie", "session=1"),
        ("cache-control", "no-store"),
    ] {
        let server = Server::new(move |_| late(50 * MS, respond_with(200, &[(name, value)])));
        let shared = Shared::of(&server);
        let started = Instant::now();
        assert_eq!(texts(shared.calls(10).await).await, ["body of 200"; 10]);
        assert_eq!(server.count(), 10, "{name}: {value}");
        // All followers send at once.
        assert_eq!(started.elapsed(), 100 * MS);
        shared.assert_empty();
    }
    let server = Server::new(move |_| late(MS, respond(101)));
    Shared::of(&server).calls(3).await;
    assert_eq!(server.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_head_is_shared_whatever_length_it_announces() {
    let server = Server::new(|_| {
        let response = http::Response::builder().header("content-length", "100000000");
        late(MS, Reply::response(response.body(Body::from("")).unwrap()))
    });
    let shared = Shared::of(&server);
    let calls = (0..10).map(|_| shared.client.head(URL).send());
    for response in join_all(calls).await {
        let response = response.unwrap();
        assert_eq!(response.headers()["content-length"], "100000000");
        assert_eq!(response.text().await.unwrap(), "");
    }
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_complete_and_never_shared() {
    let limited = |limit| CoalesceMiddleware::builder().max_body(limit).build();
    let bodies: [fn() -> Body; 2] = [|| vec![b'x'; 64_000].into(), || streamed(64_000)];
    for body in bodies {
        for (limit, expected) in [(63_999, 10), (64_000, 1), (0, 10)] {
            let server = Server::new(move |_| late(50 * MS, reply(body())));
            let shared = Shared::new(&server, limited(limit).unwrap());
            let started = Instant::now();
            for text in texts(shared.calls(10).await).await {
                assert_eq!(text.len(), 64_000);
            }
            assert_eq!(server.count(), expected, "{limit}");
            let waits = if expected == 1 { 1 } else { 2 };
            assert_eq!(started.elapsed(), waits * 50 * MS);
            shared.assert_empty();
        }
    }
}

/// A body in this many parts, with a pause before each.
fn slow(parts: usize, pause: Duration) -> Body {
    let parts = stream::iter(0..parts).then(move |_| async move {
        sleep(pause).await;
        Ok::<_, Infallible>("part ")
    });
    Body::wrap_stream(parts)
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_for_others_for_two_seconds() {
    // In time.
    let server = Server::new(|_| late(MS, reply(slow(3, 500 * MS))));
    let shared = Shared::of(&server);
    assert_eq!(texts(shared.calls(5).await).await, ["part part part "; 5]);
    assert_eq!(server.count(), 1);

    // Too late.
    let server = Server::new(|_| late(MS, reply(slow(5, 500 * MS))));
    let shared = Shared::of(&server);
    let started = Instant::now();
    let responses = shared.calls(5).await;
    assert_eq!(server.count(), 5);
    assert_eq!(server.gaps()[0], 2001 * MS);
    assert_eq!(started.elapsed(), 2002 * MS);
    shared.assert_empty();
    assert_eq!(texts(responses).await, ["part part part part part "; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_does_not_wait_for_followers_that_left() {
    let server = Server::new(|_| late(100 * MS, reply(slow(3, 500 * MS))));
    let shared = Shared::of(&server);
    let started = Instant::now();
    let leader = async { (shared.get().send().await, started.elapsed()) };
    let gone = timeout(150 * MS, shared.get().send());
    let ((leader, elapsed), gone) = join(leader, gone).await;
    assert!(gone.is_err());
    assert!(elapsed <= 200 * MS, "{elapsed:?}");
    shared.assert_empty();
    assert_eq!(text(leader).await, "part part part ");
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_joins_while_the_body_is_read_gets_it() {
    let server = Server::new(|_| late(100 * MS, reply(slow(3, 100 * MS))));
    let shared = Shared::of(&server);
    let late_comer = async {
        sleep(250 * MS).await;
        shared.get().send().await
    };
    let (mut responses, last) = join(shared.calls(2), late_comer).await;
    responses.push(last);
    assert_eq!(texts(responses).await, ["part part part "; 3]);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_broken_body_is_the_leaders_and_a_follower_leads() {
    fn broken() -> Body {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        Body::wrap_stream(stream::iter([Ok("begin"), Err(reset)]))
    }
    let server = Server::new(|index| match index {
        0 => late(50 * MS, reply(broken())),
        _ => late(50 * MS, reply("whole")),
    });
    let shared = Shared::of(&server);
    let mut responses = shared.calls(10).await;
    assert_eq!(server.count(), 2);
    assert_eq!(server.gaps(), [50 * MS]);
    let mut first = responses.remove(0).unwrap();
    assert_eq!(first.chunk().await.unwrap().unwrap(), "begin");
    let error = first.chunk().await.unwrap_err();
    let mut source: Option<&dyn std::error::Error> = Some(&error);
    let mut kind = None;
    while let Some(error) = source {
        kind = kind.or(error.downcast_ref::<io::Error>().map(io::Error::kind));
        source = error.source();
    }
    assert_eq!(kind, Some(io::ErrorKind::ConnectionReset));
    assert_eq!(texts(responses).await, ["whole"; 9]);
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_failing_leader_keeps_its_error_and_the_next_leads() {
    let server = Server::new(|index| match index {
        0 => late(50 * MS, Reply::fail(io::ErrorKind::ConnectionReset)),
        _ => late(50 * MS, respond(200)),
    });
    let shared = Shared::of(&server);
    let mut responses = shared.calls(1000).await;
    assert_eq!(server.count(), 2);
    assert_eq!(server.gaps(), [50 * MS]);
    match responses.remove(0).unwrap_err() {
        reqwest_middleware::Error::Middleware(error) => {
            let error = error.downcast_ref::<io::Error>().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        reqwest_middleware::Error::Reqwest(error) => panic!("{error}"),
    }
    assert_eq!(texts(responses).await, vec!["body of 200"; 999]);
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn after_three_failures_a_follower_sends_its_own_request() {
    let server = Server::new(|index| match index {
        0..3 => late(50 * MS, Reply::fail(io::ErrorKind::ConnectionReset)),
        _ => late(50 * MS, reply(format!("response {index}"))),
    });
    let shared = Shared::of(&server);
    let late_comers = async {
        sleep(60 * MS).await;
        shared.calls(3).await
    };
    let (first, later) = join(shared.calls(10), late_comers).await;
    // Three fail. Then seven send their own requests, and one of the three later callers leads.
    assert_eq!(first.iter().filter(|it| it.is_err()).count(), 3);
    assert_eq!(server.count(), 3 + 7 + 1);
    let zero = Duration::ZERO;
    let mut gaps = vec![50 * MS, 50 * MS, 50 * MS];
    gaps.resize(10, zero);
    assert_eq!(server.gaps(), gaps);
    let later = texts(later).await;
    assert!(later.iter().all(|it| *it == later[0]), "{later:?}");
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_always_fails_ends_all_calls_soon() {
    let server = Server::new(|_| late(50 * MS, Reply::fail(io::ErrorKind::ConnectionReset)));
    let shared = Shared::of(&server);
    let started = Instant::now();
    let responses = shared.calls(100).await;
    assert!(responses.iter().all(Result::is_err));
    assert_eq!(server.count(), 100);
    assert_eq!(started.elapsed(), 200 * MS);
    shared.assert_empty();
}

/// Polls a call this many times, whatever wakes it, and drops it.
async fn drop_after(polls: usize, call: impl Future) {
    let mut call = Some(Box::pin(call));
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == 0
            || call
                .as_mut()
                .is_some_and(|it| it.as_mut().poll(context).is_ready())
        {
            call = None;
        }
        left = left.saturating_sub(1);
        match call {
            Some(_) => std::task::Poll::Pending,
            None => std::task::Poll::Ready(()),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_may_be_cancelled_at_any_point() {
    let mut requests = Vec::new();
    for polls in 0..12 {
        let server = Server::new(|_| late(50 * MS, reply(slow(3, 100 * MS))));
        let shared = Shared::of(&server);
        let leader = drop_after(polls, shared.get().send());
        // Far less than `leader_timeout`: the next is sent at once.
        let calls = timeout(SEC, join(leader, shared.calls(10)));
        let ((), responses) = calls.await.unwrap();
        assert_eq!(texts(responses).await, ["part part part "; 10], "{polls}");
        shared.assert_empty();
        requests.push(server.count());
    }
    // Without a poll it was never sent. Then it was dropped before the headers and at every part of the
    // body, and another request was sent. With enough polls it completed.
    assert_eq!(requests.remove(0), 1);
    let cut_off = requests.iter().take_while(|count| **count == 2).count();
    assert!(cut_off >= 4, "{requests:?}");
    assert!(requests.len() > cut_off, "{requests:?}");
    assert!(
        requests[cut_off..].iter().all(|count| *count == 1),
        "{requests:?}"
    );
}

/// Makes a call every 100 ms for a minute. The server takes 1 s but never responds to its first request. Returns
/// how many calls got a response.
async fn steady_flow<T>(
    shared: &Shared,
    call: impl AsyncFn(RequestBuilder) -> std::result::Result<Response, T>,
) -> usize {
    let calls = (0..600_u32).map(|nth| {
        let call = &call;
        async move {
            sleep(nth * 100 * MS).await;
            call(shared.get()).await.is_ok()
        }
    });
    let succeeded = join_all(calls).await;
    succeeded.into_iter().filter(|succeeded| *succeeded).count()
}

fn hangs_once() -> Arc<Server> {
    Server::new(|index| match index {
        0 => Reply::silence(),
        _ => late(SEC, respond(200)),
    })
}

/// Once, each leader handed over to the follower with the least time left, without end.
#[tokio::test(start_paused = true)]
async fn after_one_hang_a_steady_flow_of_impatient_callers_recovers() {
    let server = hangs_once();
    let shared = Shared::of(&server);
    let by_timeout = async |request: RequestBuilder| match timeout(5 * SEC, request.send()).await {
        Ok(response) => response.map_err(drop),
        Err(_) => Err(()),
    };
    let succeeded = steady_flow(&shared, by_timeout).await;
    // At 5 s the first is dropped, and the newest leads. Callers of the first second are dropped before its
    // response arrives. All others get one, and each request serves the callers of one second.
    assert!((588..=590).contains(&succeeded), "{succeeded}");
    assert_eq!(server.gaps()[0], 5 * SEC);
    assert!((45..=60).contains(&server.count()), "{}", server.count());
    shared.assert_empty();

    let server = hangs_once();
    let shared = Shared::of(&server);
    let by_deadline = async |request: RequestBuilder| request.deadline(5 * SEC).send().await;
    // A retry would enforce the leader's deadline. Without one, the follower enforces its own.
    let leader = timeout(5 * SEC, shared.get().send());
    let (leader, succeeded) = join(leader, steady_flow(&shared, by_deadline)).await;
    assert!(leader.is_err());
    assert!((588..=590).contains(&succeeded), "{succeeded}");
    assert_eq!(server.gaps()[0], 5 * SEC);
    assert!((45..=60).contains(&server.count()), "{}", server.count());
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn after_one_hang_callers_with_deadlines_in_a_retry_recover() {
    let server = hangs_once();
    let coalesce = Arc::new(CoalesceMiddleware::default());
    let client = server.client_behind([
        coalesce.clone() as Arc<dyn Middleware>,
        Arc::new(RetryMiddleware::default()),
    ]);
    let shared = Shared { coalesce, client };
    let by_deadline = async |request: RequestBuilder| request.deadline(5 * SEC).send().await;
    let succeeded = steady_flow(&shared, by_deadline).await;
    assert!((588..=590).contains(&succeeded), "{succeeded}");
    assert_eq!(server.gaps()[0], 5 * SEC);
    assert!((45..=60).contains(&server.count()), "{}", server.count());
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_leader_promotes_the_newest_up_to_three_times() {
    let server = Server::new(|index| match index {
        0..3 => Reply::silence(),
        _ => late(50 * MS, reply(format!("response {index}"))),
    });
    let shared = Shared::of(&server);
    // The first call leads, then the newest, and then the newest of the rest.
    let patience = [10 * MS, 600 * SEC, 600 * SEC, 30 * MS, 20 * MS];
    let calls = patience.map(|patience| timeout(patience, shared.get().send()));
    let started = Instant::now();
    let results = join_all(calls).await;
    assert_eq!(started.elapsed(), 80 * MS);
    assert_eq!(server.gaps(), [10 * MS, 10 * MS, 10 * MS, Duration::ZERO]);
    let succeeded: Vec<_> = results.iter().map(|it| it.is_ok()).collect();
    assert_eq!(succeeded, [false, true, true, false, false]);
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_that_is_never_polled_hands_over() {
    let server = numbered();
    let shared = Shared::of(&server);
    let mut context = Context::from_waker(Waker::noop());
    let mut calls: Vec<_> = (0..3).map(|_| Box::pin(shared.get().send())).collect();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    // The first makes the newest the leader, which is dropped before it is polled.
    drop(calls.remove(0));
    drop(calls.pop());
    assert_eq!(server.count(), 1);
    let started = Instant::now();
    assert_eq!(text(calls.remove(0).await).await, "response 1");
    assert_eq!(started.elapsed(), 50 * MS);
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_is_cancelled_leaves_no_trace() {
    let server = Server::new(|_| late(SEC, respond(200)));
    let shared = Shared::of(&server);
    let gone = (0..100).map(|_| timeout(10 * MS, shared.get().send()));
    let leader = shared.get().send();
    let (leader, gone) = join(leader, join_all(gone)).await;
    assert!(gone.iter().all(|it| it.is_err()));
    assert_eq!(text(leader).await, "body of 200");
    assert_eq!(server.count(), 1);
    shared.assert_empty();
}

/// Panics on the first request.
fn panics_once() -> impl Middleware {
    let has_panicked = AtomicBool::new(false);
    middleware(move |request, extensions, next| {
        let is_first = !has_panicked.swap(true, Ordering::Relaxed);
        Box::pin(async move {
            sleep(10 * MS).await;
            assert!(!is_first, "the first request panics");
            next.run(request, extensions).await
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_panics_is_followed_by_the_next() {
    let server = numbered();
    let coalesce = Arc::new(CoalesceMiddleware::default());
    let client = server.client_behind([
        coalesce.clone() as Arc<dyn Middleware>,
        Arc::new(panics_once()),
    ]);
    let calls = (0..5).map(|_| tokio::spawn(client.get(URL).send()));
    let started = Instant::now();
    let mut results = join_all(calls).await;
    assert_eq!(started.elapsed(), 70 * MS);
    assert!(results.remove(0).unwrap_err().is_panic());
    for result in results {
        assert_eq!(text(result.unwrap()).await, "response 0");
    }
    assert!(format!("{coalesce:?}").contains("in_flight: 0"));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_leader_is_overtaken_and_the_first_response_shared() {
    let server = Server::new(|index| match index {
        0 => Reply::silence(),
        1 => late(45 * SEC, reply("second")),
        _ => late(20 * SEC, reply("third")),
    });
    let coalesce = CoalesceMiddleware::builder().leader_timeout(30 * SEC);
    let shared = Shared::new(&server, coalesce.build().unwrap());
    let calls = (0..10).map(|_| timeout(600 * SEC, shared.get().send()));
    let results = join_all(calls).await;
    // Requests at 0, 30 and 60 s. The second gets its response at 75 s, the third at 80 s.
    assert_eq!(server.count(), 3);
    assert_eq!(server.gaps(), [30 * SEC, 30 * SEC]);
    let mut texts = Vec::new();
    for result in results {
        match result {
            Ok(response) => texts.push(text(response).await),
            Err(_) => texts.push("none".to_owned()),
        }
    }
    let mut expected = vec!["second"; 10];
    expected[0] = "none";
    expected[2] = "third";
    assert_eq!(texts, expected);
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_hanging_server_delays_each_caller_for_a_bounded_time() {
    let server = Server::new(|index| match index {
        0..3 => Reply::silence(),
        _ => respond(200),
    });
    let coalesce = CoalesceMiddleware::builder()
        .leader_timeout(SEC)
        .build()
        .unwrap();
    let shared = Shared::new(&server, coalesce);
    let started = Instant::now();
    let calls = (0..10).map(|_| timeout(60 * SEC, shared.get().send()));
    let later = async {
        let results = join_all((0..7).map(|_| shared.get().send())).await;
        (results.len(), started.elapsed())
    };
    let (results, (count, elapsed)) = join(join_all(calls), later).await;
    assert_eq!(results.iter().filter(|it| it.is_err()).count(), 3);
    assert_eq!((count, elapsed), (7, 3 * SEC));
    assert_eq!(server.count(), 3 + 14);
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn all_callers_keep_a_pause_that_the_server_asked_for() {
    let server = Server::new(|index| match index {
        0 => late(2 * MS, respond_with(503, &[("retry-after", "60")])),
        _ => late(2 * MS, respond(200)),
    });
    let client = coalesced(&server, RetryMiddleware::default());
    let calls = join_all((0..100).map(|_| client.get(URL).send())).await;
    assert_eq!(texts(calls).await, vec!["body of 200"; 100]);
    assert_eq!(server.count(), 2);
    assert!(server.gaps()[0] >= 60 * SEC, "{:?}", server.gaps());
}

/// Enforces the timeout of a request, as reqwest does. The scripted server does not.
fn enforces_timeout() -> impl Middleware {
    middleware(|request, extensions, next| {
        Box::pin(async move {
            let limit = request.timeout().copied().unwrap();
            let response = timeout(limit, next.run(request, extensions)).await;
            response.unwrap_or_else(|_| {
                let error = io::Error::from(io::ErrorKind::TimedOut);
                Err(reqwest_middleware::Error::middleware(error))
            })
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_timeout_covers_the_wait_and_the_request_after_it() {
    let server = Server::new(|_| Reply::silence());
    let client = coalesced(&server, enforces_timeout());
    // The later half has half of its time left when the first fails.
    let call = async |start| {
        sleep(start).await;
        let started = Instant::now();
        let result = client.get(URL).timeout(SEC).send().await;
        (result.unwrap_err(), started.elapsed())
    };
    let starts = (0..10).map(|nth| if nth < 5 { Duration::ZERO } else { 500 * MS });
    let ends = join_all(starts.map(call)).await;
    for (error, elapsed) in &ends[1..] {
        let timed_out = SteadyError::of(error).unwrap();
        assert!(!timed_out.is_deadline());
        assert_eq!(timed_out.time_limit().unwrap(), SEC);
        assert_eq!(*elapsed, SEC);
    }
    assert_eq!(server.count(), 2);
    assert_eq!(server.gaps(), [SEC]);
}

/// The timeout limits one attempt, and the leader may need several.
#[tokio::test(start_paused = true)]
async fn a_timeout_does_not_end_the_wait_for_a_leaders_retries() {
    let server = Server::new(|index| match index {
        0 => late(900 * MS, respond(503)),
        _ => late(900 * MS, respond(200)),
    });
    let client = server.client_behind([
        Arc::new(CoalesceMiddleware::default()) as Arc<dyn Middleware>,
        Arc::new(RetryMiddleware::default()),
        Arc::new(enforces_timeout()),
    ]);
    let calls = (0..10).map(|_| client.get(URL).timeout(SEC).send());
    assert_eq!(texts(join_all(calls).await).await, ["body of 200"; 10]);
    assert_eq!(server.count(), 2);
}

/// A server that responds with 503 once.
fn recovers() -> Arc<Server> {
    Server::new(|index| match index {
        0 => late(50 * MS, respond(503)),
        _ => late(50 * MS, respond(200)),
    })
}

/// A retry that waits 500 ms.
fn retry() -> RetryMiddleware {
    retry_after(500 * MS).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn limits_of_the_leader_do_not_stop_others() {
    let server = recovers();
    let client = coalesced(&server, retry());
    let leader = client.get(URL).deadline(200 * MS).send();
    let others = join_all((0..10).map(|_| client.get(URL).send()));
    let (leader, others) = join(leader, others).await;
    let leader = leader.unwrap();
    let stop = RetryReport::of(&leader).unwrap().stop_reason();
    assert_eq!(stop, StopReason::DeadlineTooClose);
    assert_eq!(leader.text().await.unwrap(), "body of 503");
    assert_eq!(texts(others).await, ["body of 200"; 10]);
    assert_eq!(server.count(), 2);
    assert_eq!(server.gaps(), [50 * MS]);

    let server = recovers();
    let client = coalesced(&server, retry());
    let scope = Scope::new().max_retries(0);
    let leader = scope.run(client.get(URL).send());
    let others = join_all((0..10).map(|_| client.get(URL).send()));
    let (leader, others) = join(leader, others).await;
    let leader = leader.unwrap();
    let stop = RetryReport::of(&leader).unwrap().stop_reason();
    assert_eq!(stop, StopReason::AllowanceSpent);
    assert_eq!(leader.status(), 503);
    assert_eq!(texts(others).await, ["body of 200"; 10]);
    assert_eq!(server.count(), 2);
    assert_eq!(server.gaps(), [50 * MS]);
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_times_out_reports_its_whole_deadline() {
    let server = Server::new(|index| match index {
        0 => late(600 * MS, Reply::fail(io::ErrorKind::ConnectionReset)),
        _ => Reply::silence(),
    });
    let retry = RetryMiddleware::builder().max_retries(0).build();
    let client = coalesced(&server, retry.unwrap());
    let started = Instant::now();
    let follower = client.get(URL).deadline(SEC).send();
    let (leader, follower) = join(client.get(URL).send(), follower).await;
    leader.unwrap_err();
    let error = follower.unwrap_err();
    let timed_out = SteadyError::of(&error).unwrap();
    assert!(timed_out.is_deadline());
    assert_eq!(timed_out.time_limit().unwrap(), SEC);
    assert_eq!(started.elapsed(), SEC);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_limits_the_wait_and_the_request_after_it() {
    let server = Server::new(|index| match index {
        0 => late(600 * MS, Reply::fail(io::ErrorKind::ConnectionReset)),
        _ => Reply::silence(),
    });
    let shared = Shared::of(&server);
    let started = Instant::now();
    let leader = shared.get().send();
    let ends = |deadline| {
        let call = shared.get().deadline(deadline).send();
        async move { (call.await.unwrap_err(), started.elapsed()) }
    };
    let (leader, ends) = join(leader, join_all([400 * MS, SEC].map(ends))).await;
    leader.unwrap_err();
    for ((error, elapsed), deadline) in ends.into_iter().zip([400 * MS, SEC]) {
        let timed_out = SteadyError::of(&error).unwrap();
        assert!(timed_out.is_deadline());
        assert_eq!(timed_out.time_limit().unwrap(), deadline);
        assert_eq!(elapsed, deadline);
    }
    assert_eq!(server.count(), 2);
    shared.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_scope_limits_the_wait_and_the_retry_inside() {
    let server = Server::new(|_| late(5 * SEC, respond(200)));
    let shared = Shared::of(&server);
    let scope = Scope::new().deadline(2 * SEC);
    let started = Instant::now();
    let follower = scope.run(async { (shared.get().send().await, started.elapsed()) });
    let (leader, (follower, elapsed)) = join(shared.get().send(), follower).await;
    leader.unwrap();
    assert!(SteadyError::of(&follower.unwrap_err()).is_some_and(SteadyError::is_timeout));
    assert_eq!(elapsed, 2 * SEC);

    // The follower sends with 400 ms of its 1 s left, too little for a retry after 500 ms.
    let server = Server::new(|index| match index {
        0 => late(600 * MS, Reply::fail(io::ErrorKind::ConnectionReset)),
        _ => late(MS, respond(503)),
    });
    let retry = retry_after(500 * MS);
    let client = coalesced(&server, retry.build().unwrap());
    let leader = timeout(600 * MS, client.get(URL).send());
    let (leader, follower) = join(leader, client.get(URL).deadline(SEC).send()).await;
    assert!(leader.is_err());
    let follower = follower.unwrap();
    assert_eq!(follower.status(), 503);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leader_reads_for_others_only_until_its_deadline() {
    let server = Server::new(|_| late(100 * MS, reply(slow(3, 500 * MS))));
    let shared = Shared::of(&server);
    let started = Instant::now();
    let leader = async {
        let response = shared.get().deadline(300 * MS).send().await;
        (response, started.elapsed())
    };
    let ((leader, elapsed), others) = join(leader, shared.calls(100)).await;
    assert_eq!(elapsed, 300 * MS);
    assert_eq!(text(leader).await, "part part part ");
    assert_eq!(texts(others).await, vec!["part part part "; 100]);
    assert_eq!(server.count(), 2);
    assert_eq!(server.gaps(), [300 * MS]);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_shared_with_all_its_retries_and_its_report() {
    let server = Server::statuses([503, 503, 200]);
    let retry = retry_after(100 * MS);
    let client = coalesced(&server, retry.build().unwrap());
    let slots: Vec<_> = (0..100).map(|_| ReportSlot::new()).collect();
    let calls = slots
        .iter()
        .map(|slot| client.get(URL).report_to(slot).send());
    let responses = join_all(calls).await;
    assert_eq!(server.count(), 3);
    assert_eq!(server.gaps(), [100 * MS, 200 * MS]);
    for (response, slot) in responses.into_iter().zip(slots) {
        let response = response.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.retries(), 2);
        assert_eq!(slot.get().as_ref(), Some(report));
        assert_eq!(response.text().await.unwrap(), "body of 200");
    }
}

#[tokio::test(start_paused = true)]
async fn coalescing_inside_a_retry_works_and_warns_once() {
    let log = Log::default();
    let _guard = log.listen();
    let server = Server::new(|index| match index {
        0 => late(50 * MS, Reply::fail(io::ErrorKind::ConnectionReset)),
        _ => late(50 * MS, respond(200)),
    });
    let coalesce = Arc::new(CoalesceMiddleware::default());
    let client = server.client_behind([
        Arc::new(RetryMiddleware::default()) as Arc<dyn Middleware>,
        coalesce.clone(),
    ]);
    let calls = join_all((0..10).map(|_| client.get(URL).send())).await;
    assert_eq!(texts(calls).await, ["body of 200"; 10]);
    assert!((2..=3).contains(&server.count()));
    assert!(format!("{coalesce:?}").contains("in_flight: 0"));
    for statuses in [&[503, 503, 200][..], &[503, 200]] {
        let again = Server::statuses(statuses.iter().copied());
        let client =
            again.client_behind([Arc::new(retry()) as Arc<dyn Middleware>, coalesce.clone()]);
        client.get(URL).send().await.unwrap();
        assert_eq!(again.count(), statuses.len());
    }
    assert_eq!(log.count(), 1);
    let warning = "CoalesceMiddleware is inside RetryMiddleware";
    assert!(log.last().contains(warning), "{}", log.last());

    let right = Server::statuses([503, 200]);
    let client = coalesced(&right, retry());
    client.get(URL).send().await.unwrap();
    assert_eq!(log.count(), 1);
}

#[tokio::test]
async fn callers_wait_for_one_timeout_of_reqwest_only() {
    let server = MockServer::start().await;
    let response = ResponseTemplate::new(200).set_delay(30 * SEC);
    Mock::given(any())
        .respond_with(response)
        .mount(&server)
        .await;
    let plain = plain_client();
    let client = ClientBuilder::new(plain)
        .with(CoalesceMiddleware::default())
        .build();
    let started = Instant::now();
    let calls = (0..6).map(|_| client.get(server.uri()).timeout(500 * MS).send());
    let mut errors = join_all(calls).await.into_iter().map(Result::unwrap_err);
    // One after another, it would take 2 s.
    assert!(started.elapsed() < 1500 * MS, "{:?}", started.elapsed());
    assert!(errors.next().unwrap().is_timeout());
    assert!(errors.all(|error| SteadyError::of(&error).is_some_and(SteadyError::is_timeout)));
}

#[tokio::test]
async fn a_thousand_identical_requests_over_a_socket_are_one() {
    let server = MockServer::start().await;
    let response = ResponseTemplate::new(200)
        .set_body_string("prices")
        .set_delay(300 * MS);
    let mock = Mock::given(any()).respond_with(response);
    mock.expect(1).mount(&server).await;
    let plain = plain_client();
    let client = ClientBuilder::new(plain)
        .with(CoalesceMiddleware::default())
        .with(RetryMiddleware::default())
        .build();
    let calls = join_all((0..1000).map(|_| client.get(server.uri()).send())).await;
    for response in calls {
        let response = response.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.remote_addr().is_some());
        assert_eq!(response.text().await.unwrap(), "prices");
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_does_not_keep_the_report_of_an_earlier_call() {
    let server = Server::new(|index| late(index as u32 * SEC, respond(200)));
    let client = coalesced(&server, RetryMiddleware::default());
    let slot = ReportSlot::new();
    client.get(URL).report_to(&slot).send().await.unwrap();
    assert!(slot.get().is_some());
    let cut_off = client.get(URL).report_to(&slot).deadline(500 * MS).send();
    let (leader, cut_off) = join(client.get(URL).send(), cut_off).await;
    leader.unwrap();
    cut_off.unwrap_err();
    assert_eq!(slot.get(), None);
}

#[tokio::test]
async fn the_middleware_is_send_and_shows_no_secrets() {
    fn check<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    check::<CoalesceMiddleware>();
    let server = Server::new(|_| Reply::silence());
    let shared = Shared::of(&server);
    let mut call = Box::pin(shared.get().bearer_auth("secret").send());
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::as_mut(&mut call).poll(&mut context).is_pending());
    let debug = format!("{:?}", shared.coalesce);
    assert!(
        debug.contains("in_flight: 1") && !debug.contains("secret"),
        "{debug}"
    );
}

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_no_call_hangs_and_no_flight_remains() {
    let server = Server::new(|index| match index % 7 {
        0 => late(MS, Reply::fail(io::ErrorKind::ConnectionReset)),
        1 => late(MS, reply(streamed(3000))),
        2 => respond(503),
        3 => late(2 * MS, reply(slow(2, MS))),
        _ => late(MS, respond(200)),
    });
    let coalesce = CoalesceMiddleware::builder()
        .max_body(2000)
        .leader_timeout(3 * MS);
    let shared = Arc::new(Shared::new(&server, coalesce.build().unwrap()));
    let mut numbers = Numbers(1);
    let tasks: Vec<_> = (0..4000)
        .map(|_| {
            let shared = shared.clone();
            let url = format!("http://api.example.com/{}", numbers.below(3));
            let patience = match numbers.below(3) {
                0 => Duration::from_micros(numbers.below(4000)),
                _ => 30 * SEC,
            };
            let start = Duration::from_micros(numbers.below(200_000));
            tokio::spawn(async move {
                sleep(start).await;
                let call = async {
                    let response = shared.client.get(url).send().await?;
                    Ok::<_, reqwest_middleware::Error>(response.text().await?.len())
                };
                (patience == 30 * SEC, timeout(patience, call).await)
            })
        })
        .collect();
    let mut succeeded = 0;
    for task in tasks {
        let (patient, outcome) = timeout(60 * SEC, task).await.unwrap().unwrap();
        assert!(!patient || outcome.is_ok(), "a call hangs");
        if let Ok(Ok(length)) = outcome {
            assert!([3000, 11, 10].contains(&length), "{length}");
            succeeded += 1;
        }
    }
    assert!(succeeded > 1000, "{succeeded}");
    assert!(server.count() < 4000, "{}", server.count());
    shared.assert_empty();
}
