//! The time that the attempts of one call spend in a throttle's queue. It is bounded per call, and reported.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_middleware::{ClientWithMiddleware, Middleware};
use reqwest_steady::observe::RefusalReason;
use reqwest_steady::{
    Budget, ReportSlot, RequestBuilderExt, RetryMiddleware, RetryMiddlewareBuilder, RetryReport,
    SteadyError, StopReason, ThrottleMiddleware, ThrottleMiddlewareBuilder,
};
use tokio::time::{Instant, sleep};

use crate::support::scripted::{Reply, Server, URL, call, late, respond, throttled};
use crate::support::stacks::{MS, SEC, constant, middleware};
use crate::support::trace::Trace;

/// Retries after a second, as often as the test needs.
fn retry() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder()
        .seed(1)
        .backoff(constant(SEC))
        .budget(Budget::unlimited())
}

/// One request at a time, without adaptive limits.
fn one_at_a_time() -> ThrottleMiddlewareBuilder {
    ThrottleMiddleware::builder()
        .seed(1)
        .adaptive(false)
        .max_in_flight(1)
}

/// Occupies the only slot with requests of 6 s, one after another, until the test ends.
fn keep_busy(client: &ClientWithMiddleware) -> tokio::task::JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        loop {
            let _ = client.post("http://api.example.com/busy").send().await;
        }
    })
}

