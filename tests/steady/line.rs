//! Calls that were refused for their rate wait in line while the budget is empty, and successes release them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Response;
use reqwest_middleware::{ClientWithMiddleware, Middleware, Result};
use reqwest_steady::observe::{BudgetWaited, EventKind, RetryScheduled, WaitReason};
use reqwest_steady::{
    Budget, KeyBy, ReportSlot, RequestBuilderExt, RetryMiddleware, RetryMiddlewareBuilder,
    RetryReport, Scope, StopReason, ThrottleMiddleware, ThrottleMiddlewareBuilder,
};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

use crate::support::scripted::{Reply, Server, URL, late, respond, respond_with, throttled};
use crate::support::stacks::{MS, SEC, constant, empty_budget, middleware, saved_budget};

/// Waits of 10 ms, and a budget that never pays. Nothing but a success releases a call.
fn retry() -> RetryMiddlewareBuilder {
    let retry = RetryMiddleware::builder()
        .seed(1)
        .backoff(constant(10 * MS));
    retry.budget(empty_budget())
}

/// A budget that is empty. Its trickle begins with two releases per second.
fn spent_budget() -> Budget {
    let budget = Budget::builder().retry_ratio(0.0).build().unwrap();
    while budget.try_withdraw() {}
    budget
}

/// Refuses every request except those for `/ok`.
fn refusing() -> Arc<Server> {
    Server::by_request(|request| match request.url().path() {
        "/ok" => late(MS, respond(200)),
        _ => late(MS, respond(429)),
    })
}

fn start(client: &ClientWithMiddleware, path: &str) -> JoinHandle<Result<Response>> {
    let url = format!("http://api.example.com/{path}");
    tokio::spawn(client.get(url).send())
}

/// Makes a call that succeeds, and so releases one in line.
async fn succeed(client: &ClientWithMiddleware) {
    let response = start(client, "ok").await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
}

/// The paths of all requests except `/ok`, in order of arrival.
fn paths(server: &Server) -> Vec<String> {
    let received = server.received();
    let paths = received.iter().map(|it| it.url.path()[1..].to_owned());
    paths.filter(|path| path != "ok").collect()
}

