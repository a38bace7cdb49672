//! When a retry is sent, in virtual time.

use std::time::Duration;

use reqwest_middleware::Error;
use reqwest_steady::{
    Backoff, Budget, Jitter, ReportSlot, RequestBuilderExt, RetryMiddleware,
    RetryMiddlewareBuilder, RetryReport, Scope, SteadyError, StopReason, ThrottleMiddleware,
};
use tokio::time::{Instant, sleep};

use crate::support::scripted::{Reply, Server, URL, late, respond, respond_with, throttled};
use crate::support::stacks::{MS, SEC, doubling, fixed_budget};

fn exact() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder().backoff(Backoff::default().jitter(Jitter::None))
}

#[tokio::test(start_paused = true)]
async fn without_jitter_the_waits_are_exact_and_capped() {
    let server = Server::statuses([503]);
    let client = server.client(exact().max_retries(8).build().unwrap());
    let response = client.get(URL).send().await.unwrap();
    let expected = [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000].map(|ms| ms * MS);
    assert_eq!(server.gaps(), expected);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.waited(), expected.iter().sum::<Duration>());
    assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
}

#[tokio::test(start_paused = true)]
async fn by_default_five_retries_use_full_jitter_from_200_ms() {
    for _ in 0..100 {
        let server = Server::statuses([503]);
        let client = server.client(RetryMiddleware::default());
        client.get(URL).send().await.unwrap();
        let gaps = server.gaps();
        assert_eq!(gaps.len(), 5);
        for (gap, ceiling) in gaps.iter().zip([200, 400, 800, 1600, 3200]) {
            // Timers round up to a millisecond.
            assert!(*gap <= (ceiling + 1) * MS, "{gap:?} over {ceiling} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_jitter_keeps_its_bounds_from_retry_to_retry() {
    let ceilings = [200, 400, 800, 1600, 3200].map(|ms| ms * MS);
    for jitter in [
        Jitter::Full,
        Jitter::Equal,
        Jitter::Decorrelated,
        Jitter::Additive(50 * MS),
    ] {
        let mut longest = Duration::ZERO;
        for seed in 0..50 {
            let server = Server::statuses([503]);
            let backoff = Backoff::default().jitter(jitter);
            let retry = RetryMiddleware::builder().backoff(backoff).seed(seed);
            let client = server.client(retry.build().unwrap());
            client.get(URL).send().await.unwrap();
            let mut previous = 200 * MS;
            for (gap, ceiling) in server.gaps().into_iter().zip(ceilings) {
                let (low, high) = match jitter {
                    Jitter::Equal => (ceiling / 2, ceiling),
                    Jitter::Decorrelated => (200 * MS, (3 * previous).min(10 * SEC)),
                    Jitter::Additive(range) => (ceiling, ceiling + range),
                    _ => (Duration::ZERO, ceiling),
                };
                assert!(gap >= low && gap <= high + 4 * MS, "{jitter:?}: {gap:?}");
                previous = gap;
                longest = longest.max(gap);
            }
        }
        // Decorrelated jitter grows only if it gets the previous wait.
        assert!(longest > SEC, "{jitter:?}: {longest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn jitter_spreads_and_a_seed_repeats_it() {
    let gaps = |seed: u64| async move {
        let server = Server::statuses([503]);
        let retry = RetryMiddleware::builder().seed(seed).build().unwrap();
        server.client(retry).get(URL).send().await.unwrap();
        server.gaps()
    };
    assert_eq!(gaps(1).await, gaps(1).await);
    assert_ne!(gaps(1).await, gaps(2).await);
}

#[tokio::test(start_paused = true)]
async fn thousands_of_retries_overflow_nothing() {
    let server = Server::statuses([503]);
    let retry = RetryMiddleware::builder()
        .max_retries(2200)
        .budget(Budget::unlimited())
        .retry_window(Duration::MAX)
        .build()
        .unwrap();
    let response = server.client(retry).get(URL).send().await.unwrap();
    assert_eq!(server.count(), 2201);
    assert_eq!(RetryReport::of(&response).unwrap().retries(), 2200);
    assert!(server.gaps().iter().all(|gap| *gap <= 10 * SEC + MS));
}

#[tokio::test(start_paused = true)]
async fn no_retry_comes_earlier_than_the_server_asked_nor_much_later() {
    for (status, header, value, hint) in [
        (503, "retry-after", "7", 7 * SEC),
        (503, "retry-after", "0.5", 500 * MS),
        (503, "retry-after-ms", "1500", 1500 * MS),
        (503, "ratelimit", "\"default\";r=0;t=30", 30 * SEC),
        (429, "x-ratelimit-reset", "12", 12 * SEC),
    ] {
        let mut gaps = Vec::new();
        for _ in 0..50 {
            let server = Server::new(move |index| match index {
                0 => respond_with(status, &[(header, value)]),
                _ => respond(200),
            });
            let client = server.client(RetryMiddleware::default());
            client.get(URL).send().await.unwrap();
            gaps.extend(server.gaps());
        }
        let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!(*least >= hint, "{header}: {value}: {least:?}");
        assert!(
            *most <= hint + SEC.min(hint) + MS,
            "{header}: {value}: {most:?}"
        );
        assert!(*most - *least >= 100 * MS, "{header}: {value}: all at once");
    }
}

#[tokio::test(start_paused = true)]
async fn quota_headers_with_quota_left_leave_the_backoff_alone() {
    for headers in [
        &[("ratelimit", "\"100-in-15min\";r=98;t=900")][..],
        &[("ratelimit", "limit=100, remaining=98, reset=900")],
        &[("ratelimit-remaining", "98"), ("ratelimit-reset", "900")],
        &[
            ("x-ratelimit-remaining", "4990"),
            ("x-ratelimit-reset", "3000"),
        ],
        &[
            ("x-ratelimit-remaining", "4"),
            ("x-ratelimit-reset-after", "300.5"),
        ],
        &[
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "6m0s"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
    ] {
        for status in [429, 500, 502, 503, 504] {
            let what = format!("{status} {headers:?}");
            let server = Server::new(move |index| match index {
                0..3 => respond_with(status, headers),
                _ => respond_with(200, headers),
            });
            let client = server.client(exact().build().unwrap());
            let response = client.get(URL).send().await.unwrap();
            assert_eq!(response.status(), 200, "{what}");
            assert_eq!(server.gaps(), [200, 400, 800].map(|ms| ms * MS), "{what}");

            let server = Server::new(move |_| respond_with(status, headers));
            let client = server.client(exact().max_retries(3).build().unwrap());
            let response = client.get(URL).send().await.unwrap();
            let report = RetryReport::of(&response).unwrap();
            assert_eq!(report.stop_reason(), StopReason::RetriesExhausted, "{what}");
            assert_eq!(server.count(), 4, "{what}");
            let mut hints = report.attempts().map(|attempt| attempt.hint());
            assert!(hints.all(|hint| hint.is_none()), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_gateways_the_one_with_less_quota_counts() {
    for (one, other) in [("0", "100"), ("100", "0")] {
        let headers = [
            ("x-ratelimit-remaining", one),
            ("x-ratelimit-remaining", other),
            ("x-ratelimit-reset", "20"),
        ];
        let server = Server::new(move |index| match index {
            0 => respond_with(429, &headers),
            _ => respond(200),
        });
        let client = server.client(exact().build().unwrap());
        let response = client.get(URL).send().await.unwrap();
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.attempts().next().unwrap().hint(), Some(20 * SEC));
        assert_eq!(server.count(), 2);
        assert!(server.gaps()[0] >= 20 * SEC, "{:?}", server.gaps());
    }
}

#[tokio::test(start_paused = true)]
async fn backoff_holds_where_it_is_longer_than_the_hint() {
    let server = Server::new(|_| respond_with(503, &[("retry-after", "0")]));
    let client = server.client(exact().max_retries(3).build().unwrap());
    client.get(URL).send().await.unwrap();
    assert_eq!(server.gaps(), [200, 400, 800].map(|ms| ms * MS));
}

#[tokio::test(start_paused = true)]
async fn a_pause_over_the_limit_returns_the_response_at_once() {
    for value in [
        "61",
        "99999999999999999999999",
        "Sun, 06 Nov 2095 08:49:37 GMT",
    ] {
        let server = Server::new(move |_| respond_with(503, &[("retry-after", value)]));
        let client = server.client(RetryMiddleware::default());
        let started = Instant::now();
        let response = client.get(URL).send().await.unwrap();
        assert_eq!(started.elapsed(), Duration::ZERO, "{value}");
        assert_eq!(server.count(), 1);
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.stop_reason(), StopReason::ServerDelayTooLong);
        assert!(report.attempts().next().unwrap().hint() > Some(60 * SEC));
        assert_eq!(response.text().await.unwrap(), "body of 503");
    }
    let server = Server::new(|index| match index {
        0 => respond_with(503, &[("retry-after", "60")]),
        _ => respond(200),
    });
    let client = server.client(RetryMiddleware::default());
    assert_eq!(client.get(URL).send().await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn dates_are_read_against_the_servers_clock() {
    let server = Server::new(|index| match index {
        0 => respond_with(
            503,
            &[
                ("date", "Sun, 06 Nov 1994 08:49:00 GMT"),
                ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ],
        ),
        _ => respond(200),
    });
    let client = server.client(RetryMiddleware::default());
    client.get(URL).send().await.unwrap();
    let gap = server.gaps()[0];
    assert!(gap >= 37 * SEC && gap <= 38 * SEC + MS, "{gap:?}");
}

#[tokio::test(start_paused = true)]
async fn no_retry_starts_after_the_window() {
    let server = Server::statuses([503]);
    let retry = exact().max_retries(100).retry_window(3 * SEC);
    let client = server.client(retry.build().unwrap());
    let started = Instant::now();
    let response = client.get(URL).send().await.unwrap();
    // 200 + 400 + 800 + 1600 = 3000 ms, and the next would start at 6200.
    assert_eq!(server.count(), 5);
    assert_eq!(started.elapsed(), 3 * SEC);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::WindowClosed);
}

#[tokio::test(start_paused = true)]
async fn the_window_counts_the_attempts_too() {
    let server = Server::new(|_| late(2 * SEC, respond(503)));
    let retry = exact().max_retries(100).retry_window(5 * SEC);
    let client = server.client(retry.build().unwrap());
    client.get(URL).send().await.unwrap();
    // Sent at 0, 2.2 and 4.6 s; the next would start at 7.4 s.
    assert_eq!(server.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_wait_past_the_deadline_is_not_begun() {
    let server = Server::statuses([503]);
    let client = server.client(exact().max_retries(100).deadline(2 * SEC).build().unwrap());
    let started = Instant::now();
    let response = client.get(URL).send().await.unwrap();
    // Sent at 0, 200, 600 and 1400 ms; the next would start at 3000.
    assert_eq!(server.count(), 4);
    assert_eq!(started.elapsed(), 1400 * MS);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::DeadlineTooClose);
    assert_eq!(response.text().await.unwrap(), "body of 503");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_also_ends_an_attempt_that_runs() {
    let server = Server::new(|index| match index {
        0 => late(300 * MS, respond(503)),
        _ => Reply::silence(),
    });
    let client = server.client(exact().build().unwrap());
    let slot = ReportSlot::new();
    let started = Instant::now();
    let request = client.get(URL).deadline(2 * SEC).report_to(&slot);
    let error = request.send().await.unwrap_err();
    assert_eq!(started.elapsed(), 2 * SEC);
    assert_eq!(server.count(), 2);
    let timed_out = SteadyError::of(&error).unwrap();
    assert_eq!(
        (timed_out.is_deadline(), timed_out.time_limit().unwrap()),
        (true, 2 * SEC)
    );
    assert_eq!(
        slot.get().unwrap().stop_reason(),
        StopReason::DeadlineTooClose
    );
}

#[tokio::test(start_paused = true)]
async fn without_time_nothing_is_sent() {
    let server = Server::statuses([200]);
    let client = server.client(RetryMiddleware::default());
    let error = client.get(URL).deadline(Duration::ZERO).send().await;
    assert!(SteadyError::of(&error.unwrap_err()).is_some_and(SteadyError::is_timeout));
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_oversleeps_the_deadline_is_not_paid() {
    for is_throttled in [false, true] {
        let server = Server::statuses([503]);
        let (budget, full) = fixed_budget();
        let retry = exact().budget(budget.clone());
        let client = match is_throttled {
            true => throttled(&server, retry, ThrottleMiddleware::builder()),
            false => server.client(retry.build().unwrap()),
        };
        let scope = Scope::new().max_retries(1);
        let call = tokio::spawn({
            let (scope, call) = (scope.clone(), client.get(URL).deadline(2 * SEC).send());
            async move { scope.run(call).await }
        });
        sleep(MS).await;
        // The runtime is busy while the retry becomes due and the deadline passes.
        tokio::time::advance(5 * SEC).await;
        let error = call.await.unwrap().unwrap_err();
        assert!(SteadyError::of(&error).is_some_and(SteadyError::is_deadline));
        assert_eq!(server.count(), 1);
        assert_eq!(budget.balance(), full, "{is_throttled}");
        // The scope has its retry again.
        scope.run(client.get(URL).send()).await.unwrap();
        assert_eq!(server.count(), 3, "{is_throttled}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_retried_if_that_is_safe() {
    let script = |index| match index {
        0 | 1 => Reply::silence(),
        _ => respond(200),
    };
    let server = Server::new(script);
    let client = server.client(exact().attempt_timeout(SEC).build().unwrap());
    assert_eq!(client.get(URL).send().await.unwrap().status(), 200);
    assert_eq!(server.gaps(), [1200 * MS, 1400 * MS]);

    let server = Server::new(script);
    let client = server.client(exact().attempt_timeout(SEC).build().unwrap());
    let error = client.post(URL).send().await.unwrap_err();
    assert_eq!(server.count(), 1);
    let timed_out = SteadyError::of(&error).unwrap();
    assert_eq!(
        (timed_out.is_deadline(), timed_out.time_limit().unwrap()),
        (false, SEC)
    );
    assert_eq!(
        error.to_string(),
        "no response from api.example.com within 1 s (attempt 1, 1 s in all)"
    );
    match error {
        Error::Middleware(error) => assert!(error.downcast_ref::<SteadyError>().is_some()),
        Error::Reqwest(error) => panic!("not an error of this crate: {error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_never_gets_more_time_than_the_deadline_leaves() {
    let server = Server::new(|_| Reply::silence());
    let retry = exact().attempt_timeout(SEC).deadline(2 * SEC);
    let client = server.client(retry.build().unwrap());
    let started = Instant::now();
    let error = client.get(URL).send().await.unwrap_err();
    // The second attempt starts at 1200 ms and is cut off at 2000.
    assert_eq!(server.count(), 2);
    assert_eq!(started.elapsed(), 2 * SEC);
    assert!(SteadyError::of(&error).unwrap().is_deadline());
}

#[tokio::test(start_paused = true)]
async fn a_request_may_have_its_own_attempt_timeout() {
    // The second call must not wait longer because of the first.
    let exact = || exact().backoff(doubling(200 * MS).alone());
    for middleware in [exact(), exact().attempt_timeout(SEC)] {
        let server = Server::new(|_| Reply::silence());
        let client = server.client(middleware.build().unwrap());
        for (timeout, gaps) in [(300 * MS, [500, 700]), (3 * SEC, [3200, 3400])] {
            let before = server.count();
            let request = client.get(URL).max_retries(2).attempt_timeout(timeout);
            let error = request.send().await.unwrap_err();
            let timed_out = SteadyError::of(&error).unwrap();
            let cut = (timed_out.is_deadline(), timed_out.time_limit().unwrap());
            assert_eq!(cut, (false, timeout));
            assert_eq!(server.count(), before + 3);
            assert_eq!(server.gaps()[before..], gaps.map(|gap| gap * MS));
        }
        // A shorter deadline takes precedence.
        let started = Instant::now();
        let request = client.get(URL).attempt_timeout(3 * SEC).deadline(2 * SEC);
        let error = request.send().await.unwrap_err();
        assert!(SteadyError::of(&error).unwrap().is_deadline());
        assert_eq!(started.elapsed(), 2 * SEC);
        assert_eq!(server.count(), 7);
        // A timeout of zero is invalid.
        let error = client.get(URL).attempt_timeout(Duration::ZERO).send().await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "not sent to api.example.com: attempt_timeout (0s) should be longer than zero"
        );
        assert_eq!(server.count(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_begin_together_are_launched_apart() {
    let server = Server::statuses([200]);
    let retry = RetryMiddleware::builder().launch_spread(10 * SEC).build();
    let client = server.client(retry.unwrap());
    let began = Instant::now();
    let calls = (0..1000).map(|_| client.get(URL).send());
    let responses = futures_util::future::join_all(calls).await;
    let mut buckets = [0; 10];
    for arrival in server.received() {
        let at = arrival.at - began;
        assert!(at <= 10 * SEC + MS);
        buckets[(at.as_millis() / 1000).min(9) as usize] += 1;
    }
    // 100 ± 10 is expected in each; 50 to 150 is five deviations.
    assert!(
        buckets.iter().all(|count| (50..150).contains(count)),
        "{buckets:?}"
    );
    for response in responses {
        let response = response.unwrap();
        let report = RetryReport::of(&response).unwrap();
        let first = report.attempts().next().unwrap();
        assert_eq!(report.waited(), first.waited());
        assert!(first.sent_at() >= first.waited());
    }
}

#[tokio::test(start_paused = true)]
async fn a_launch_leaves_half_the_deadline_for_the_attempt() {
    for _ in 0..100 {
        let server = Server::new(|_| late(SEC - MS, respond(200)));
        let retry = RetryMiddleware::builder()
            .launch_spread(10 * SEC)
            .deadline(2 * SEC)
            .build();
        let response = server.client(retry.unwrap()).get(URL).send().await;
        assert_eq!(response.unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn one_request_can_have_its_own_limits() {
    let count = |request: fn(
        reqwest_middleware::RequestBuilder,
    ) -> reqwest_middleware::RequestBuilder| async move {
        let server = Server::statuses([503]);
        let client = server.client(exact().deadline(60 * SEC).build().unwrap());
        let response = request(client.get(URL)).send().await.unwrap();
        (
            server.count(),
            RetryReport::of(&response).unwrap().stop_reason(),
        )
    };
    assert_eq!(
        count(|request| request).await,
        (6, StopReason::RetriesExhausted)
    );
    assert_eq!(
        count(|request| request.max_retries(1)).await,
        (2, StopReason::RetriesExhausted)
    );
    assert_eq!(
        count(|request| request.max_retries(7)).await,
        (8, StopReason::RetriesExhausted)
    );
    assert_eq!(
        count(|request| request.no_retry()).await,
        (1, StopReason::Disabled)
    );
    assert_eq!(
        count(|request| request.deadline(SEC)).await,
        (3, StopReason::DeadlineTooClose)
    );
}

#[tokio::test(start_paused = true)]
async fn the_longest_durations_are_fine_everywhere() {
    let server = Server::statuses([503, 503, 200]);
    let retry = RetryMiddleware::builder()
        .max_retries(u32::MAX)
        .backoff(Backoff::exponential(MS).multiplier(f64::MAX).cap(SEC))
        .deadline(Duration::MAX)
        .attempt_timeout(Duration::MAX)
        .retry_window(Duration::MAX)
        .max_server_delay(Duration::MAX)
        .build()
        .unwrap();
    let response = server
        .client(retry)
        .get(URL)
        .deadline(Duration::MAX)
        .send()
        .await;
    assert_eq!(response.unwrap().status(), 200);
    assert_eq!(server.count(), 3);

    for jitter in [
        Jitter::Full,
        Jitter::Decorrelated,
        Jitter::Additive(Duration::MAX),
    ] {
        let server = Server::statuses([503, 503, 200]);
        let backoff = Backoff::exponential(Duration::MAX).jitter(jitter);
        let retry = RetryMiddleware::builder()
            .backoff(backoff)
            .retry_window(Duration::MAX)
            .launch_spread(Duration::MAX)
            .build()
            .unwrap();
        let client = server.client(retry);
        let century = 100 * 365 * 24 * 60 * 60 * SEC;
        let call = tokio::time::timeout(century, client.get(URL).send());
        // The call succeeds or waits forever. It does not fail.
        if let Ok(response) = call.await {
            assert_eq!(response.unwrap().status(), 200);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_pause_is_kept_if_the_limits_allow_it() {
    let server = Server::new(|_| respond_with(503, &[("retry-after", "99999999999999999999")]));
    let retry = RetryMiddleware::builder()
        .retry_window(Duration::MAX)
        .max_server_delay(Duration::MAX)
        .build()
        .unwrap();
    let client = server.client(retry);
    let year = 365 * 24 * 60 * 60 * SEC;
    let call = tokio::time::timeout(year, client.get(URL).send());
    assert!(call.await.is_err());
    assert_eq!(server.count(), 1);
}
