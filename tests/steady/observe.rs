//! What observers and the log get to know, and in which order.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_steady::dead_letter::dead_letter_channel;
use reqwest_steady::observe::{
    AttemptOutcome, CallInfo, Event, EventKind, LoadChange, Observer, RetryScheduled,
};
use reqwest_steady::{
    Budget, KeyBy, RequestBuilderExt, RetryMiddlewareBuilder, RetryReport, SteadyError, StopReason,
    ThrottleMiddleware,
};
use tokio::time::timeout;

use crate::support::scripted::{
    Reply, Server, URL, call, late, respond, respond_with, stacked, throttled,
};
use crate::support::stacks::{MS, retry_after};

/// Every event as one line.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    fn observe(&self) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
        let events = self.clone();
        move |event| {
            let CallInfo {
                method,
                host,
                attempt,
                ..
            } = event.call;
            assert_eq!((method.as_str(), host), ("GET", "api.example.com"));
            let line = format!("{attempt} {}", line(&event.kind));
            events.0.lock().unwrap().push(line);
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn line(kind: &EventKind) -> String {
    match kind {
        EventKind::CallStarted => "call started".into(),
        EventKind::AttemptStarted => "attempt started".into(),
        EventKind::AttemptFinished(it) => {
            format!("attempt finished: {} in {:?}", it.outcome, it.took)
        }
        EventKind::RetryScheduled(it) => format!(
            "retry scheduled: {} of {}, wait {:?}, hint {:?}{}",
            it.cause,
            it.max_attempts,
            it.wait,
            it.hint,
            if it.dry_run { ", dry run" } else { "" },
        ),
        EventKind::BudgetWaited(it) => format!("waited in line {:?}", it.wait),
        EventKind::BudgetRefused(it) => format!("budget refused: {}, {} left", it.cause, it.budget),
        EventKind::Stopped(it) => format!(
            "stopped: {}, {}, waited {:?}, took {:?}",
            it.stop_reason, it.outcome, it.waited, it.took
        ),
        EventKind::Abandoned(it) => format!(
            "abandoned {} after {:?}",
            if it.in_attempt {
                "in an attempt"
            } else {
                "in a wait"
            },
            it.took
        ),
        EventKind::DeadLettered(outcome) => format!("dead letter: {outcome}"),
        EventKind::ThrottleLoad(it) => format!(
            "load: {:?}, {} in flight, {} wait, oldest {:?}",
            it.change, it.in_flight, it.waiting, it.oldest
        ),
        EventKind::ThrottleWaited(it) => format!("waited {:?}", it.wait),
        EventKind::ThrottleRefused(it) => format!(
            "refused: {}, waited {:?}, {} wait",
            it.reason, it.waited, it.depth
        ),
        EventKind::ThrottlePaused(it) => format!("paused for {:?} by {}", it.pause, it.asked_by),
        EventKind::ThrottleReleased => "released".into(),
        EventKind::ThrottlePaced(it) => format!("pace from {:?} to {:?}", it.before, it.per_second),
        other => panic!("{other:?} is new here"),
    }
}

/// The events of one GET.
async fn events_of(server: &Arc<Server>, retry: RetryMiddlewareBuilder) -> Vec<String> {
    let events = Events::default();
    let client = server.client(retry.observe_fn(events.observe()).build().unwrap());
    // What comes back is looked at elsewhere.
    let _ = client.get(URL).send().await;
    events.take()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_recovers_is_told_step_by_step() {
    let server = Server::new(|index| match index {
        0 => late(30 * MS, respond(503)),
        1 => respond_with(503, &[("retry-after-ms", "0")]),
        _ => respond(200),
    });
    assert_eq!(
        events_of(&server, retry_after(100 * MS)).await,
        [
            "1 call started",
            "1 attempt started",
            "1 attempt finished: 503 in 30ms",
            "1 retry scheduled: 503 of 6, wait 100ms, hint None",
            "2 attempt started",
            "2 attempt finished: 503 in 0ns",
            "2 retry scheduled: 503 of 6, wait 200ms, hint Some(0ns)",
            "3 attempt started",
            "3 attempt finished: 200 in 0ns",
            "3 stopped: succeeded, 200, waited 300ms, took 330ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_stops_once() {
    let server = Server::new(|_| Reply::fail(ErrorKind::ConnectionReset));
    assert_eq!(
        events_of(&server, retry_after(100 * MS).max_retries(1)).await,
        [
            "1 call started",
            "1 attempt started",
            "1 attempt finished: reset in 0ns",
            "1 retry scheduled: reset of 2, wait 100ms, hint None",
            "2 attempt started",
            "2 attempt finished: reset in 0ns",
            "2 stopped: retries_exhausted, reset, waited 100ms, took 100ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_at_once_has_no_retry_to_tell_of() {
    for (status, headers, reason) in [
        (200, None, "succeeded"),
        (404, None, "not_retryable"),
        (503, Some(("x-should-retry", "false")), "server_veto"),
        (503, Some(("retry-after", "3600")), "server_delay_too_long"),
    ] {
        let headers = Vec::from_iter(headers);
        let server = Server::new(move |_| respond_with(status, &headers));
        assert_eq!(
            events_of(&server, retry_after(100 * MS)).await,
            [
                "1 call started".to_owned(),
                "1 attempt started".to_owned(),
                format!("1 attempt finished: {status} in 0ns"),
                format!("1 stopped: {reason}, {status}, waited 0ns, took 0ns"),
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_is_told_before_the_end() {
    let server = Server::statuses([503]);
    let budget = Budget::builder().min_retries_per_sec(0.1).build().unwrap();
    let retry = retry_after(100 * MS).budget(budget);
    assert_eq!(
        events_of(&server, retry).await[3..],
        [
            "1 retry scheduled: 503 of 6, wait 100ms, hint None",
            "2 attempt started",
            "2 attempt finished: 503 in 0ns",
            "2 budget refused: 503, 0 left",
            "2 stopped: budget_empty, 503, waited 100ms, took 100ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_told_of_wherever_it_was() {
    let server = Server::new(|index| match index {
        0 => respond(503),
        _ => Reply::silence(),
    });
    let events = Events::default();
    let retry = retry_after(100 * MS).observe_fn(events.observe());
    let client = server.client(retry.build().unwrap());
    let dropped = timeout(40 * MS, client.get(URL).send()).await;
    assert!(dropped.is_err());
    let in_wait = events.take();
    assert_eq!(
        in_wait[2..],
        [
            "1 attempt finished: 503 in 0ns",
            "1 retry scheduled: 503 of 6, wait 100ms, hint None",
            "1 abandoned in a wait after 40ms",
        ]
    );
    let dropped = timeout(40 * MS, client.get(URL).send()).await;
    assert!(dropped.is_err());
    assert_eq!(
        events.take(),
        [
            "1 call started",
            "1 attempt started",
            "1 abandoned in an attempt after 40ms",
        ]
    );
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_it_is_sent_was_waiting() {
    let server = Server::statuses([200]);
    let events = Events::default();
    let retry = retry_after(100 * MS)
        .seed(1)
        .launch_spread(60_000 * MS)
        .observe_fn(events.observe());
    let client = server.client(retry.build().unwrap());
    assert!(timeout(MS, client.get(URL).send()).await.is_err());
    assert_eq!(
        events.take(),
        ["1 call started", "1 abandoned in a wait after 1ms"]
    );
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_decides_and_reports_but_sends_nothing_again() {
    let server = Server::new(|index| match index {
        0..3 => respond_with(503, &[("retry-after-ms", "50")]),
        _ => respond(503),
    });
    let budget = Budget::builder().min_retries_per_sec(0.2).build().unwrap();
    let retry = retry_after(100 * MS)
        .seed(1)
        .budget(budget.clone())
        .dry_run(true);
    let events = Events::default();
    let client = server.client(retry.observe_fn(events.observe()).build().unwrap());
    let began = tokio::time::Instant::now();
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(began.elapsed(), Duration::ZERO);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(
        (report.stop_reason(), report.retries()),
        (StopReason::DryRun, 0)
    );
    let told = events.take();
    assert_eq!(told.len(), 5);
    assert_eq!(told[2], "1 attempt finished: 503 in 0ns");
    // Up to 50 ms more by chance, as the server's hint is spread.
    assert!(
        told[3].starts_with("1 retry scheduled: 503 of 6, wait 1"),
        "{}",
        told[3]
    );
    assert!(told[3].ends_with("hint Some(50ms), dry run"), "{}", told[3]);
    assert_eq!(told[4], "1 stopped: dry_run, 503, waited 0ns, took 0ns");
    assert_eq!(response.text().await.unwrap(), "body of 503");

    // The budget is charged as it would have been, and its end is decided on, too.
    assert_eq!(budget.balance(), 1.0);
    client.get(URL).send().await.unwrap();
    assert_eq!(budget.balance(), 0.0);
    // With a hint, the retry would wait in line.
    for stop in [StopReason::DryRun, StopReason::BudgetEmpty] {
        let response = client.get(URL).send().await.unwrap();
        assert_eq!(RetryReport::of(&response).unwrap().stop_reason(), stop);
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(server.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_breaks_nothing_and_others_are_told() {
    let server = Server::statuses([503, 200]);
    let events = Events::default();
    let retry = retry_after(100 * MS)
        .observe_fn(|_| panic!("on purpose"))
        .observe_fn(events.observe());
    let client = server.client(retry.build().unwrap());
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.gaps(), [100 * MS]);
    assert_eq!(events.take().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn an_observer_may_panic_wherever_it_is_told_and_with_whatever() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            // A panic while another is under way would end the test.
            if !std::thread::panicking() {
                panic!("on purpose, too");
            }
        }
    }
    let server = Server::new(|_| Reply::silence());
    let retry = retry_after(100 * MS).observe_fn(|_| std::panic::panic_any(Bomb));
    let throttle = ThrottleMiddleware::builder()
        .max_in_flight(1)
        .max_queue(0)
        .observe_fn(|_| panic!("on purpose"));
    let client = throttled(&server, retry, throttle);
    let (dropped, refused) =
        tokio::join!(timeout(MS, client.get(URL).send()), client.get(URL).send(),);
    assert!(dropped.is_err());
    assert!(SteadyError::of(&refused.unwrap_err()).is_some_and(SteadyError::is_throttled));
    // The place of the one that was dropped is free again.
    assert!(timeout(MS, client.get(URL).send()).await.is_err());
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_observer_needs_only_the_methods_that_it_wants() {
    #[derive(Default)]
    struct Waits(Mutex<BTreeMap<String, Vec<Duration>>>);

    impl Observer for Waits {
        fn retry_scheduled(&self, call: &CallInfo<'_>, retry: &RetryScheduled) {
            let mut waits = self.0.lock().unwrap();
            waits
                .entry(call.host.to_owned())
                .or_default()
                .push(retry.wait);
        }
    }

    let waits = Arc::new(Waits::default());
    let server = Server::statuses([503, 502, 200]);
    let retry = retry_after(100 * MS).observer(Arc::clone(&waits));
    let client = server.client(retry.build().unwrap());
    client.get("http://example.com:8080/").send().await.unwrap();
    let expected = BTreeMap::from([("example.com:8080".to_owned(), vec![100 * MS, 200 * MS])]);
    assert_eq!(*waits.0.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_belongs_to_its_attempt() {
    let server = Server::new(|index| match index {
        0 => {
            let reset = std::io::Error::from(ErrorKind::ConnectionReset);
            let drops = [Ok("half"), Err(reset)];
            let body = reqwest::Body::wrap_stream(futures_util::stream::iter(drops));
            Reply::response(http::Response::new(body))
        }
        _ => respond(200),
    });
    let events = Events::default();
    let client = server.client(
        retry_after(100 * MS)
            .observe_fn(events.observe())
            .build()
            .unwrap(),
    );
    let request = client.get(URL).buffer_response(1000);
    assert_eq!(request.send().await.unwrap().status(), 200);
    assert_eq!(
        events.take()[1..5],
        [
            "1 attempt started",
            "1 attempt finished: reset in 0ns",
            "1 retry scheduled: reset of 6, wait 100ms, hint None",
            "2 attempt started",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_throttles_queue_is_told_of_as_it_fills_and_empties() {
    let server = Server::new(|_| late(10 * MS, respond(200)));
    let events = Events::default();
    let throttle = ThrottleMiddleware::builder()
        .adaptive(false)
        .max_in_flight(1)
        .max_queue(1)
        .observe_fn(events.observe());
    let client = throttled(&server, retry_after(100 * MS), throttle);
    let results = join_all((0..3).map(|name| call(&client, name))).await;
    assert_eq!(results.iter().filter(|it| it.is_ok()).count(), 2);
    assert_eq!(
        events.take(),
        [
            "1 load: Sent, 1 in flight, 0 wait, oldest 0ns",
            "1 load: Queued, 1 in flight, 1 wait, oldest 0ns",
            "1 refused: queue_full, waited 0ns, 1 wait",
            "1 load: Ended, 1 in flight, 0 wait, oldest 0ns",
            "1 load: Left, 1 in flight, 0 wait, oldest 0ns",
            "1 waited 10ms",
            "1 load: Sent, 1 in flight, 0 wait, oldest 0ns",
            "1 load: Ended, 0 in flight, 0 wait, oldest 0ns",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn who_leaves_a_throttle_early_is_told_of_as_well() {
    let server = Server::new(|_| Reply::silence());
    let events = Events::default();
    let throttle = ThrottleMiddleware::builder()
        .adaptive(false)
        .max_in_flight(1)
        .max_queue_wait(30 * MS)
        .observe_fn(events.observe());
    let client = throttled(&server, retry_after(100 * MS), throttle);
    let first = timeout(50 * MS, call(&client, 0));
    let second = timeout(20 * MS, call(&client, 1));
    let third = call(&client, 2);
    let (first, second, third) = tokio::join!(first, second, third);
    assert!(first.is_err() && second.is_err());
    assert!(SteadyError::of(&third.unwrap_err()).is_some_and(SteadyError::is_throttled));
    assert_eq!(
        events.take(),
        [
            "1 load: Sent, 1 in flight, 0 wait, oldest 0ns",
            "1 load: Queued, 1 in flight, 1 wait, oldest 0ns",
            "1 load: Queued, 1 in flight, 2 wait, oldest 0ns",
            "1 load: Left, 1 in flight, 1 wait, oldest 20ms",
            "1 load: Left, 1 in flight, 0 wait, oldest 0ns",
            "1 refused: wait_too_long, waited 30ms, 0 wait",
            "1 load: Ended, 0 in flight, 0 wait, oldest 0ns",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_throttle_tells_when_it_closes_and_when_it_is_open_again() {
    let server = Server::new(|index| match index {
        0 => respond_with(429, &[("retry-after", "2")]),
        _ => respond(200),
    });
    let events = Events::default();
    let throttle = ThrottleMiddleware::builder()
        .seed(1)
        .observe_fn(events.observe());
    let client = throttled(&server, retry_after(100 * MS), throttle);
    assert_eq!(call(&client, 0).await.unwrap(), 200);
    assert_eq!(call(&client, 0).await.unwrap(), 200);
    let told: Vec<_> = (events.take().into_iter())
        .filter(|it| it.contains("paused") || it.contains("released"))
        .collect();
    let [paused, released] = &told[..] else {
        panic!("{told:?}");
    };
    // Up to a second more, by chance.
    assert!(paused.starts_with("1 paused for 2."), "{paused}");
    assert!(paused.ends_with(" by server"), "{paused}");
    assert_eq!(released, "2 released");
}

#[tokio::test(start_paused = true)]
async fn a_throttle_reports_its_pace_and_when_it_is_free() {
    let server = Server::new(|index| match index {
        0 => respond(429),
        _ => respond(200),
    });
    let events = Events::default();
    let throttle = ThrottleMiddleware::builder().seed(1);
    let throttle = throttle.observe_fn(events.observe());
    let client = throttled(&server, retry_after(100 * MS), throttle);
    join_all((0..60).map(|name| call(&client, name))).await;
    tokio::time::sleep(70_000 * MS).await;
    assert_eq!(call(&client, 0).await.unwrap(), 200);
    assert_eq!(server.count(), 62);
    let paces: Vec<_> = (events.take().into_iter())
        .filter(|it| it.contains("pace"))
        .collect();
    assert_eq!(
        paces,
        [
            "1 pace from None to Some(20.0)",
            "1 pace from Some(20.0) to Some(80.0)",
            "1 pace from Some(80.0) to None",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_in_the_queue_is_told_with_the_attempt() {
    let server = Server::new(|_| late(300 * MS, respond(200)));
    let times = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&times);
    let retry = retry_after(100 * MS).observe_fn(move |event| {
        if let EventKind::AttemptFinished(attempt) = event.kind {
            told.lock().unwrap().push((attempt.took, attempt.queued));
        }
    });
    let throttle = ThrottleMiddleware::builder().max_in_flight(1);
    let client = throttled(&server, retry, throttle);
    let results = join_all((0..2).map(|name| call(&client, name))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    // One tick more: responses that arrive together are read first.
    let expected = [(300 * MS, Duration::ZERO), (601 * MS, 301 * MS)];
    assert_eq!(*times.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn every_beginning_at_a_throttle_has_its_end() {
    let server = Server::new(|index| match index % 5 {
        0 => respond_with(429, &[("retry-after-ms", "20")]),
        1 => late(7 * MS, respond(503)),
        2 => Reply::fail(ErrorKind::ConnectionReset),
        _ => late(3 * MS, respond(200)),
    });
    let balance = Arc::new(Mutex::new((0_i32, 0_i32)));
    let count = Arc::clone(&balance);
    let throttle = ThrottleMiddleware::builder()
        .seed(1)
        .max_in_flight(3)
        .max_queue(40)
        .observe_fn(move |event| {
            if let EventKind::ThrottleLoad(load) = event.kind {
                let (waiting, in_flight) = &mut *count.lock().unwrap();
                match load.change {
                    LoadChange::Queued => *waiting += 1,
                    LoadChange::Left => *waiting -= 1,
                    LoadChange::Sent => *in_flight += 1,
                    LoadChange::Ended => *in_flight -= 1,
                    other => panic!("{other:?} is new here"),
                }
                assert!(*waiting >= 0 && *in_flight >= 0);
            }
        });
    let client = throttled(&server, retry_after(100 * MS).seed(1), throttle);
    let calls = (0..60).map(|name| timeout((name as u32 + 1) * 9 * MS, call(&client, name)));
    let results = join_all(calls).await;
    assert!(results.iter().any(Result::is_err), "some were dropped");
    assert!(
        results.iter().flatten().any(Result::is_err),
        "some were refused"
    );
    assert!(
        results.iter().flatten().any(Result::is_ok),
        "some got through"
    );
    assert_eq!(*balance.lock().unwrap(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn outcomes_and_methods_are_told_as_they_are() {
    let server = Server::statuses([201]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&seen);
    let retry = retry_after(100 * MS).observe_fn(move |event| {
        if let EventKind::Stopped(stop) = event.kind {
            let AttemptOutcome::Status(status) = stop.outcome else {
                panic!("{stop:?}");
            };
            let method = event.call.method.to_string();
            keep.lock()
                .unwrap()
                .push((method, status.as_u16(), stop.budget));
        }
    });
    let client = server.client(retry.build().unwrap());
    client.post(URL).send().await.unwrap();
    client.put(URL).send().await.unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [
            // It could not be retried, and needs no budget.
            ("POST".to_owned(), 201, None),
            ("PUT".to_owned(), 201, Some(20.2)),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_that_a_function_made_is_not_shown() {
    let server = Server::new(|_| Reply::silence());
    let throttle = ThrottleMiddleware::builder()
        .max_in_flight(1)
        .max_queue(0)
        .key_by(KeyBy::from_fn(|request| {
            let key = request.headers()["x-api-key"].to_str();
            key.unwrap_or_default().to_owned()
        }))
        .build()
        .unwrap();
    let client = server.client_behind([Arc::new(throttle.clone()) as _]);
    let send = || client.get(URL).header("x-api-key", "hush").send();
    let (waiting, refused) = tokio::join!(timeout(MS, send()), send());
    assert!(waiting.is_err());
    let error = refused.unwrap_err();
    let refusal = SteadyError::of(&error).unwrap();
    assert_eq!(refusal.key(), Some("hush"));
    for shown in [
        error.to_string(),
        format!("{error:?} {refusal:?} {throttle:?}"),
    ] {
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("api.example.com"), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_a_throttle_keeps_back_stops_with_the_answer_before_it() {
    let server = Server::statuses([503]);
    let events = Events::default();
    let throttle = ThrottleMiddleware::builder()
        .rate(0.01, 1)
        .max_queue_wait(MS);
    let client = throttled(
        &server,
        retry_after(100 * MS).observe_fn(events.observe()),
        throttle,
    );
    assert_eq!(call(&client, 0).await.unwrap(), 503);
    assert_eq!(
        events.take()[3..],
        [
            "1 retry scheduled: 503 of 6, wait 100ms, hint None",
            "2 attempt started",
            "2 attempt finished: throttled in 0ns",
            "1 stopped: throttled, 503, waited 100ms, took 100ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_gets_longer_is_told_again() {
    let server = Server::new(|index| match index {
        0 => late(10 * MS, respond_with(429, &[("retry-after", "1")])),
        1 => late(20 * MS, respond_with(429, &[("retry-after", "1")])),
        2 => late(30 * MS, respond_with(429, &[("retry-after", "60")])),
        _ => respond(200),
    });
    let events = Events::default();
    let throttle = ThrottleMiddleware::builder()
        .seed(1)
        .max_queue_wait(100_000 * MS)
        .observe_fn(events.observe());
    let client = throttled(&server, retry_after(100 * MS).seed(1), throttle);
    let results = join_all((0..3).map(|name| call(&client, name))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let told: Vec<_> = (events.take().into_iter())
        .filter(|it| it.contains("paused") || it.contains("released"))
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("1 paused for 1."), "{told:?}");
    assert!(told[1].starts_with("1 paused for 60."), "{told:?}");
    assert_eq!(told[2], "2 released");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_takes_nothing_from_calls_inside_it() {
    let server = Server::statuses([503]);
    let inner = server.client(
        retry_after(100 * MS)
            .max_retries(3)
            .budget(Budget::unlimited())
            .build()
            .unwrap(),
    );
    let outer = retry_after(100 * MS)
        .max_retries(1)
        .dry_run(true)
        .build()
        .unwrap();
    let client = stacked(outer, inner);
    let response = client.get(URL).send().await.unwrap();
    let stop = RetryReport::of(&response).unwrap().stop_reason();
    assert_eq!(stop, StopReason::DryRun);
    assert_eq!(server.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_no_letter_about_what_it_would_have_sent_again() {
    let server = Server::statuses([503]);
    let (sink, mut letters) = dead_letter_channel(10);
    let budget = Budget::builder().min_retries_per_sec(0.1).build().unwrap();
    let retry = retry_after(100 * MS)
        .dry_run(true)
        .budget(budget)
        .dead_letter_sink(sink);
    let client = server.client(retry.build().unwrap());
    client.get(URL).send().await.unwrap();
    assert!(timeout(MS, letters.recv()).await.is_err());
    // What it would have given up gets one, as it would have.
    client.get(URL).send().await.unwrap();
    let letter = letters.recv().await.unwrap();
    assert_eq!(letter.stop_reason(), Some(StopReason::BudgetEmpty));
    client.post(URL).send().await.unwrap();
    let letter = letters.recv().await.unwrap();
    assert_eq!(letter.stop_reason(), Some(StopReason::NotIdempotent));
    assert_eq!(server.count(), 3);
}
