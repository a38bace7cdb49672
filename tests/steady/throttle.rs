//! What a throttle lets through, when, and how it refuses the rest.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_middleware::{ClientBuilder, Error};
use reqwest_steady::observe::{Attempt, FailureKind, RefusalReason};
use reqwest_steady::{
    Budget, KeyBy, ReportSlot, RequestBuilderExt, RetryMiddleware, RetryMiddlewareBuilder,
    RetryReport, Scope, SteadyError, StopReason, ThrottleMiddleware, ThrottleMiddlewareBuilder,
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::log::Log;
use crate::support::scripted::{
    Reply, Server, URL, call, dripping, late, respond, respond_with, throttled,
    with_a_hanging_probe,
};
use crate::support::stacks::{MS, SEC, doubling, saved_budget};

fn retry() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder().seed(1)
}

fn throttle() -> ThrottleMiddlewareBuilder {
    ThrottleMiddleware::builder().seed(1)
}

/// A throttle without adaptive limits.
fn fixed() -> ThrottleMiddlewareBuilder {
    throttle().adaptive(false)
}

fn names(server: &Server) -> Vec<usize> {
    let arrivals = server.received().into_iter();
    let name = |url: reqwest::Url| url.path()[1..].parse().unwrap();
    arrivals.map(|arrival| name(arrival.url)).collect()
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: &Result<T, Error>) -> &SteadyError {
    SteadyError::of(result.as_ref().unwrap_err()).expect("a refusal")
}

