//! How a throttle and the retry around it work together, and ways in which a gate could get stuck.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use futures_util::future::join_all;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error};
use reqwest_steady::observe::RefusalReason;
use reqwest_steady::{
    Budget, ReportSlot, RequestBuilderExt, RetryMiddlewareBuilder, RetryReport, SteadyError,
    StopReason, ThrottleMiddleware, ThrottleMiddlewareBuilder,
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::scripted::{
    Reply, Server, URL, assert_few_requests_arrive, call, late, respond, respond_with, throttled,
    with_a_hanging_probe,
};
use crate::support::stacks::{MS, SEC, fixed_budget, retry_after};

/// Retries after 1 s.
fn retry() -> RetryMiddlewareBuilder {
    retry_after(SEC).seed(1)
}

fn throttle() -> ThrottleMiddlewareBuilder {
    ThrottleMiddleware::builder().seed(1)
}

/// One request at a time, and no queue.
fn one_slot() -> ThrottleMiddlewareBuilder {
    throttle().adaptive(false).max_in_flight(1).max_queue(0)
}

fn succeeded(results: &[Result<u16, Error>]) -> usize {
    let successes = results.iter().filter(|result| matches!(result, Ok(200)));
    successes.count()
}

/// Sends these statuses, one after another, and then nothing.
fn then_silence(statuses: Vec<u16>) -> Arc<Server> {
    Server::new(move |index| match statuses.get(index) {
        Some(status) => respond(*status),
        None => Reply::silence(),
    })
}

/// Takes the only slot for a minute, after 500 ms.
async fn take_the_slot(client: &ClientWithMiddleware) {
    sleep(500 * MS).await;
    let _ = call(client, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_token_was_taken_is_woken_again() {
    // One token per second. A retry takes it before the call that waited for it.
    let server = Server::new(|index| match index {
        0 => respond(500),
        _ => late(100 * MS, respond(200)),
    });
    let throttle = throttle().adaptive(false).max_in_flight(1).rate(1.0, 1);
    let client = throttled(&server, retry(), throttle);
    let start = Instant::now();
    let (first, second) = tokio::join!(call(&client, 0), async {
        sleep(10 * MS).await;
        (call(&client, 1).await, start.elapsed())
    });
    assert!(first.is_ok() && second.0.is_ok());
    assert!(second.1 < 3 * SEC, "{:?}", second.1);
}

#[tokio::test(start_paused = true)]
async fn an_admitted_call_that_is_never_polled_gives_all_back() {
    let server = Server::new(|_| late(50 * MS, respond(200)));
    let throttle = throttle().adaptive(false).max_in_flight(1).rate(0.1, 3);
    let client = throttled(&server, retry(), throttle);
    let first = tokio::spawn({
        let client = client.clone();
        async move { call(&client, 0).await }
    });
    tokio::task::yield_now().await;
    {
        let mut dropped = pin!(call(&client, 1));
        let pending = dropped
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(pending.is_pending());
        assert!(first.await.unwrap().is_ok());
        // The first call made room, but the second is not polled.
    }
    let start = Instant::now();
    assert!(call(&client, 2).await.is_ok());
    assert!(call(&client, 3).await.is_ok());
    assert_eq!(start.elapsed(), 100 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_body_gets_the_time_of_its_attempt_despite_the_queue() {
    let server = Server::new(|_| late(900 * MS, respond(200)));
    let throttle = throttle().adaptive(false).max_in_flight(1);
    let client = throttled(&server, retry().attempt_timeout(SEC), throttle);
    let calls = (0..4).map(|name| {
        let url = format!("http://api.example.com/{name}");
        client.post(url).body("pay").buffer_response(1000).send()
    });
    for result in join_all(calls).await {
        let response = result.unwrap();
        assert_eq!(RetryReport::of(&response).unwrap().retries(), 0);
        assert_eq!(response.text().await.unwrap(), "body of 200");
    }
    assert_eq!(server.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_queue_does_not_count_for_a_requests_own_attempt_timeout() {
    let server = Server::new(|index| match index {
        0..4 => late(900 * MS, respond(200)),
        _ => Reply::silence(),
    });
    let throttle = throttle().adaptive(false).max_in_flight(1);
    let client = throttled(&server, retry(), throttle);
    let send = |name| {
        let url = format!("http://api.example.com/{name}");
        client.get(url).max_retries(0).attempt_timeout(SEC).send()
    };
    let started = Instant::now();
    let results = join_all((0..6).map(send)).await;
    // Four take 900 ms each, one after another, and the last two are cut off after 1 s.
    let (succeeded, cut) = results.split_at(4);
    for result in succeeded {
        assert_eq!(result.as_ref().unwrap().status(), 200);
    }
    for result in cut {
        let timed_out = SteadyError::of(result.as_ref().unwrap_err()).unwrap();
        assert_eq!(timed_out.time_limit().unwrap(), SEC);
    }
    assert_eq!(started.elapsed(), 4 * 900 * MS + 2 * SEC);
    assert_eq!(
        server.gaps(),
        [900, 900, 900, 900, 1000].map(|gap| gap * MS)
    );
}

#[tokio::test(start_paused = true)]
async fn any_retried_response_comes_back_if_its_retry_is_refused() {
    for status in [408, 425, 500] {
        let server = Server::new(move |index| match index {
            0 => respond(status),
            _ => late(60 * SEC, respond(200)),
        });
        let (budget, full) = fixed_budget();
        let client = throttled(&server, retry().budget(budget.clone()), one_slot());
        let (response, balance) = tokio::join!(
            async {
                let response = client.get(URL).send().await.unwrap();
                (response, budget.balance())
            },
            take_the_slot(&client)
        )
        .0;
        assert_eq!(response.status(), status);
        let stop = RetryReport::of(&response).unwrap().stop_reason();
        assert_eq!(stop, StopReason::Throttled);
        assert_eq!(balance, full, "an unsent retry is not paid");
        assert_eq!(response.text().await.unwrap(), format!("body of {status}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_body_comes_back_if_its_retry_is_refused() {
    let server = Server::new(|index| match index {
        0 => {
            let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            let cut = futures_util::stream::iter([Ok("some"), Err(reset)]);
            Reply::response(http::Response::new(reqwest::Body::wrap_stream(cut)))
        }
        _ => late(60 * SEC, respond(200)),
    });
    let client = throttled(&server, retry(), one_slot());
    let request = client.get(URL).buffer_response(1000).send();
    let (result, ()) = tokio::join!(request, take_the_slot(&client));
    let error = result.unwrap_err();
    assert!(SteadyError::of(&error).is_none(), "{error:?}");
    assert!(error.is_decode() || error.is_body(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refund_comes_with_the_response_not_with_the_extensions() {
    let server = Server::new(|index| match index {
        0 => respond(503),
        _ => late(60 * SEC, respond(200)),
    });
    let (budget, full) = fixed_budget();
    let client = throttled(&server, retry().budget(budget.clone()), one_slot());
    let mut extensions = http::Extensions::new();
    let request = client.get(URL).build().unwrap();
    let blocker = tokio::spawn({
        let client = client.clone();
        async move { take_the_slot(&client).await }
    });
    let result = client
        .execute_with_extensions(request, &mut extensions)
        .await;
    assert_eq!(result.unwrap().status(), 503);
    assert_eq!(budget.balance(), full);
    blocker.abort();
}

#[tokio::test(start_paused = true)]
async fn nested_retries_pay_the_same_with_and_without_a_throttle() {
    let mut outcomes = Vec::new();
    for throttled in [false, true] {
        let server = Server::statuses([503]);
        let budget = Budget::builder()
            .retry_ratio(0.0)
            .min_retries_per_sec(100.0);
        let budget = budget.build().unwrap();
        let full = budget.balance();
        let with = |retries| {
            let retry = retry().max_retries(retries).budget(budget.clone());
            retry.build().unwrap()
        };
        let mut builder = ClientBuilder::new(reqwest::Client::new());
        builder = builder.with(with(6)).with(with(1));
        if throttled {
            builder = builder.with(throttle().adaptive(false).build().unwrap());
        }
        let client = builder.with_arc(server.clone()).build();
        assert_eq!(call(&client, 0).await.unwrap(), 503);
        outcomes.push((server.count(), full - budget.balance()));
    }
    // Without a throttle, the last failure takes half a retry of the reserve as well.
    assert_eq!(outcomes, [(7, 6.5), (7, 6.0)]);
}

#[tokio::test(start_paused = true)]
async fn no_retry_leaves_the_queue_after_its_window_has_closed() {
    let server = Server::new(|index| match index {
        0 => respond(503),
        1 => late(20 * SEC, respond(200)),
        _ => respond(200),
    });
    let throttle = throttle().adaptive(false).max_in_flight(1);
    let client = throttled(&server, retry().retry_window(2 * SEC), throttle);
    let start = Instant::now();
    let (response, ()) = tokio::join!(
        async {
            let response = client.get(URL).send().await.unwrap();
            assert!(start.elapsed() <= 2 * SEC + MS);
            response
        },
        take_the_slot(&client)
    );
    assert_eq!(response.status(), 503);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pause_longer_than_max_wait_is_kept() {
    for status in [429, 503] {
        let server = Server::new(move |index| match index {
            0 => respond_with(status, &[("retry-after", "45")]),
            _ => respond(200),
        });
        let client = throttled(&server, retry(), throttle());
        let start = Instant::now();
        assert_eq!(call(&client, 0).await.unwrap(), 200);
        assert!(start.elapsed() >= 45 * SEC && start.elapsed() <= 47 * SEC);
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_does_not_close_the_gate() {
    let (_, client) = with_a_hanging_probe().await;
    let (hung, results) = tokio::join!(
        timeout(60 * SEC, call(&client, 5)),
        join_all((6..30).map(|name| call(&client, name)))
    );
    assert!(hung.is_err());
    assert_eq!(succeeded(&results), 24, "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn long_polls_do_not_keep_others_out() {
    let server = Server::new(|index| match index {
        0..16 => late(300 * SEC, respond(200)),
        _ => respond(200),
    });
    let client = throttled(&server, retry(), throttle());
    let start = Instant::now();
    let (polls, other) = tokio::join!(join_all((0..16).map(|name| call(&client, name))), async {
        sleep(MS).await;
        (call(&client, 99).await, start.elapsed())
    });
    assert_eq!(succeeded(&polls), 16);
    assert_eq!(other.0.unwrap(), 200);
    assert!(other.1 <= SEC + MS, "{:?}", other.1);
}

#[tokio::test(start_paused = true)]
async fn an_old_refusal_does_not_slow_later_calls() {
    let server = Server::new(|index| match index {
        10 => respond(429),
        _ => late(2 * MS, respond(200)),
    });
    let client = throttled(&server, retry(), throttle());
    for name in 0..20 {
        assert_eq!(call(&client, name).await.unwrap(), 200);
        sleep(700 * MS).await;
    }
    sleep(3600 * SEC).await;
    let start = Instant::now();
    let results = join_all((0..1000).map(|name| call(&client, name))).await;
    assert_eq!(succeeded(&results), 1000);
    assert!(start.elapsed() < 50 * MS, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn callers_that_lose_interest_do_not_slow_others() {
    let server = Server::new(|_| late(200 * MS, respond(200)));
    let client = throttled(&server, retry(), throttle());
    for name in 0..5 {
        assert!(timeout(150 * MS, call(&client, name)).await.is_err());
    }
    let start = Instant::now();
    let results = join_all((0..200).map(|name| call(&client, name))).await;
    assert_eq!(succeeded(&results), 200);
    assert!(start.elapsed() < SEC, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn random_gateway_timeouts_do_not_slow_calls() {
    for (status, delay) in [(504, 50), (504, 200)] {
        let server = Server::new(move |index| {
            let spread = (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            let status = if spread % 100 == 0 { status } else { 200 };
            late(delay * MS, respond(status))
        });
        let client = throttled(&server, retry(), throttle());
        let calls = (0..5000_u32).map(|index| {
            let client = &client;
            async move {
                sleep(index * 2 * MS).await;
                let start = Instant::now();
                (call(client, index as usize).await, start.elapsed())
            }
        });
        let mut results = join_all(calls).await;
        assert!(results.iter().all(|(result, _)| matches!(result, Ok(200))));
        results.sort_by_key(|(_, took)| *took);
        assert_eq!(results[2500].1, delay * MS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fast_fixed_rate_is_reached_though_timers_are_coarse() {
    let server = Server::statuses([200]);
    let throttle = throttle().adaptive(false).rate(5000.0, 1);
    let client = throttled(&server, retry(), throttle);
    let start = Instant::now();
    let results = join_all((0..1000).map(|name| call(&client, name))).await;
    assert_eq!(succeeded(&results), 1000);
    let took = start.elapsed();
    assert!(took >= 195 * MS && took <= 205 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_was_counted_late_refuses_no_call() {
    // The server counts 16 requests before it responds to the first.
    let server = Server::new(|index| {
        let left = if index < 16 { "10" } else { "9" };
        let headers = [("x-ratelimit-remaining", left), ("x-ratelimit-reset", "60")];
        let after = 20 * MS + (index as u32 % 16) * MS;
        late(after, respond_with(200, &headers))
    });
    let client = throttled(&server, retry(), throttle());
    let results = join_all((0..20).map(|name| call(&client, name))).await;
    assert_eq!(succeeded(&results), 20, "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_lies_does_not_close_the_gate_forever() {
    let server = Server::new(|_| {
        let headers = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "3600"),
        ];
        respond_with(200, &headers)
    });
    let client = throttled(&server, retry(), throttle());
    assert_eq!(call(&client, 0).await.unwrap(), 200);
    assert!(call(&client, 1).await.is_err());
    sleep(3600 * SEC).await;
    for name in 2..100 {
        assert_eq!(call(&client, name).await.unwrap(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_always_refuses_gets_few_requests() {
    for headers in [&[][..], &[("retry-after", "0")], &[("retry-after", "1")]] {
        let server = Server::new(move |_| late(5 * MS, respond_with(429, headers)));
        let client = throttled(&server, retry(), throttle());
        assert_few_requests_arrive(&server, &client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_how_long_those_ahead_will_take() {
    let server = Server::new(|_| late(10 * SEC, respond(200)));
    let client = throttled(&server, retry(), throttle().max_in_flight(4).max_queue(4));
    // The throttle learns from this call how long a response takes.
    assert!(call(&client, 0).await.is_ok());
    let (_, refused) = tokio::join!(join_all((0..8).map(|name| call(&client, name))), async {
        sleep(MS).await;
        call(&client, 9).await
    });
    let error = refused.unwrap_err();
    let refusal = SteadyError::of(&error).unwrap();
    assert_eq!(refusal.refusal_reason(), Some(RefusalReason::QueueFull));
    // Four calls ahead, and this one, four at a time.
    assert_eq!(refusal.retry_after().unwrap(), 12_500 * MS);
}

#[tokio::test(start_paused = true)]
async fn clients_that_are_refused_together_do_not_come_back_together() {
    let again = |seed| async move {
        let server = Server::statuses([429, 200]);
        let client = throttled(&server, retry().seed(seed), throttle().seed(seed));
        assert_eq!(call(&client, 0).await.unwrap(), 200);
        server.gaps()[0]
    };
    let mut waits = Vec::new();
    for seed in 0..20 {
        waits.push(again(seed).await);
    }
    waits.sort();
    assert!(waits[0] >= 100 * MS && waits[19] <= 126 * MS, "{waits:?}");
    waits.dedup();
    assert!(waits.len() > 8, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_comes_back_if_its_retry_is_refused() {
    let server = Server::new(|_| Reply::silence());
    let retry = retry().attempt_timeout(20 * MS);
    // After the first attempt, the rate allows none for a minute.
    let throttle = throttle().rate(1.0 / 60.0, 1).max_queue_wait(SEC);
    let client = throttled(&server, retry, throttle);
    let slot = ReportSlot::new();
    let error = client.get(URL).report_to(&slot).send().await.unwrap_err();
    assert!(
        SteadyError::of(&error).is_some_and(SteadyError::is_timeout),
        "{error}"
    );
    let report = slot.get().unwrap();
    assert_eq!(report.stop_reason(), StopReason::Throttled);
    assert_eq!(report.attempts().count(), 1);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn behind_a_throttle_a_deadline_takes_no_reserve() {
    // Behind a throttle, only the retry that was sent is paid. Alone, the last failure takes half a retry.
    for (is_throttled, statuses, taken) in [
        (true, &[][..], 0.0),
        (true, &[503], 1.0),
        (false, &[], 0.5),
        (false, &[503], 1.5),
    ] {
        // The first call of a client looks for what is further inside. Later calls have to know.
        for calls_before in [0, 1] {
            let server = then_silence([&[200][..calls_before], statuses].concat());
            let (budget, full) = fixed_budget();
            let retry = retry().budget(budget.clone());
            let client = match is_throttled {
                true => throttled(&server, retry, throttle()),
                false => server.client(retry.build().unwrap()),
            };
            for name in 0..calls_before {
                assert_eq!(call(&client, name).await.unwrap(), 200);
            }
            let start = Instant::now();
            let error = client.get(URL).deadline(3 * SEC).send().await.unwrap_err();
            assert!(SteadyError::of(&error).is_some_and(SteadyError::is_deadline));
            assert_eq!(start.elapsed(), 3 * SEC);
            assert_eq!(server.count(), calls_before + statuses.len() + 1);
            let case = format!("{is_throttled}, {statuses:?} after {calls_before}");
            assert_eq!(full - budget.balance(), taken, "{case}");
        }
    }
}

/// Refuses one call because a quota is used up. Its reset is a timestamp, 20 s after `date`.
fn spent_until(date: &str) -> (Arc<Server>, ClientWithMiddleware) {
    let date = date.to_owned();
    let server = Server::new(move |index| {
        let mut headers = vec![
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "4102444820"),
        ];
        if !date.is_empty() {
            headers.push(("date", &date));
        }
        match index {
            0 => respond_with(429, &headers),
            _ => respond(200),
        }
    });
    let client = throttled(&server, retry(), throttle());
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn a_timestamp_without_a_date_pauses_no_other_call() {
    // By the clock of the client, the reset is decades away. By that of the server it may be near.
    for (date, waits) in [("Fri, 01 Jan 2100 00:00:00 GMT", true), ("", false)] {
        let (server, client) = spent_until(date);
        assert_eq!(
            client.get(URL).no_retry().send().await.unwrap().status(),
            429
        );
        let start = Instant::now();
        let _ = call(&client, 1).await;
        let took = start.elapsed();
        assert_eq!(server.count(), 2, "{date}");
        assert_eq!(took >= 20 * SEC, waits, "{date}: {took:?}");
        assert!(took < 22 * SEC, "{date}: {took:?}");
    }
}
