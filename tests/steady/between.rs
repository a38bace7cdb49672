//! What a retry and its throttle tell each other, whatever middleware is between or around them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::observe::Event;
use reqwest_steady::{
    Backoff, Budget, Jitter, RetryMiddleware, RetryMiddlewareBuilder, RetryReport, Scope,
    SteadyError, ThrottleMiddleware, ThrottleMiddlewareBuilder,
};
use tokio::time::{Instant, sleep};

use crate::support::chains::{
    Greeting, Greets, Link, OwnExtensions, budget, chain, link, retry, take_the_slot, throttle,
};
use crate::support::scripted::{Reply, Server, URL};
use crate::support::stacks::{MS, SEC, middleware};

fn with_own_extensions(
    server: &Arc<Server>,
    retry: RetryMiddlewareBuilder,
    hands_back: bool,
    throttle: ThrottleMiddlewareBuilder,
) -> ClientWithMiddleware {
    let own = link(OwnExtensions { hands_back });
    chain(server, retry, [own, link(throttle.build().unwrap())])
}

#[tokio::test(start_paused = true)]
async fn retries_through_other_extensions_are_paid_for() {
    let server = Server::statuses([500]);
    let (budget, full) = budget(10 * SEC);
    let retry = retry().max_retries(3).budget(budget.clone());
    let client = with_own_extensions(&server, retry, true, throttle());
    client.get(URL).send().await.unwrap();
    assert_eq!(server.count(), 4);
    let paid = full - budget.balance();
    assert!((paid - 3.0).abs() < 0.01, "{paid}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_holds_through_other_extensions() {
    let server = Server::statuses([500]);
    let (budget, full) = budget(10 * SEC);
    let retry = retry().max_retries(3).budget(budget.clone());
    let client = with_own_extensions(&server, retry, true, throttle());
    let calls = 40;
    // All at once, because the budget refills over time.
    let all = (0..calls).map(|_| client.get(URL).send());
    futures_util::future::join_all(all).await;
    let retries = server.count() - calls;
    assert!(retries as f64 <= full + 1.0, "{retries} of {full}");
}

#[tokio::test(start_paused = true)]
async fn a_scope_holds_through_other_extensions() {
    let server = Server::statuses([500]);
    let retry = retry().max_retries(3).budget(Budget::unlimited());
    let client = with_own_extensions(&server, retry, true, throttle());
    let scope = Scope::new().max_retries(4);
    scope
        .run(async {
            for _ in 0..4 {
                client.get(URL).send().await.unwrap();
            }
        })
        .await;
    assert_eq!(server.count(), 4 + 4);
}

#[tokio::test(start_paused = true)]
async fn the_attempt_clock_stops_in_the_throttle_with_own_extensions() {
    let server = Server::statuses([200]);
    let retry = retry().max_retries(0).attempt_timeout(SEC);
    let throttle = throttle().rate(0.2, 1);
    let client = with_own_extensions(&server, retry, false, throttle);
    client.get(URL).send().await.unwrap();
    // The attempt waits 5 s for its turn.
    let second = client.get(URL).send().await;
    assert!(second.is_ok(), "{second:?}");
}

fn two_retries(
    server: &Arc<Server>,
    outer: RetryMiddlewareBuilder,
    throttle: ThrottleMiddlewareBuilder,
) -> ClientWithMiddleware {
    let inner = retry().max_retries(0).budget(Budget::unlimited());
    let inner = link(inner.build().unwrap());
    chain(server, outer, [inner, link(throttle.build().unwrap())])
}

#[tokio::test(start_paused = true)]
async fn the_outer_of_two_retries_sees_the_throttle() {
    let server = Server::statuses([429]);
    let (budget, full) = budget(10 * SEC);
    let outer = retry().max_retries(2).budget(budget.clone());
    let client = two_retries(&server, outer, ThrottleMiddleware::builder().seed(1));
    client.get(URL).send().await.unwrap();
    assert_eq!(server.count(), 3);
    // The throttle keeps the pause, so the budget is not needed.
    let paid = full - budget.balance();
    assert!(paid.abs() < 0.01, "{paid}");
}

#[tokio::test(start_paused = true)]
async fn the_outer_of_two_retries_returns_the_response_if_refused() {
    let server = Server::new(|index| match index {
        0 => Reply::status(500).body("first"),
        _ => Reply::status(200).after(60 * SEC),
    });
    let outer = retry().max_retries(2).budget(Budget::unlimited());
    let throttle = throttle().max_in_flight(1).max_queue(0);
    let client = two_retries(&server, outer, throttle);
    let (first, ()) = tokio::join!(client.get(URL).send(), take_the_slot(&client, 90 * SEC));
    assert_eq!(first.unwrap().status(), 500);
}

#[tokio::test(start_paused = true)]
async fn the_outer_of_two_retries_reports_the_wait_in_the_throttle() {
    let server = Server::statuses([200]);
    let outer = retry().max_retries(0).budget(Budget::unlimited());
    let client = two_retries(&server, outer, throttle().rate(0.2, 1));
    client.get(URL).send().await.unwrap();
    let response = client.get(URL).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert!(report.waited() > 4 * SEC, "{:?}", report.waited());
}

/// Waits a while, and then calls another service.
fn token(client: ClientWithMiddleware) -> Link {
    link(middleware(move |_, _, _| {
        let token = client.post(URL).send();
        Box::pin(async move {
            sleep(3 * SEC).await;
            token.await
        })
    }))
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_reported_as_it_was_set() {
    let server = Server::new(|_| Reply::silence());
    let inner = server.client(retry().budget(Budget::unlimited()).build().unwrap());
    let outer = retry().deadline(10 * SEC);
    let client = chain(&server, outer, [token(inner)]);
    // While any scope exists, calls that cannot be retried also look for one around them.
    for with_scope in [false, true] {
        let scope = with_scope.then(Scope::new);
        let begun = Instant::now();
        let error = client.get(URL).send().await.unwrap_err();
        assert_eq!(begun.elapsed().as_secs(), 10, "{scope:?}");
        let after = SteadyError::of(&error).unwrap().time_limit().unwrap();
        assert_eq!(after, 10 * SEC, "{scope:?}");
    }
}

/// Opens a scope around each attempt.
fn in_scope() -> Link {
    link(middleware(|request, extensions, next| {
        Box::pin(async move {
            let scope = Scope::new().deadline(100 * SEC);
            scope.run(next.run(request, extensions)).await
        })
    }))
}

#[tokio::test(start_paused = true)]
async fn the_attempt_clock_stops_in_the_throttle_within_a_scope() {
    let server = Server::statuses([200]);
    let throttle = link(throttle().rate(0.2, 1).build().unwrap());
    let retry = retry().attempt_timeout(SEC);
    let client = chain(&server, retry, [in_scope(), throttle]);
    for seconds in [0, 5] {
        let begun = Instant::now();
        client.get(URL).send().await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_of_another_client_makes_no_retry_free() {
    // The other throttle lets the call through, delays it, or refuses it.
    for other in [
        throttle(),
        throttle().rate(0.5, 1),
        throttle().rate(0.1, 1).max_queue_wait(MS),
    ] {
        let (budget, full) = budget(10 * SEC);
        let greeted = Server::statuses([200]);
        let greeter = greeted.client(other.build().unwrap());
        let server = Server::new(|_| Reply::silence());
        let retry = retry().max_retries(3).attempt_timeout(SEC);
        let retry = retry.budget(budget.clone());
        let client = chain(&server, retry, [link(Greets(greeter, Greeting::Get))]);
        let error = client.get(URL).send().await.unwrap_err();
        assert!(SteadyError::of(&error).is_some_and(SteadyError::is_timeout));
        assert_eq!(server.count(), 4);
        // Three retries, and half a retry for the last failure.
        assert_eq!(full - budget.balance(), 3.5);
    }
}

/// The observer makes a call itself, while it handles the event.
#[test]
fn an_observer_may_make_a_call_and_drop_one() {
    let server = Server::statuses([500, 200]);
    let inner = Server::statuses([500, 500, 200]);
    let inner_client = inner.client(
        RetryMiddleware::builder()
            .backoff(Backoff::exponential(MS))
            .budget(Budget::unlimited())
            .build()
            .unwrap(),
    );
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let in_observer = move |_: &Event<'_>| {
        use std::task::{Context, Waker};
        seen.fetch_add(1, Ordering::Relaxed);
        let mut dropped = Box::pin(inner_client.get(URL).send());
        let _ = dropped
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(dropped);
        let inner_client = inner_client.clone();
        let runtime = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(inner_client.get(URL).send()).unwrap()
        });
        runtime.join().unwrap();
    };
    let retry = RetryMiddleware::builder()
        .backoff(Backoff::exponential(MS))
        .budget(Budget::unlimited())
        .observe_fn(in_observer.clone())
        .build()
        .unwrap();
    let throttle = ThrottleMiddleware::builder()
        .observe_fn(in_observer)
        .build()
        .unwrap();
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(retry)
        .with(throttle)
        .with_arc(server.clone())
        .build();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let response = runtime.block_on(client.get(URL).send()).unwrap();
    assert_eq!(response.status(), 200);
    assert!(calls.load(Ordering::Relaxed) > 4);
}

mod wire {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Returns how many connections it took, and the status.
    async fn connections(first: &'static str, method: http::Method) -> (usize, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (count, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = count.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                seen.fetch_add(1, Ordering::Relaxed);
                let requests = requests.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 4096];
                    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                        let response = match requests.fetch_add(1, Ordering::Relaxed) {
                            0..3 => first,
                            _ => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
                        };
                        stream.write_all(response.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        let retry = RetryMiddleware::builder()
            .backoff(Backoff::exponential(MS).jitter(Jitter::None))
            .budget(Budget::unlimited())
            .build()
            .unwrap();
        let client = ClientBuilder::new(reqwest::Client::builder().no_proxy().build().unwrap())
            .with(retry)
            .build();
        let url = format!("http://{address}/");
        let response = client.request(method, url).send().await.unwrap();
        (count.load(Ordering::Relaxed), response.status().as_u16())
    }

    #[tokio::test]
    async fn connections_are_reused_after_empty_responses() {
        use http::Method;
        for (first, method) in [
            ("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", Method::GET),
            (
                "HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                Method::GET,
            ),
            (
                "HTTP/1.1 503 No\r\ncontent-length: 100\r\n\r\n",
                Method::HEAD,
            ),
            (
                "HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n",
                Method::HEAD,
            ),
            (
                "HTTP/1.1 503 No\r\ncontent-length: 3\r\n\r\nabc",
                Method::GET,
            ),
        ] {
            assert_eq!(connections(first, method).await, (1, 200), "{first}");
        }
    }
}