#[tokio::test(start_paused = true)]
async fn the_limit_in_flight_holds_and_the_rest_waits_in_order() {
    let server = Server::new(|_| late(10 * MS, respond(200)));
    let client = throttled(&server, retry(), fixed().max_in_flight(3));
    let calls = (0..9).map(|name| call(&client, name));
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(names(&server), (0..9).collect::<Vec<_>>());
    let gaps = server.gaps();
    let waits: Vec<_> = gaps.iter().filter(|gap| **gap > Duration::ZERO).collect();
    assert_eq!(waits, [&(10 * MS), &(10 * MS)]);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_rate_lets_a_burst_through_and_then_one_at_a_time() {
    let server = Server::statuses([200]);
    let client = throttled(&server, retry(), fixed().rate(10.0, 3));
    let start = Instant::now();
    join_all((0..6).map(|name| call(&client, name))).await;
    let at = |index: usize| server.received()[index].at - start;
    assert_eq!([at(0), at(1), at(2)], [Duration::ZERO; 3]);
    assert_eq!([at(3), at(4), at(5)], [100 * MS, 200 * MS, 300 * MS]);
    // Idle time fills the bucket up to its burst.
    sleep(10 * SEC).await;
    let start = Instant::now();
    join_all((6..10).map(|name| call(&client, name))).await;
    let at = |index: usize| server.received()[index].at - start;
    assert_eq!([at(6), at(7), at(8)], [Duration::ZERO; 3]);
    assert_eq!(at(9), 100 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_at_once_and_says_so() {
    let server = Server::new(|_| late(SEC, respond(200)));
    let client = throttled(&server, retry(), fixed().max_in_flight(1).max_queue(2));
    let start = Instant::now();
    let slot = ReportSlot::new();
    let (first, refused) = tokio::join!(join_all((0..3).map(|name| call(&client, name))), async {
        sleep(MS).await;
        let result = client.get(URL).report_to(&slot).send().await;
        (result, start.elapsed())
    });
    assert!(first.iter().all(Result::is_ok));
    let (result, elapsed) = refused;
    assert_eq!(elapsed, MS);
    let refusal = refusal(&result);
    assert_eq!(refusal.refusal_reason(), Some(RefusalReason::QueueFull));
    assert_eq!(refusal.key(), Some("api.example.com"));
    assert_eq!(refusal.queue_depth(), Some(2));
    let message = refusal.to_string();
    assert!(
        message.contains("api.example.com: the queue is full (2 waiting"),
        "{message}"
    );
    let report = slot.get().unwrap();
    assert_eq!(report.stop_reason(), StopReason::Throttled);
    let outcome = report.attempts().next().unwrap().outcome();
    assert_eq!(outcome.to_string(), FailureKind::Throttled.as_str());
    assert_eq!(server.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_refused_after_the_longest_allowed_wait() {
    let server = Server::new(|_| late(10 * SEC, respond(200)));
    let client = throttled(
        &server,
        retry(),
        fixed().max_in_flight(1).max_queue_wait(SEC),
    );
    let start = Instant::now();
    let (first, second) = tokio::join!(call(&client, 0), async {
        (call(&client, 1).await, start.elapsed())
    });
    assert!(first.is_ok());
    assert_eq!(
        refusal(&second.0).refusal_reason(),
        Some(RefusalReason::WaitTooLong)
    );
    assert_eq!(second.1, SEC);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_would_wait_too_long_is_refused_at_once() {
    let server = Server::statuses([200]);
    let client = throttled(
        &server,
        retry(),
        fixed().rate(1.0, 1).max_queue_wait(3 * SEC),
    );
    let start = Instant::now();
    let results = join_all((0..6).map(|name| {
        let client = &client;
        async move { (call(client, name).await, start.elapsed()) }
    }));
    let results = results.await;
    for (index, (result, elapsed)) in results.iter().enumerate() {
        if index <= 3 {
            assert!(result.is_ok(), "{index}");
            assert_eq!(*elapsed, index as u32 * SEC);
        } else {
            let refusal = refusal(result);
            assert_eq!(refusal.refusal_reason(), Some(RefusalReason::WaitTooLong));
            assert_eq!(refusal.retry_after().unwrap(), 4 * SEC);
            assert_eq!(*elapsed, Duration::ZERO);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_before_the_deadline_of_the_call_and_not_after() {
    let server = Server::new(|_| late(10 * SEC, respond(200)));
    let client = throttled(&server, retry(), fixed().max_in_flight(1));
    let start = Instant::now();
    let in_a_scope = Scope::new().deadline(3 * SEC);
    let (first, second, third) = tokio::join!(
        call(&client, 0),
        async {
            let result = client.get(URL).deadline(2 * SEC).send().await;
            (result, start.elapsed())
        },
        async {
            let result = in_a_scope.run(call(&client, 2)).await;
            (result, start.elapsed())
        }
    );
    assert!(first.is_ok());
    assert_eq!(
        refusal(&second.0).refusal_reason(),
        Some(RefusalReason::DeadlineTooClose)
    );
    assert!(second.1 < 2 * SEC && second.1 > 1990 * MS, "{:?}", second.1);
    assert_eq!(
        refusal(&third.0).refusal_reason(),
        Some(RefusalReason::DeadlineTooClose)
    );
    assert!(third.1 < 3 * SEC && third.1 > 2990 * MS, "{:?}", third.1);
    assert_eq!(server.count(), 1);
}

/// A server that asks for a pause in every response.
fn asks_for_a_pause(status: u16, pause: &'static str) -> Arc<Server> {
    Server::new(move |_| respond_with(status, &[("retry-after", pause)]))
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_for_all_calls_with_the_same_key() {
    let server = Server::new(|index| match index {
        0 => respond_with(429, &[("retry-after", "7")]),
        _ => respond(200),
    });
    let client = throttled(&server, retry(), throttle());
    let start = Instant::now();
    assert!(call(&client, 0).await.is_ok());
    let first = server.received()[1].at - start;
    assert!(first >= 7 * SEC && first <= 8 * SEC, "{first:?}");
    // Later calls wait as well. Calls to another host do not.
    let server = Server::new(|index| match index {
        0 => respond_with(503, &[("retry-after", "7")]),
        _ => respond(200),
    });
    let client = throttled(&server, retry().max_retries(0), throttle());
    let start = Instant::now();
    assert_eq!(call(&client, 0).await.unwrap(), 503);
    let other = client.get("http://other.example.com/").send();
    let (results, other) = tokio::join!(join_all((1..40).map(|name| call(&client, name))), async {
        (other.await, start.elapsed())
    });
    assert!(
        results
            .iter()
            .all(|result| *result.as_ref().unwrap() == 200)
    );
    assert_eq!(other.1, Duration::ZERO);
    assert!(other.0.is_ok());
    let arrivals = server.received();
    let mine = arrivals
        .iter()
        .filter(|it| it.url.host_str() == Some("api.example.com"));
    let later: Vec<_> = mine.skip(1).map(|it| it.at - start).collect();
    assert!(later[0] >= 7 * SEC && later[0] <= 8 * SEC, "{:?}", later[0]);
    // One call probes, and the others follow one by one.
    assert!(later.windows(2).all(|pair| pair[1] > pair[0]), "{later:?}");
    assert!(later[later.len() - 1] - later[0] > 500 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_failure_with_quota_left_pauses_no_call() {
    for headers in [
        &[("ratelimit", "\"100-in-15min\";r=98;t=900")][..],
        &[
            ("x-ratelimit-remaining", "4990"),
            ("x-ratelimit-reset", "3000"),
        ],
    ] {
        let server = Server::new(move |index| match index {
            0 => respond_with(503, headers),
            _ => respond_with(200, headers),
        });
        let client = throttled(&server, retry().max_retries(0), throttle());
        let start = Instant::now();
        assert_eq!(call(&client, 0).await.unwrap(), 503);
        let results = join_all((1..=16).map(|name| call(&client, name))).await;
        assert!(results.iter().all(|result| matches!(result, Ok(200))));
        assert_eq!(start.elapsed(), Duration::ZERO, "{headers:?}");
        assert_eq!(server.count(), 17);
    }
}

#[tokio::test(start_paused = true)]
async fn a_429_with_quota_left_is_searched_for_its_limit() {
    // The limit that refuses is not the one in the header: 5 requests per 100 ms.
    let start = Instant::now();
    let taken = Mutex::new((0, 0));
    let server = Server::new(move |_| {
        let tick = start.elapsed().as_millis() / 100;
        let mut taken = taken.lock().unwrap();
        if taken.0 != tick {
            *taken = (tick, 0);
        }
        taken.1 += 1;
        let status = if taken.1 > 5 { 429 } else { 200 };
        respond_with(status, &[("ratelimit", "\"100-in-15min\";r=98;t=900")])
    });
    let client = throttled(&server, retry(), throttle());
    let results = join_all((0..100).map(|name| call(&client, name))).await;
    assert!(results.iter().all(|result| matches!(result, Ok(200))));
    // A client that knows the limit needs 2 s.
    assert!(start.elapsed() < 10 * SEC, "{:?}", start.elapsed());
    assert!(server.count() < 150, "{}", server.count());
}

#[tokio::test(start_paused = true)]
async fn no_call_waits_for_a_pause_that_is_too_long() {
    let server = asks_for_a_pause(429, "3600");
    let client = throttled(&server, retry(), throttle());
    let start = Instant::now();
    // The call that receives the pause gets its response.
    assert_eq!(call(&client, 0).await.unwrap(), 429);
    let refused = call(&client, 1).await;
    let refusal = refusal(&refused);
    assert_eq!(refusal.refusal_reason(), Some(RefusalReason::WaitTooLong));
    assert!(
        refusal.retry_after().unwrap() >= 3600 * SEC
            && refusal.retry_after().unwrap() <= 3601 * SEC
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_cannot_outlast_a_new_pause_is_refused() {
    let server = Server::new(|_| late(SEC, respond_with(429, &[("retry-after", "3600")])));
    let client = throttled(&server, retry(), throttle().max_in_flight(1));
    let start = Instant::now();
    let results = join_all((0..50).map(|name| call(&client, name))).await;
    assert_eq!(*results[0].as_ref().unwrap(), 429);
    for result in &results[1..] {
        assert_eq!(
            refusal(result).refusal_reason(),
            Some(RefusalReason::WaitTooLong)
        );
    }
    assert_eq!(start.elapsed(), SEC);
}

#[tokio::test(start_paused = true)]
async fn no_server_keeps_a_key_closed_forever() {
    let server = Server::new(|index| match index {
        0 => respond_with(429, &[("retry-after", "99999999999999999999")]),
        _ => respond(200),
    });
    let client = throttled(&server, retry(), throttle());
    assert_eq!(call(&client, 0).await.unwrap(), 429);
    assert!(call(&client, 1).await.is_err());
    sleep(3602 * SEC).await;
    assert_eq!(call(&client, 2).await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_refused_retry_returns_the_response_before_it() {
    let server = Server::new(|index| match index {
        0 => respond(503),
        _ => late(60 * SEC, respond(200)),
    });
    let backoff = doubling(SEC);
    let budget = Budget::builder().min_retries_per_sec(0.2).build().unwrap();
    let retry = retry().backoff(backoff).budget(budget.clone());
    let client = throttled(&server, retry, fixed().max_in_flight(1).max_queue(0));
    let full = budget.balance();
    let refused = async {
        let response = client.get(URL).send().await;
        // Before the success of the other call adds to the budget.
        (response, budget.balance())
    };
    let ((response, balance), blocker) = tokio::join!(refused, async {
        sleep(500 * MS).await;
        call(&client, 1).await
    });
    assert!(blocker.is_ok());
    let response = response.unwrap();
    assert_eq!(response.status(), 503);
    let report = RetryReport::of(&response).unwrap().clone();
    assert_eq!(report.stop_reason(), StopReason::Throttled);
    assert_eq!(report.retries(), 0);
    assert_eq!(response.url().as_str(), URL);
    assert_eq!(response.text().await.unwrap(), "body of 503");
    // The retry was not sent, so it was not paid.
    assert_eq!(balance, full);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_retry_returns_the_error_before_it() {
    let server = Server::new(|index| match index {
        0 => Reply::fail(std::io::ErrorKind::ConnectionReset),
        _ => late(60 * SEC, respond(200)),
    });
    let backoff = doubling(SEC);
    let client = throttled(
        &server,
        retry().backoff(backoff),
        fixed().max_in_flight(1).max_queue(0),
    );
    let slot = ReportSlot::new();
    let (result, blocker) = tokio::join!(client.get(URL).report_to(&slot).send(), async {
        sleep(500 * MS).await;
        call(&client, 1).await
    });
    assert!(blocker.is_ok());
    let error = result.unwrap_err();
    assert!(SteadyError::of(&error).is_none(), "{error:?}");
    let Error::Middleware(error) = error else {
        panic!("{error:?}")
    };
    assert!(error.downcast_ref::<std::io::Error>().is_some());
    assert_eq!(slot.get().unwrap().stop_reason(), StopReason::Throttled);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_a_503_costs_budget_and_one_after_a_429_not() {
    for (status, paid) in [(429, 0.0), (503, 1.0)] {
        let server = Server::new(move |index| match index {
            0 => respond(status),
            _ => respond(200),
        });
        // The success adds one.
        let (with, without) = (saved_budget(9), saved_budget(9));
        let client = throttled(&server, retry().budget(with.clone()), throttle());
        assert_eq!(call(&client, 0).await.unwrap(), 200);
        assert_eq!(with.balance(), 10.0 - paid, "{status}");

        // Without a throttle, or with one that does not pace, both retries are paid.
        let server = Server::new(move |index| match index {
            0 => respond(status),
            _ => respond(200),
        });
        let client = throttled(&server, retry().budget(without.clone()), fixed());
        assert_eq!(call(&client, 0).await.unwrap(), 200);
        assert_eq!(without.balance(), 9.0, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_dropped_in_the_queue_is_not_paid() {
    let server = Server::new(|index| match index {
        0 => respond(503),
        _ => late(60 * SEC, respond(200)),
    });
    let budget = Budget::builder().retry_ratio(0.0).build().unwrap();
    let full = budget.balance();
    let backoff = doubling(SEC);
    let retry = retry().backoff(backoff).budget(budget.clone());
    let client = throttled(&server, retry, fixed().max_in_flight(1));
    let (first, _) = tokio::join!(timeout(3 * SEC, client.get(URL).send()), async {
        sleep(500 * MS).await;
        let blocker = timeout(10 * SEC, call(&client, 1));
        tokio::join!(blocker, async {
            sleep(SEC).await;
            assert_eq!(budget.balance(), full - 1.0);
        })
    });
    assert!(first.is_err());
    assert_eq!(budget.balance(), full);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_retry_goes_before_first_attempts() {
    let server = Server::new(|index| match index {
        0 => late(10 * MS, respond(500)),
        _ => late(10 * MS, respond(200)),
    });
    let backoff = doubling(5 * MS);
    let client = throttled(&server, retry().backoff(backoff), fixed().max_in_flight(1));
    let results = join_all((0..5).map(|name| call(&client, name))).await;
    assert!(
        results
            .iter()
            .all(|result| *result.as_ref().unwrap() == 200)
    );
    assert_eq!(names(&server), [0, 1, 0, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn the_report_has_the_queue_time_of_an_attempt() {
    let server = Server::new(|index| match index {
        0 => late(300 * MS, respond(200)),
        1 => late(100 * MS, respond(503)),
        _ => late(100 * MS, respond(200)),
    });
    let backoff = doubling(50 * MS);
    let client = throttled(&server, retry().backoff(backoff), fixed().max_in_flight(1));
    let (first, response, _) =
        tokio::join!(call(&client, 0), client.get(URL).send(), call(&client, 2),);
    assert!(first.is_ok());
    let response = response.unwrap();
    let report = RetryReport::of(&response).unwrap();
    let times: Vec<_> = (report.attempts().map(|it| (it.waited(), it.sent_at()))).collect();
    // 300 ms for the first call, then 50 ms of backoff and 50 ms for the third call.
    assert_eq!(times, [(300 * MS, 300 * MS), (100 * MS, 500 * MS)]);
    assert_eq!(report.waited(), 400 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_gets_one_probe_at_a_time() {
    let server = Server::statuses([503]);
    let client = throttled(&server, retry().max_retries(0), throttle());
    let start = Instant::now();
    let calls = (0..1000).map(|name| {
        let client = &client;
        async move {
            sleep(name as u32 * 60 * MS).await;
            call(client, name).await
        }
    });
    join_all(calls).await;
    let gaps: Vec<_> = server.gaps().into_iter().skip(4).collect();
    // Five failures in a row close the gate for 100 ms, which then doubles.
    let expected = [100, 200, 400, 800, 1600, 2000, 2000];
    for (gap, least) in gaps.iter().zip(expected.map(|ms| ms * MS)) {
        let most = least.mul_f64(1.25) + 61 * MS;
        assert!(*gap >= least && *gap <= most, "{gap:?} for {least:?}");
    }
    // Probes become rarer: a wait is an eighth of the duration of the outage.
    let longest = gaps.iter().max().unwrap();
    assert!(*longest > 6 * SEC && *longest < 30 * SEC, "{gaps:?}");
    assert!(server.count() < 40, "{}", server.count());
    assert!(start.elapsed() < 120 * SEC);
}

#[tokio::test(start_paused = true)]
async fn a_probe_goes_out_even_after_a_long_silence() {
    let server = Server::new(|index| {
        if index < 20 {
            respond(503)
        } else {
            respond(200)
        }
    });
    let client = throttled(&server, retry().max_retries(0), throttle());
    for name in 0..20 {
        let _ = call(&client, name).await;
    }
    sleep(24 * 3600 * SEC).await;
    let start = Instant::now();
    assert_eq!(call(&client, 20).await.unwrap(), 200);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_cancelled_makes_room_for_the_next() {
    let (server, client) = with_a_hanging_probe().await;
    let (cancelled, waiting) = tokio::join!(timeout(SEC, call(&client, 5)), call(&client, 6));
    assert!(cancelled.is_err());
    assert_eq!(waiting.unwrap(), 200);
    assert_eq!(server.count(), 7);
}

#[tokio::test(start_paused = true)]
async fn an_attempts_timeout_begins_when_it_is_sent() {
    let server = Server::new(|_| late(900 * MS, respond(200)));
    let retry_once = retry().attempt_timeout(SEC);
    let client = throttled(&server, retry_once, fixed().max_in_flight(1));
    let results = join_all((0..5).map(|name| call(&client, name))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(server.count(), 5);

    // Once sent, an attempt that waited has the same timeout.
    let server = Server::new(|index| match index {
        0 => late(2500 * MS, respond(200)),
        _ => Reply::silence(),
    });
    let retry = retry().attempt_timeout(3 * SEC).max_retries(0);
    let client = throttled(&server, retry, fixed().max_in_flight(1));
    let start = Instant::now();
    let (first, second) = tokio::join!(call(&client, 0), call(&client, 1));
    assert!(first.is_ok());
    assert!(SteadyError::of(&second.unwrap_err()).is_some_and(SteadyError::is_timeout));
    let elapsed = start.elapsed();
    assert!(elapsed >= 5500 * MS && elapsed <= 5502 * MS, "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn attempts_that_time_out_are_seen_as_a_slow_server() {
    let server = Server::new(|_| Reply::silence());
    let retry = retry().attempt_timeout(200 * MS).max_retries(0);
    let client = throttled(&server, retry, throttle());
    let calls = (0..400).map(|name| {
        let client = &client;
        async move {
            sleep(name as u32 * 25 * MS).await;
            call(client, name).await
        }
    });
    join_all(calls).await;
    // In 10 s: the first 16 requests, and then only probes.
    assert!(server.count() < 40, "{}", server.count());
}

/// After a call is dropped at any point, the next one goes through as if it never existed.
#[tokio::test(start_paused = true)]
async fn a_call_may_be_dropped_at_any_point_and_leaves_nothing_behind() {
    for throttle in [
        || fixed().max_in_flight(1).rate(10.0, 1),
        || throttle().max_in_flight(1).rate(10.0, 1),
    ] {
        for polls in 0..12 {
            for waiting in [0, 1, 3] {
                let server = Server::new(|_| late(50 * MS, respond(200)));
                let client = throttled(&server, retry(), throttle());
                let others: Vec<_> = (0..waiting)
                    .map(|name| {
                        let client = client.clone();
                        tokio::spawn(async move { call(&client, name).await })
                    })
                    .collect();
                tokio::task::yield_now().await;
                {
                    let mut dropped = pin!(call(&client, 100));
                    let mut ended = false;
                    for _ in 0..polls {
                        let waker = Waker::noop();
                        let mut context = Context::from_waker(waker);
                        // A future that has ended is not polled again.
                        if !ended {
                            ended = dropped.as_mut().poll(&mut context).is_ready();
                        }
                        sleep(25 * MS).await;
                    }
                }
                for other in others {
                    assert!(other.await.unwrap().is_ok());
                }
                // The slot, the queue and the token are free again, so the next two calls are not
                // delayed.
                sleep(SEC).await;
                let start = Instant::now();
                assert!(call(&client, 101).await.is_ok());
                assert_eq!(start.elapsed(), 50 * MS, "{polls} polls, {waiting} waiting");
            }
        }
    }
}

/// The same during a retry: while it waits, drains the old response, or is a probe.
#[tokio::test(start_paused = true)]
async fn a_call_may_be_dropped_in_the_middle_of_its_retries() {
    type Script = fn(usize) -> Reply;
    let scripts: [Script; 4] = [
        |index| late(20 * MS, respond(if index % 3 == 0 { 429 } else { 200 })),
        |index| late(20 * MS, respond(if index % 2 == 0 { 503 } else { 200 })),
        |index| match index % 3 {
            0 => late(20 * MS, dripping(503, 5)),
            1 => Reply::fail(std::io::ErrorKind::ConnectionReset),
            _ => late(20 * MS, respond(200)),
        },
        |_| late(20 * MS, respond(503)),
    ];
    for script in scripts {
        for polls in 0..40 {
            let failing = Arc::new(AtomicBool::new(true));
            let fails = Arc::clone(&failing);
            let server = Server::new(move |index| match fails.load(Ordering::Relaxed) {
                true => script(index),
                false => late(20 * MS, respond(200)),
            });
            let budget = Budget::builder().retry_ratio(1.0);
            let budget = budget.min_retries_per_sec(0.0).build().unwrap();
            let fill = || (0..20).for_each(|_| budget.deposit());
            fill();
            let client = throttled(
                &server,
                retry().budget(budget.clone()),
                throttle().max_in_flight(2),
            );
            {
                let calls = (0..5).map(|name| call(&client, name));
                let mut dropped = pin!(join_all(calls));
                let mut context = Context::from_waker(Waker::noop());
                for _ in 0..polls {
                    if dropped.as_mut().poll(&mut context).is_ready() {
                        break;
                    }
                    sleep(10 * MS).await;
                }
            }
            failing.store(false, Ordering::Relaxed);
            // All pauses and payments have expired by now.
            sleep(60 * SEC).await;
            fill();
            assert_eq!(budget.balance(), 20.0);
            let start = Instant::now();
            let results = join_all((10..12).map(|name| call(&client, name))).await;
            assert!(
                results.iter().all(Result::is_ok),
                "{polls} polls: {results:?}"
            );
            assert!(
                start.elapsed() < 600 * MS,
                "{polls} polls: {:?}",
                start.elapsed()
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_it_is_sent_takes_no_token() {
    let server = Server::new(|_| late(50 * MS, respond(200)));
    let client = throttled(&server, retry(), fixed().rate(1.0, 1));
    let start = Instant::now();
    // The second is dropped while it waits, so the third has its turn.
    let (first, second, third) = tokio::join!(
        call(&client, 0),
        timeout(500 * MS, call(&client, 1)),
        call(&client, 2)
    );
    assert!(first.is_ok() && second.is_err() && third.is_ok());
    assert_eq!(server.received()[1].at - start, SEC);
    assert_eq!(names(&server), [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn keys_are_what_the_user_says() {
    let by_path = KeyBy::HostAndPath(1);
    let by_tenant = KeyBy::from_fn(|request| {
        let tenant = request.headers().get("x-tenant");
        String::from_utf8_lossy(tenant.map_or(b"", |tenant| tenant.as_bytes())).into_owned()
    });
    for (key_by, together) in [(KeyBy::Host, 3), (by_path, 2), (by_tenant, 1)] {
        let server = Server::new(|_| late(SEC, respond(200)));
        let client = throttled(&server, retry(), fixed().max_in_flight(1).key_by(key_by));
        let start = Instant::now();
        let get = |path: &str, tenant: &str| {
            let url = format!("http://api.example.com{path}");
            client.get(url).header("x-tenant", tenant).send()
        };
        let calls = [get("/a/1", "one"), get("/a/2", "two"), get("/b/1", "three")];
        join_all(calls).await;
        assert_eq!(start.elapsed(), together * SEC);
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_outside_the_retry_warns_once() {
    let log = Log::default();
    let _guard = log.listen();
    let server = Server::statuses([200]);
    let wrong = ClientBuilder::new(reqwest::Client::new())
        .with(throttle().build().unwrap())
        .with(retry().build().unwrap())
        .with_arc(server.clone())
        .build();
    for name in 0..3 {
        assert!(call(&wrong, name).await.is_ok());
    }
    assert_eq!(log.count(), 1);
    assert!(
        log.last()
            .contains("ThrottleMiddleware is outside RetryMiddleware")
    );

    let right = throttled(&server, retry(), throttle());
    assert!(call(&right, 4).await.is_ok());
    assert_eq!(log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn clones_share_their_gates() {
    let server = Server::new(|_| late(SEC, respond(200)));
    let throttle = fixed().max_in_flight(1).build().unwrap();
    let client = |throttle: &ThrottleMiddleware| {
        ClientBuilder::new(reqwest::Client::new())
            .with(throttle.clone())
            .with_arc(server.clone())
            .build()
    };
    let (one, other) = (client(&throttle), client(&throttle));
    let start = Instant::now();
    let (first, second) = tokio::join!(call(&one, 0), call(&other, 1));
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(start.elapsed(), 2 * SEC);
}

#[tokio::test(start_paused = true)]
async fn without_a_retry_the_response_comes_back_unchanged() {
    let server = Server::statuses([429, 200]);
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(throttle().build().unwrap())
        .with_arc(server.clone())
        .build();
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.text().await.unwrap(), "body of 429");
    // The next call waits for the pause.
    let start = Instant::now();
    assert_eq!(call(&client, 1).await.unwrap(), 200);
    assert!(start.elapsed() >= 100 * MS && start.elapsed() <= 126 * MS);
    assert_eq!(Attempt::of(&http::Extensions::new()).number(), 1);
}

/// On several threads in real time, with random drops: everything is free again at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_no_call_hangs_and_no_flight_remains() {
    let server = Server::new(|index| match index {
        500 | 501 => respond(429),
        _ if index % 50 == 0 => respond(503),
        _ => late(MS, respond(200)),
    });
    let client = throttled(&server, retry(), throttle().max_in_flight(8));
    let calls = (0..4000).map(|name| {
        let client = client.clone();
        tokio::spawn(async move {
            let patience =
                Duration::from_millis(if name % 3 == 0 { 1 + name % 40 } else { 20_000 });
            timeout(patience, call(&client, name as usize))
                .await
                .is_ok()
        })
    });
    let ended = timeout(60 * SEC, join_all(calls)).await.expect("hangs");
    let patient = ended.iter().enumerate().filter(|(name, _)| name % 3 != 0);
    assert!(patient.clone().all(|(_, ended)| *ended.as_ref().unwrap()));
    // All slots are free.
    let again = (0..8).map(|name| call(&client, name));
    let again = timeout(10 * SEC, join_all(again))
        .await
        .expect("a slot leaked");
    assert!(again.iter().all(Result::is_ok));
}