#[tokio::test(start_paused = true)]
async fn each_success_releases_the_call_that_waits_longest() {
    let server = refusing();
    let client = server.client(retry().build().unwrap());
    let calls = ["a", "b", "c"].map(|path| start(&client, path));
    sleep(SEC).await;
    assert_eq!(paths(&server), ["a", "b", "c"]);
    for sent in 4..=8 {
        succeed(&client).await;
        sleep(SEC).await;
        assert_eq!(paths(&server).len(), sent, "one retry for one success");
    }
    // A call that is refused again waits behind the others.
    assert_eq!(paths(&server), ["a", "b", "c", "a", "b", "c", "a", "b"]);
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_released_call_that_succeeds_releases_the_next() {
    let server = Server::new(|index| {
        let status = if index < 5 { 429 } else { 200 };
        late(50 * MS, respond(status))
    });
    let client = server.client(retry().build().unwrap());
    let calls = ["a", "b", "c", "d", "e"].map(|path| start(&client, path));
    sleep(SEC).await;
    assert_eq!(server.count(), 5);
    succeed(&client).await;
    for response in join_all(calls).await {
        assert_eq!(response.unwrap().unwrap().status(), 200);
    }
    let order = ["a", "b", "c", "d", "e", "a", "b", "c", "d", "e"];
    assert_eq!(paths(&server), order);
    // One at a time: the server's own pace, and a random part of the usual gap.
    let gaps = server.gaps();
    for gap in &gaps[6..] {
        assert!((50 * MS..=100 * MS).contains(gap), "{gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_with_money_goes_behind_those_in_line() {
    let server = refusing();
    let budget = saved_budget(0);
    let client = server.client(retry().budget(budget.clone()).build().unwrap());
    let mut calls = Vec::from(["a", "b"].map(|path| start(&client, path)));
    sleep(SEC).await;
    budget.deposit();
    calls.push(start(&client, "c"));
    sleep(SEC).await;
    // What the third call pays is for the first in line, and goes when its own retry would.
    assert_eq!(paths(&server), ["a", "b", "c", "a"]);
    assert_eq!(server.gaps()[2], 11 * MS);
    assert_eq!(budget.balance(), 0.0);
    // The line is "b", "c", "a". The first that is paid is refused, and so pays for the next.
    budget.deposit();
    budget.deposit();
    calls.push(start(&client, "d"));
    sleep(SEC).await;
    assert_eq!(paths(&server)[4..], ["d", "b", "c"]);
    assert_eq!(server.gaps()[4..], [11 * MS, 11 * MS]);
    assert_eq!(budget.balance(), 0.0);
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_paid_call_that_finds_the_line_empty_is_sent() {
    let server = refusing();
    let budget = saved_budget(0);
    let client = server.client(retry().budget(budget.clone()).build().unwrap());
    let waiting = start(&client, "a");
    sleep(SEC).await;
    budget.deposit();
    let call = start(&client, "b");
    sleep(5 * MS).await;
    waiting.abort();
    sleep(SEC).await;
    assert_eq!(paths(&server), ["a", "b", "b"]);
    assert_eq!(server.gaps()[1], 11 * MS);
    assert_eq!(budget.balance(), 0.0);
    call.abort();
}

#[tokio::test(start_paused = true)]
async fn one_success_releases_one_call_of_two_retries() {
    let server = refusing();
    // The same retry twice, so that a call is nested in itself.
    let retry: Arc<dyn Middleware> = Arc::new(retry().build().unwrap());
    let client = server.client_behind([Arc::clone(&retry), retry]);
    let calls = ["a", "b", "c"].map(|path| start(&client, path));
    sleep(SEC).await;
    for sent in 4..=6 {
        succeed(&client).await;
        sleep(SEC).await;
        assert_eq!(paths(&server).len(), sent, "one retry for one success");
    }
    assert_eq!(paths(&server), ["a", "b", "c", "a", "b", "c"]);
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_call_and_the_one_inside_it_release_one_each() {
    let server = refusing();
    let retry: Arc<dyn Middleware> = Arc::new(retry().build().unwrap());
    let client = server.client_behind([Arc::clone(&retry)]);
    let first = client.clone();
    let asks_first = middleware(move |request, extensions, next| {
        let first = first.get("http://api.example.com/ok").send();
        Box::pin(async move {
            first.await?;
            next.run(request, extensions).await
        })
    });
    let nested = server.client_behind([retry, Arc::new(asks_first)]);
    let calls = ["a", "b", "c", "d"].map(|path| start(&client, path));
    sleep(SEC).await;
    for sent in [6, 8] {
        // Two requests succeed.
        succeed(&nested).await;
        sleep(SEC).await;
        assert_eq!(paths(&server).len(), sent, "one retry for one success");
    }
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_leaves_the_line_makes_room_for_the_next() {
    let server = refusing();
    let client = server.client(retry().build().unwrap());
    let [first, second] = ["a", "b"].map(|path| start(&client, path));
    sleep(SEC).await;
    first.abort();
    assert!(first.await.is_err());
    succeed(&client).await;
    sleep(SEC).await;
    assert_eq!(paths(&server), ["a", "b", "b"]);
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_seen_goes_to_the_next() {
    let server = refusing();
    let client = server.client(retry().build().unwrap());
    let calls = ["a", "b"].map(|path| start(&client, path));
    sleep(SEC).await;
    // The call is released by this success, and dropped before it runs again.
    let ok = client.get("http://api.example.com/ok").send();
    assert_eq!(ok.await.unwrap().status(), 200);
    calls[0].abort();
    sleep(SEC).await;
    assert_eq!(paths(&server), ["a", "b", "b"]);
    calls[1].abort();
}

#[tokio::test(start_paused = true)]
async fn a_call_is_dropped_between_release_and_sending() {
    let server = refusing();
    let client = server.client(retry().max_retries(9).build().unwrap());
    let calls = ["a", "b", "c", "d"].map(|path| start(&client, path));
    sleep(SEC).await;
    // Successes a second apart make released calls wait for some of that time.
    for _ in 0..8 {
        succeed(&client).await;
        sleep(SEC).await;
    }
    let before = paths(&server);
    assert_eq!(before.len(), 12);
    succeed(&client).await;
    yield_now().await;
    assert_eq!(paths(&server), before, "the released call waits");
    calls[0].abort();
    sleep(SEC).await;
    assert_eq!(paths(&server)[12..], ["b"]);
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_line_ends_at_its_limit_with_its_last_response() {
    for (deadline, window, stop, took) in [
        (None, 300 * SEC, StopReason::BudgetEmpty, 60 * SEC + 10 * MS),
        (None, 5 * SEC, StopReason::WindowClosed, 5 * SEC),
        // Two ticks of the timers are left for the retry.
        (Some(SEC), 300 * SEC, StopReason::DeadlineTooClose, 998 * MS),
    ] {
        let server = Server::statuses([429]);
        let client = server.client(retry().retry_window(window).build().unwrap());
        let slot = ReportSlot::new();
        let mut request = client.get(URL).report_to(&slot);
        if let Some(deadline) = deadline {
            request = request.deadline(deadline);
        }
        let started = Instant::now();
        let response = request.send().await.unwrap();
        assert_eq!(started.elapsed(), took, "{stop}");
        assert_eq!(server.count(), 1);
        let report = RetryReport::of(&response).unwrap().clone();
        assert_eq!(slot.get(), Some(report.clone()));
        assert_eq!((report.stop_reason(), report.retries()), (stop, 0));
        assert_eq!((report.waited(), report.took()), (took, took));
        assert_eq!(report.attempts().next_back().unwrap().wait_reason(), None);
        assert_eq!(response.status(), 429);
        assert_eq!(response.text().await.unwrap(), "body of 429");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_waited_for_before_the_line() {
    let server = Server::by_request(|request| match request.url().path() {
        "/ok" => respond(200),
        _ => respond_with(429, &[("retry-after", "3")]),
    });
    let client = server.client(retry().build().unwrap());
    let started = Instant::now();
    let waiting = start(&client, "a");
    sleep(SEC).await;
    // The call is not in line yet.
    succeed(&client).await;
    let response = waiting.await.unwrap().unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::BudgetEmpty);
    let took = started.elapsed();
    assert_eq!(paths(&server), ["a"]);
    assert!((63 * SEC..=64 * SEC).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn without_any_success_the_line_slows_down() {
    let server = Server::statuses([429]);
    let client = server.client(retry().budget(spent_budget()).build().unwrap());
    let response = client.get(URL).send().await.unwrap();
    let gaps: Vec<_> = server.gaps().iter().map(Duration::as_millis).collect();
    assert_eq!(gaps, [510, 1010, 2010, 4010, 8010]);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
    for (attempt, gap) in report.attempts().skip(1).zip(server.gaps()) {
        assert_eq!(attempt.wait_reason(), Some(WaitReason::Budget));
        assert_eq!(attempt.waited(), gap);
    }
}

#[tokio::test(start_paused = true)]
async fn only_refusals_for_the_rate_wait_in_line() {
    type Case = (u16, Option<&'static str>, bool);
    let cases: [Case; 6] = [
        (429, None, true),
        (429, Some("1"), true),
        (503, Some("1"), true),
        (503, None, false),
        (500, Some("1"), false),
        (408, Some("1"), false),
    ];
    for (status, hint, waits) in cases {
        let server = Server::new(move |_| match hint {
            Some(hint) => respond_with(status, &[("retry-after", hint)]),
            None => respond(status),
        });
        let client = server.client(retry().build().unwrap());
        let started = Instant::now();
        let response = client.get(URL).send().await.unwrap();
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.stop_reason(), StopReason::BudgetEmpty);
        assert_eq!(server.count(), 1);
        let has_waited = started.elapsed() >= 60 * SEC;
        assert_eq!(has_waited, waits, "{status} {hint:?}");
        assert!(waits || started.elapsed().is_zero(), "{status} {hint:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn behind_a_fixed_throttle_nothing_waits_in_line() {
    let server = Server::statuses([429]);
    let throttle = ThrottleMiddleware::builder().adaptive(false);
    let client = throttled(&server, retry(), throttle);
    let started = Instant::now();
    let response = client.get(URL).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::BudgetEmpty);
    assert_eq!((server.count(), started.elapsed()), (1, Duration::ZERO));
}

/// A client whose throttle has a pace, because of a 429. `/limited` gets one 503.
async fn at_a_pace(throttle: ThrottleMiddlewareBuilder) -> (Arc<Server>, ClientWithMiddleware) {
    let server = Server::by_request({
        let before = Mutex::new(std::collections::HashMap::<String, u32>::new());
        move |request| {
            let mut before = before.lock().unwrap();
            let count = before.entry(request.url().path().to_owned()).or_default();
            *count += 1;
            match (request.url().path(), *count) {
                ("/refused", 1) => late(MS, respond(429)),
                ("/limited", 1) => late(MS, respond(503)),
                ("/slow", _) => late(10 * SEC, respond(200)),
                _ => late(MS, respond(200)),
            }
        }
    });
    let client = throttled(&server, retry(), throttle.seed(1));
    let response = start(&client, "refused").await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn a_503_of_a_limiter_waits_in_line_behind_a_throttle() {
    let (server, client) = at_a_pace(ThrottleMiddleware::builder()).await;
    let limited = start(&client, "limited");
    sleep(5 * SEC).await;
    assert_eq!(server.count(), 3, "it waits for a success");
    succeed(&client).await;
    let response = limited.await.unwrap().unwrap();
    assert_eq!((response.status().as_u16(), server.count()), (200, 5));
    let report = RetryReport::of(&response).unwrap();
    let reasons: Vec<_> = report.attempts().map(|it| it.wait_reason()).collect();
    assert_eq!(reasons, [None, Some(WaitReason::Budget)]);
    assert!(report.waited() >= 5 * SEC, "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_released_call_that_the_throttle_refuses_keeps_its_503() {
    // `/ok` has a gate for itself.
    let key = KeyBy::from_fn(|request| (request.url().path() == "/ok").to_string());
    let throttle = ThrottleMiddleware::builder().key_by(key).max_in_flight(1);
    let (server, client) = at_a_pace(throttle.max_queue_wait(500 * MS)).await;
    let limited = start(&client, "limited");
    sleep(SEC).await;
    let slow = start(&client, "slow");
    sleep(SEC).await;
    succeed(&client).await;
    // The released call finds the only slot taken.
    let response = limited.await.unwrap().unwrap();
    let report = RetryReport::of(&response).unwrap().clone();
    assert_eq!(report.stop_reason(), StopReason::Throttled);
    assert_eq!(response.status(), 503);
    assert_eq!(response.text().await.unwrap(), "body of 503");
    assert_eq!(slow.await.unwrap().unwrap().status(), 200);
    assert_eq!(paths(&server), ["refused", "refused", "limited", "slow"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_leaves_the_line_gives_its_allowance_back() {
    let server = refusing();
    let client = server.client(retry().build().unwrap());
    let scope = Scope::new().max_retries(1);
    let url = "http://api.example.com/a";
    let waiting = tokio::spawn({
        let (scope, call) = (scope.clone(), client.get(url).send());
        async move { scope.run(call).await }
    });
    sleep(SEC).await;
    waiting.abort();
    assert!(waiting.await.is_err());
    // The next call of the scope has the retry again, and the one after it has none.
    let waiting = tokio::spawn({
        let (scope, call) = (scope.clone(), client.get(url).send());
        async move { scope.run(call).await }
    });
    sleep(SEC).await;
    succeed(&client).await;
    let response = waiting.await.unwrap().unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::AllowanceSpent);
    assert_eq!(report.retries(), 1);
    assert_eq!(paths(&server), ["a", "a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_line_ends_the_call_at_once() {
    const MOST: usize = 10_000;
    let server = Server::new(|_| respond(429));
    let client = server.client(retry().build().unwrap());
    let calls: Vec<_> = (0..MOST).map(|_| start(&client, "a")).collect();
    sleep(SEC).await;
    assert_eq!(server.count(), MOST);
    let started = Instant::now();
    let late = client.get(URL).deadline(5 * SEC).send().await.unwrap();
    assert_eq!(started.elapsed(), 10 * MS, "only its backoff");
    let report = RetryReport::of(&late).unwrap();
    assert_eq!(report.stop_reason(), StopReason::BudgetEmpty);
    assert_eq!(late.text().await.unwrap(), "body of 429");
    // All leave at once, and the next call finds an empty line.
    calls.iter().for_each(JoinHandle::abort);
    join_all(calls).await;
    let waiting = start(&client, "b");
    sleep(SEC).await;
    assert!(!waiting.is_finished());
    waiting.abort();
    assert_eq!(server.count(), MOST + 2);
}

/// What observers see of the line.
type Seen = Arc<Mutex<Vec<(RetryScheduled, Option<BudgetWaited>)>>>;

fn observed(retry: RetryMiddlewareBuilder) -> (RetryMiddleware, Seen) {
    let seen = Seen::default();
    let kept = Arc::clone(&seen);
    let retry = retry.observe_fn(move |event| {
        let mut seen = kept.lock().unwrap();
        match event.kind {
            EventKind::RetryScheduled(scheduled) => seen.push((scheduled, None)),
            EventKind::BudgetWaited(waited) => seen.last_mut().unwrap().1 = Some(waited),
            _ => {}
        }
    });
    (retry.build().unwrap(), seen)
}

#[tokio::test(start_paused = true)]
async fn observers_and_the_report_see_the_line() {
    let server = Server::statuses([429, 200]);
    let (retry, seen) = observed(retry().budget(spent_budget()));
    let response = server.client(retry).get(URL).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    let last = report.attempts().next_back().unwrap();
    assert_eq!(last.wait_reason(), Some(WaitReason::Budget));
    assert_eq!((last.waited(), last.sent_at()), (510 * MS, 510 * MS));
    assert_eq!(report.waited(), 510 * MS);
    let seen = seen.lock().unwrap();
    let [(scheduled, Some(waited))] = seen[..] else {
        panic!("{seen:?}");
    };
    assert!(scheduled.in_line);
    assert_eq!(scheduled.reason, WaitReason::Backoff);
    assert_eq!((scheduled.wait, scheduled.budget), (10 * MS, 0.0));
    assert_eq!((waited.wait, waited.is_released), (500 * MS, true));
}

#[tokio::test(start_paused = true)]
async fn observers_see_a_wait_in_line_that_was_in_vain() {
    let server = Server::statuses([429]);
    let (retry, seen) = observed(retry().deadline(SEC));
    server.client(retry).get(URL).send().await.unwrap();
    let seen = seen.lock().unwrap();
    let [(scheduled, Some(waited))] = seen[..] else {
        panic!("{seen:?}");
    };
    assert!(scheduled.in_line);
    assert_eq!((waited.wait, waited.is_released), (988 * MS, false));
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn the_time_in_line_is_measured() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let _measured = metrics::set_default_local_recorder(&recorder);
    let server = Server::statuses([429, 429, 200]);
    let retry = retry().budget(spent_budget());
    let retry = retry.observer(reqwest_steady::observe::Metrics::new());
    let client = server.client(retry.build().unwrap());
    client.get(URL).send().await.unwrap();
    let all = recorder.snapshotter().snapshot().into_vec();
    let (_, _, _, value) = all
        .iter()
        .find(|(key, _, _, _)| key.key().name() == "steady_retry_budget_wait_seconds")
        .unwrap();
    let expected = [0.5, 1.0].map(Into::into);
    assert_eq!(*value, DebugValue::Histogram(expected.into()));
}

#[tokio::test(start_paused = true)]
async fn a_client_alone_at_a_rate_limit_brings_all_calls_through() {
    // 50 requests per 100 ms are accepted, and 300 calls come at once.
    let window = Mutex::new((Instant::now(), 0));
    let server = Server::new(move |_| {
        let mut window = window.lock().unwrap();
        if window.0.elapsed() >= 100 * MS {
            *window = (Instant::now(), 0);
        }
        window.1 += 1;
        let status = if window.1 <= 50 { 200 } else { 429 };
        late(2 * MS, respond(status))
    });
    let client = server.client(RetryMiddleware::builder().seed(1).build().unwrap());
    let calls: Vec<_> = (0..300).map(|_| start(&client, "a")).collect();
    for response in join_all(calls).await {
        assert_eq!(response.unwrap().unwrap().status(), 200);
    }
    let requests = server.count();
    assert!(requests <= 3 * 300, "{requests}");
}

/// A body is read before the wait, so that its connection is free.
#[tokio::test(start_paused = true)]
async fn the_last_response_is_read_before_the_wait_in_line() {
    let server = Server::new(|_| {
        let body = futures_util::stream::iter(["some ", "text"].map(Ok::<_, std::io::Error>));
        let response = http::Response::builder().status(429);
        Reply::response(response.body(reqwest::Body::wrap_stream(body)).unwrap())
    });
    let client = server.client(retry().build().unwrap());
    let response = client.get(URL).deadline(SEC).send().await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.text().await.unwrap(), "some text");
}
