//! What a verdict means for the rest of a call: waits, budget, other rules, and middlewares around the retry.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::join_all;
use reqwest::StatusCode;
use reqwest_steady::download::DownloadExt;
use reqwest_steady::observe::EventKind;
use reqwest_steady::{CoalesceMiddleware, RetryMiddleware, StatusClass};

use super::*;
use crate::support::file_server::{Hosted, Then, serve};
use crate::support::scripted::stacked;
use crate::support::stacks::{fixed_budget, middleware};

/// Retries a body that says "again" after this time.
fn again_after(wait: Duration) -> RetryMiddlewareBuilder {
    quick().inspect_body(Inspect::all(), move |attempt, start| {
        by_word(attempt, start).map(|verdict| verdict.after(wait))
    })
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_the_body_stays_within_window_and_deadline() {
    for (retry, reason) in [
        (
            again_after(9 * SEC).deadline(8 * SEC),
            StopReason::DeadlineTooClose,
        ),
        (
            again_after(9 * SEC).retry_window(8 * SEC),
            StopReason::WindowClosed,
        ),
        (again_after(Duration::MAX), StopReason::ServerDelayTooLong),
        (
            again_after(Duration::MAX).max_server_delay(Duration::MAX),
            StopReason::WindowClosed,
        ),
    ] {
        let server = Server::new(|_| Reply::status(200).body("again"));
        let start = Instant::now();
        let response = client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!((server.count(), start.elapsed()), (1, Duration::ZERO));
        assert_eq!(stop_reason(&response), reason);
        assert_eq!(response.text().await.unwrap(), "again");
    }
    // No wait at all is no hint, and a zero one leaves the backoff.
    let server = Server::new(|index| Reply::status(200).body(["again", "fine"][index]));
    let response = client(&server, again_after(Duration::ZERO))
        .get(URL)
        .send()
        .await
        .unwrap();
    assert_eq!((server.count(), server.gaps()), (2, vec![MS]));
    assert_eq!(response.text().await.unwrap(), "fine");
}

#[tokio::test(start_paused = true)]
async fn a_letter_waits_for_the_longer_of_both_hints() {
    for (in_body, in_header, pause) in [(50, 20, 50), (20, 50, 50), (20, 0, 20)] {
        let server = Server::new(move |_| {
            let reply = Reply::status(429).body("again");
            reply.header("retry-after", &in_header.to_string())
        });
        let (sink, mut letters) = dead_letter_channel(1);
        let retry = again_after(in_body * SEC).max_retries(1);
        let retry = retry.dead_letter_sink(sink);
        let before = std::time::SystemTime::now();
        let response = client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!(stop_reason(&response), StopReason::RetriesExhausted);
        let letter = letters.recv().await.unwrap();
        let not_before = letter.not_before().duration_since(before).unwrap();
        // The wall clock does not stand still.
        let pause = pause * SEC;
        assert!(
            not_before >= pause && not_before < pause + 5 * SEC,
            "{not_before:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_verdict_replaces_the_class_of_other_rules() {
    let by_status = || quick().status(StatusCode::OK, StatusClass::Conditional);
    let by_function = || quick().classify_fn(|_| Some(StatusClass::Conditional));
    let never = || quick().classify_fn(|_| Some(StatusClass::Never));
    for (retry, status, word, requests) in [
        (by_status(), 200, "nothing", 2),
        (by_status(), 200, "stop", 1),
        (by_function(), 200, "nothing", 2),
        (by_function(), 200, "stop", 1),
        (never(), 503, "nothing", 1),
        (never(), 503, "again", 2),
        (never(), 200, "again", 2),
    ] {
        let server = Server::new(move |index| match index {
            0 => Reply::status(status).body(word),
            _ => Reply::status(404).body("stop"),
        });
        let retry = retry.inspect_body(Inspect::all(), by_word);
        client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!(server.count(), requests, "{status} {word}");
        assert_eq!(server.gaps(), vec![MS; requests - 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_for_errors_judges_each_error_and_no_success() {
    for (status, requests) in [(200, 1), (400, 2), (404, 2), (503, 2)] {
        let server = Server::new(move |index| match index {
            0 => Reply::status(status).body("again"),
            _ => Reply::status(200).body("nothing"),
        });
        let retry = quick().inspect_body(Inspect::errors(), by_word);
        client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!(server.count(), requests, "{status}");
        assert_eq!(server.gaps(), vec![MS; requests - 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_final_response_feeds_the_budget() {
    for (status, word, stop, feeds) in [
        (200, "nothing", StopReason::Succeeded, true),
        (404, "nothing", StopReason::NotRetryable, true),
        // As final as a 404.
        (200, "stop", StopReason::NotRetryable, true),
        (503, "stop", StopReason::NotRetryable, false),
        // The server has no room, also if a retry does not help.
        (429, "stop", StopReason::NotRetryable, false),
        (200, "again", StopReason::RetriesExhausted, false),
        (200, "perhaps", StopReason::RetriesExhausted, false),
        (404, "again", StopReason::RetriesExhausted, false),
    ] {
        let server = Server::new(move |_| Reply::status(status).body(word));
        let budget = saved_budget(10);
        let retry = quick().budget(budget.clone()).max_retries(1);
        let retry = retry.inspect_body(Inspect::all(), by_word);
        let response = client(&server, retry).get(URL).send().await.unwrap();
        let place = format!("{status} {word}");
        assert_eq!(stop_reason(&response), stop, "{place}");
        let paid = server.count() as f64 - 1.0;
        let earned = if feeds { 1.0 } else { 0.0 };
        assert_eq!(budget.balance(), 10.0 - paid + earned, "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_429_that_is_final_releases_no_call_in_line() {
    let server = Server::by_request(|request| match request.url().path() {
        "/unpaid" => Reply::status(429).body("stop"),
        _ => Reply::status(429).body("busy"),
    });
    let retry = quick().budget(crate::support::stacks::empty_budget());
    let retry = retry
        .retry_window(20 * SEC)
        .inspect_body(Inspect::errors(), by_word);
    let client = client(&server, retry);
    let unpaid = async {
        tokio::time::sleep(SEC).await;
        let unpaid = client.get("http://api.example.com/unpaid").send().await;
        assert_eq!(stop_reason(&unpaid.unwrap()), StopReason::NotRetryable);
    };
    let (response, ()) = tokio::join!(client.get(URL).send(), unpaid);
    assert_eq!(response.unwrap().status(), 429);
    assert_eq!(server.count(), 2, "no call was released");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_function_costs_only_its_call() {
    for status in [200, 503] {
        let server = Server::new(move |index| match index {
            0 | 1 => Reply::status(status).body(["again", "panic"][index]),
            _ => Reply::status(200).body("fine"),
        });
        let (budget, full) = fixed_budget();
        let abandoned = Arc::new(Mutex::new(0));
        let count = abandoned.clone();
        let retry = quick().budget(budget.clone()).observe_fn(move |event| {
            let is_abandoned = matches!(event.kind, EventKind::Abandoned(_));
            *count.lock().unwrap() += u32::from(is_abandoned);
        });
        let retry = retry.inspect_body(Inspect::all(), |attempt, start| {
            assert!(start.text() != "panic", "a function that panics");
            by_word(attempt, start)
        });
        let throttle = ThrottleMiddleware::builder()
            .adaptive(false)
            .max_in_flight(1);
        let client = throttled(&server, retry, throttle);
        let call = AssertUnwindSafe(client.get(URL).send());
        assert!(call.catch_unwind().await.is_err());
        assert_eq!((server.count(), *abandoned.lock().unwrap()), (2, 1));
        assert_eq!(budget.balance(), full - 1.0, "one retry was sent");
        // Its slot is free.
        let response = client.get(URL).send().await.unwrap();
        assert_eq!((response.status().as_u16(), server.count()), (200, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_learns_from_the_status_alone() {
    // A 200 is a success for it: the retry is paid, waits as long as a backoff, and no other call is delayed.
    let server = Server::by_request(|request| match request.url().path() {
        "/other" => respond(200),
        _ => Reply::status(200).body("again"),
    });
    let budget = saved_budget(10);
    let retry = retry_after(4 * SEC).budget(budget.clone()).max_retries(1);
    let retry = retry.inspect_body(Inspect::all(), by_word);
    let client = throttled(&server, retry, ThrottleMiddleware::builder());
    let start = Instant::now();
    let other = async {
        tokio::time::sleep(SEC).await;
        client
            .get("http://api.example.com/other")
            .send()
            .await
            .unwrap();
        start.elapsed()
    };
    let (response, other) = tokio::join!(client.get(URL).send(), other);
    assert_eq!((other, start.elapsed()), (SEC, 4 * SEC));
    // The other call has added one.
    assert_eq!((server.count(), budget.balance()), (3, 10.0));
    assert_eq!(
        stop_reason(&response.unwrap()),
        StopReason::RetriesExhausted
    );

    // A 429 closes its gate, even if the body makes it final.
    let server = Server::new(|index| match index {
        0 => Reply::status(429).header("retry-after", "7").body("stop"),
        _ => respond(200),
    });
    let retry = quick().inspect_body(Inspect::errors(), by_word);
    let client = throttled(&server, retry, ThrottleMiddleware::builder());
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(stop_reason(&response), StopReason::NotRetryable);
    assert_eq!(client.get(URL).send().await.unwrap().status(), 200);
    assert_eq!(server.count(), 2);
    assert!(server.gaps()[0] >= 7 * SEC, "{:?}", server.gaps());
}

#[tokio::test(start_paused = true)]
async fn errors_in_200s_behind_a_throttle_stay_within_the_budget() {
    let server = Server::new(|_| Reply::status(200).body("again"));
    let retry = quick().inspect_body(Inspect::all(), by_word);
    let client = throttled(&server, retry, ThrottleMiddleware::builder());
    for _ in 0..500 {
        client.get(URL).send().await.unwrap();
    }
    // The reserve of 20, and 2 per second as long as it lasts.
    assert!(server.count() <= 500 + 25, "{}", server.count());
}

#[tokio::test(start_paused = true)]
async fn retries_inside_retries_share_the_verdicts() {
    // Rules in the inner one, in the outer one, or in both: the call has four attempts in any case.
    let with = |retry: RetryMiddlewareBuilder| retry.inspect_body(Inspect::all(), by_word);
    for (outer, inner) in [
        (with(quick()), with(quick())),
        (with(quick()), quick()),
        (quick(), with(quick())),
    ] {
        let server = Server::new(|_| Reply::status(200).body("again"));
        let (outer, inner) = (outer.max_retries(3), inner.max_retries(3));
        let chain = [outer, inner].map(|retry| link(retry.build().unwrap()));
        let slot = ReportSlot::new();
        let put = server.client_behind(chain).put(URL).report_to(&slot);
        let response = put.send().await.unwrap();
        assert_eq!(server.count(), 4);
        assert_eq!(
            (slot.get().unwrap().retries(), slot.effect()),
            (3, Effect::Unknown)
        );
        assert_eq!(response.text().await.unwrap(), "again");
    }
}

#[tokio::test(start_paused = true)]
async fn followers_share_what_the_verdict_accepted() {
    let server = Server::new(|index| match index {
        0 => Reply::status(200).body("again"),
        _ => Reply::status(200).body("fine"),
    });
    let retry = quick()
        .inspect_body(Inspect::all(), by_word)
        .build()
        .unwrap();
    let chain = [link(CoalesceMiddleware::default()), link(retry)];
    let client = server.client_behind(chain);
    let calls = (0..5).map(|_| async { client.get(URL).send().await.unwrap().text().await });
    for text in join_all(calls).await {
        assert_eq!(text.unwrap(), "fine");
    }
    assert_eq!((server.count(), server.gaps()), (2, vec![MS]));
}

#[tokio::test(start_paused = true)]
async fn a_doubt_about_an_error_is_a_doubt_about_its_effect() {
    for (status, word, effect) in [
        (400, "nothing", Effect::DidNotHappen),
        (400, "stop", Effect::DidNotHappen),
        (400, "again", Effect::DidNotHappen),
        // The rule says that the request may have taken effect.
        (400, "perhaps", Effect::Unknown),
        (503, "stop", Effect::Unknown),
        (200, "nothing", Effect::Happened),
        (200, "stop", Effect::Unknown),
    ] {
        let server = Server::new(move |_| Reply::status(status).body(word));
        let retry = quick().inspect_body(Inspect::all(), by_word);
        let slot = ReportSlot::new();
        let post = client(&server, retry).post(URL).report_to(&slot);
        post.send().await.unwrap();
        assert_eq!(
            (server.count(), slot.effect()),
            (1, effect),
            "{status} {word}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_for_errors_adds_nothing_to_a_request() {
    let extensions = async |retry: RetryMiddlewareBuilder, method: &str| {
        let server = Server::statuses([200]);
        let seen = Arc::new(Mutex::new(None));
        let count = seen.clone();
        let counts = middleware(move |request, extensions, next| {
            *count.lock().unwrap() = Some(extensions.len());
            Box::pin(async move { next.run(request, extensions).await })
        });
        // Without the first call, the retry leaves a mark in case another one is inside.
        let client = server.client_behind([link(retry.build().unwrap()), link(counts)]);
        for _ in 0..2 {
            let method = method.parse().unwrap();
            client.request(method, URL).send().await.unwrap();
        }
        seen.lock().unwrap().unwrap()
    };
    let with = |what| quick().inspect_body(what, by_word);
    let plain = extensions(quick(), "GET").await;
    assert_eq!(extensions(with(Inspect::errors()), "GET").await, plain);
    // A throttle has to know that its successes may fail.
    assert_eq!(extensions(with(Inspect::all()), "GET").await, plain + 1);
    assert_eq!(extensions(with(Inspect::all()), "HEAD").await, plain);
}

#[tokio::test(start_paused = true)]
async fn every_attempt_counts_and_knows_its_number() {
    let server = Server::new(|_| Reply::status(200).body("again"));
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let seen = numbers.clone();
    let retry = quick()
        .max_retries(2)
        .inspect_body(Inspect::all(), move |attempt, start| {
            seen.lock()
                .unwrap()
                .push((attempt.attempt(), attempt.outcome()));
            by_word(attempt, start)
        });
    let response = client(&server, retry).get(URL).send().await.unwrap();
    assert_eq!((server.count(), server.gaps()), (3, vec![MS, 2 * MS]));
    assert_eq!(stop_reason(&response), StopReason::RetriesExhausted);
    let ok = reqwest_steady::observe::AttemptOutcome::Status(StatusCode::OK);
    assert_eq!(*numbers.lock().unwrap(), [(1, ok), (2, ok), (3, ok)]);
}

#[tokio::test(start_paused = true)]
async fn a_client_inside_a_client_inspects_alone() {
    // Another client inside the chain has its own rules. The outer retry sees its last response.
    let server = Server::new(|_| Reply::status(200).body("again"));
    let inner = quick().max_retries(2).inspect_body(Inspect::all(), by_word);
    let outer: RetryMiddleware = quick().build().unwrap();
    let client = stacked(outer, client(&server, inner));
    let slot = ReportSlot::new();
    let put = client.put(URL).report_to(&slot);
    assert_eq!(put.send().await.unwrap().text().await.unwrap(), "again");
    assert_eq!((server.count(), slot.effect()), (3, Effect::Unknown));
}

#[tokio::test(start_paused = true)]
async fn an_inspected_download_goes_on_where_it_broke() {
    let file = Hosted::new((0..=255).collect::<Vec<u8>>());
    for (limit, offset, range) in [
        (0, 150, Some("bytes=150-")),
        (100, 150, Some("bytes=150-")),
        // The response that breaks within the limit is a failed attempt. It begins again.
        (1000, 150, None),
        (100, 0, None),
    ] {
        let hosted = file.clone();
        let server = serve(move |index, request| match index {
            0 => hosted.reply(request, offset, Then::Fail),
            _ => hosted.reply(request, 256, Then::End),
        });
        let seen = Seen::default();
        let retry = seen.watch(quick(), Inspect::all().limit(limit));
        let mut download = client(&server, retry).get(URL).download().await.unwrap();
        let mut read = Vec::new();
        while let Some(chunk) = download.chunk().await.unwrap() {
            read.extend_from_slice(&chunk);
        }
        assert_eq!(read, *file.bytes, "limit {limit}, {offset}");
        assert_eq!(server.count(), 2);
        let asked = server.received()[1].headers.get("range").cloned();
        let asked = asked.as_ref().map(|range| range.to_str().unwrap());
        assert_eq!(asked, range, "limit {limit}, {offset}");
        let start = &file.bytes[range.map_or(0, |_| 150)..];
        let last = seen.all().pop().unwrap();
        assert_eq!(last.0, start[..limit.min(start.len())]);
    }
}