/// Requests to `/busy` take 6 s; all others end as `reply` says.
fn busy_server(reply: fn() -> Reply) -> Arc<Server> {
    Server::by_request(move |request| match request.url().path() {
        "/busy" => late(6 * SEC, respond(200)),
        _ => reply(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_down_for_good_ends_calls_in_time() {
    let server = Server::statuses([503]);
    let (retry, throttle) = (RetryMiddleware::builder(), ThrottleMiddleware::builder());
    let client = throttled(&server, retry.seed(1), throttle.seed(1));
    let start = Instant::now();
    let calls = (0..20).map(|name| {
        let client = &client;
        async move {
            let url = format!("http://api.example.com/{name}");
            let response = client.get(url).send().await.unwrap();
            (response.status(), start.elapsed())
        }
    });
    let ended = join_all(calls).await;
    for (status, after) in ended {
        // 30 s in the queue, at most 6.2 s of backoff, and no more.
        assert_eq!(status, 503);
        assert!(after < 37 * SEC, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_queue_time_of_a_call_is_bounded_over_its_attempts() {
    let server = busy_server(|| respond(500));
    let throttle = one_at_a_time().max_queue_wait(20 * SEC);
    let client = throttled(&server, retry(), throttle);
    let busy = keep_busy(&client);
    sleep(MS).await;

    let slot = ReportSlot::new();
    let start = Instant::now();
    let response = client.get(URL).report_to(&slot).send().await.unwrap();
    busy.abort();

    // Its attempts wait 6, 5 and 5 s and get a response at once. The fourth may wait for the remaining 4 s.
    assert_eq!(response.status(), 500);
    let report = slot.get().unwrap();
    assert_eq!(report.stop_reason(), StopReason::Throttled);
    assert_eq!(report.attempts().count(), 3);
    let took = start.elapsed();
    assert!(took >= 22 * SEC && took <= 23 * SEC + 10 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_queue_time_left_is_refused_at_once() {
    let server = busy_server(|| respond(500));
    let throttle = one_at_a_time().max_queue_wait(6 * SEC);
    let client = throttled(&server, retry(), throttle);
    let busy = keep_busy(&client);
    sleep(MS).await;
    let start = Instant::now();
    let response = client.get(URL).send().await.unwrap();
    busy.abort();
    // The first attempt waits 6 s. The retry finds the slot taken, and 1 ms of its queue time left.
    assert_eq!(RetryReport::of(&response).unwrap().retries(), 0);
    let took = start.elapsed();
    assert!(took >= 7 * SEC && took <= 7 * SEC + 10 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn every_call_has_its_own_queue_time() {
    let server = busy_server(|| respond(200));
    let throttle = one_at_a_time().max_queue_wait(7 * SEC);
    let client = throttled(&server, retry(), throttle);
    let busy = keep_busy(&client);
    sleep(MS).await;
    // All calls share their extensions, as with an outer middleware that sends several requests.
    let mut extensions = http::Extensions::new();
    for _ in 0..3 {
        let request = client.get(URL).build().unwrap();
        let result = client
            .execute_with_extensions(request, &mut extensions)
            .await;
        assert_eq!(result.unwrap().status(), 200);
    }
    busy.abort();
}

/// Two attempts, each 6 s in the queue and then 6 s without a response.
async fn two_attempts_that_time_out(retry: RetryMiddlewareBuilder) -> (RetryReport, Duration) {
    let server = busy_server(Reply::silence);
    let client = throttled(&server, retry.max_retries(1), one_at_a_time());
    let busy = keep_busy(&client);
    sleep(MS).await;
    let slot = ReportSlot::new();
    let start = Instant::now();
    let error = client.get(URL).report_to(&slot).send().await.unwrap_err();
    busy.abort();
    assert!(
        SteadyError::of(&error).is_some_and(SteadyError::is_timeout),
        "{error:?}"
    );
    (slot.get().unwrap(), start.elapsed())
}

fn about(actual: Duration, expected: Duration) -> bool {
    actual.abs_diff(expected) < 20 * MS
}

#[tokio::test(start_paused = true)]
async fn attempts_that_time_out_report_their_queue_time() {
    let trace = Trace::default();
    let _listening = trace.listen();
    let (report, took) = two_attempts_that_time_out(retry().attempt_timeout(6 * SEC)).await;
    let sent: Vec<_> = report.attempts().map(|attempt| attempt.sent_at()).collect();
    assert!(about(sent[0], 6 * SEC), "{sent:?}");
    assert!(about(sent[1], 18 * SEC), "{sent:?}");
    assert!(about(took, 24 * SEC), "{took:?}");
    // 12 s in attempts, so the other 12 s were waits.
    assert!(about(report.waited(), 12 * SEC), "{:?}", report.waited());

    let events = trace.events();
    let (_, _, fields) = events
        .iter()
        .find(|(_, _, fields)| fields.contains_key("waited_ms") && fields["method"] == "GET")
        .unwrap();
    let logged: u64 = fields["waited_ms"].parse().unwrap();
    assert!(about(Duration::from_millis(logged), 12 * SEC), "{logged}");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_cut_off_by_the_deadline_reports_its_queue_time() {
    let (report, took) = two_attempts_that_time_out(retry().deadline(10 * SEC)).await;
    assert_eq!(report.retries(), 0);
    let attempt = report.attempts().next().unwrap();
    assert!(about(took, 10 * SEC), "{took:?}");
    assert!(about(attempt.sent_at(), 6 * SEC), "{attempt:?}");
    assert!(about(attempt.waited(), 6 * SEC), "{attempt:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_refused_reports_its_queue_time() {
    let server = busy_server(|| respond(200));
    let client = throttled(&server, retry(), one_at_a_time().max_queue_wait(4 * SEC));
    let busy = keep_busy(&client);
    sleep(MS).await;
    let slot = ReportSlot::new();
    let error = client.get(URL).report_to(&slot).send().await.unwrap_err();
    busy.abort();
    let refusal = SteadyError::of(&error).unwrap();
    assert_eq!(refusal.refusal_reason(), Some(RefusalReason::WaitTooLong));
    let waited = slot.get().unwrap().waited();
    assert!(about(waited, 4 * SEC), "{waited:?}");
    assert_eq!(call(&client, 1).await.unwrap(), 200);
}

/// Calls [`busy_server`] with these middlewares, and returns the report and the duration. `throttle` is one of them,
/// and is kept busy.
async fn behind(
    throttle: ThrottleMiddleware,
    middlewares: impl IntoIterator<Item = Arc<dyn Middleware>>,
) -> (RetryReport, Duration) {
    let server = busy_server(|| respond(500));
    let others = server.client_behind([Arc::new(throttle) as Arc<dyn Middleware>]);
    let client = server.client_behind(middlewares);
    let busy = keep_busy(&others);
    sleep(MS).await;
    let start = Instant::now();
    let response = client.get(URL).send().await.unwrap();
    busy.abort();
    let report = RetryReport::of(&response).unwrap().clone();
    (report, start.elapsed())
}

fn with_retries(retries: u32) -> Arc<dyn Middleware> {
    Arc::new(retry().max_retries(retries).build().unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_queue_time_of_every_throttle_and_retry_is_reported() {
    let throttle = || one_at_a_time().build().unwrap();
    let free = || Arc::new(throttle()) as Arc<dyn Middleware>;
    type Chain = fn(Arc<dyn Middleware>, Arc<dyn Middleware>) -> Vec<Arc<dyn Middleware>>;
    let chains: [Chain; 5] = [
        |busy, _| vec![with_retries(2), busy],
        |busy, free| vec![with_retries(2), free, busy],
        |busy, free| vec![with_retries(2), busy, free],
        |busy, _| vec![with_retries(2), busy, with_retries(0)],
        |busy, _| vec![with_retries(2), with_retries(1), busy],
    ];
    for chain in chains {
        let busy = throttle();
        let (report, took) = behind(busy.clone(), chain(Arc::new(busy), free())).await;
        // Responses come at once, so all of the time is waiting.
        assert_eq!(report.attempts().count(), 3);
        assert!(about(report.waited(), took), "{report:?} in {took:?}");
        let last = report.attempts().last().unwrap();
        assert!(about(last.sent_at(), took), "{report:?} in {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_an_attempt_that_was_refused_is_reported() {
    let busy = one_at_a_time().max_queue_wait(20 * SEC).build().unwrap();
    let chain = [with_retries(5), Arc::new(busy.clone())];
    let (report, took) = behind(busy, chain).await;
    assert_eq!(report.stop_reason(), StopReason::Throttled);
    assert!(about(report.waited(), took), "{report:?} in {took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_queue_time_is_bounded_under_two_retries() {
    for (outer, inner) in [(9, 0), (9, 1), (9, 2), (9, 9)] {
        let busy = one_at_a_time().max_queue_wait(14 * SEC).build().unwrap();
        let chain = [
            with_retries(outer),
            with_retries(inner),
            Arc::new(busy.clone()),
        ];
        let (report, took) = behind(busy, chain).await;
        // 6 s and 5 s in the queue, 3 s left for the third attempt, and 2 s of backoff. The outer retry may wait
        // once more after the inner one was refused.
        assert_eq!(report.attempts().count(), 2, "{outer} and {inner}");
        let in_time = took >= 16 * SEC && took <= 17 * SEC + 20 * MS;
        assert!(in_time, "{outer} and {inner}: {took:?}");
    }
}

/// Calls another client before each attempt, and gives up after 3 s.
fn calls_first(other: ClientWithMiddleware) -> impl Middleware {
    middleware(move |request, extensions, next| {
        let other = other.get("http://api.example.com/other").send();
        Box::pin(async move {
            let _ = tokio::time::timeout(3 * SEC, other).await;
            next.run(request, extensions).await
        })
    })
}

#[tokio::test(start_paused = true)]
async fn the_queue_time_of_another_call_is_not_reported() {
    let other = busy_server(|| respond(200));
    let limited = || retry().attempt_timeout(20 * SEC);
    let other = throttled(&other, limited(), one_at_a_time());
    let busy = keep_busy(&other);
    sleep(MS).await;
    let server = Server::statuses([503, 503, 200]);
    let chain: [Arc<dyn Middleware>; 2] = [
        Arc::new(limited().build().unwrap()),
        Arc::new(calls_first(other)),
    ];
    let response = server.client_behind(chain).get(URL).send().await.unwrap();
    busy.abort();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.waited(), 2 * SEC);
}
