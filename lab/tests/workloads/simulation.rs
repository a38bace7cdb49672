//! Tests of the simulated service and of the workloads that the scenarios rely on.

use std::time::Duration;

use reqwest::{Method, Request};
use reqwest_steady::observe::{AttemptOutcome, FailureKind};
use reqwest_steady::testing::{
    Chance, Down, Flaky, Limit, Load, Outcome, Reply, Rule, ScriptedServer as Server,
    SimulatedService, Simulation, Stack, Steps, Worker,
};
use reqwest_steady::{Backoff, Jitter, RequestBuilderExt, RetryMiddleware, RetryReport};
use tokio::time::{Instant, timeout};

use crate::scripted::{URL, dripping};
use lab::stacks::{no_retry, reqwest_retry, reqwest_retry_unseeded, steady_retry};
use lab::workloads::{Drain, HOST, NEAR, Shape, nine_writes, overload_of_bucket, thousand_writes};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// Returns how many of these requests the rule accepts at this time.
fn passed(rule: &mut impl Rule, at: Duration, requests: usize) -> usize {
    let mut chance = Chance::new(0);
    let passed = (0..requests).filter(|_| rule.decide(&request(), at, &mut chance).is_none());
    passed.count()
}

fn request() -> Request {
    let url = format!("http://{HOST}/").parse().unwrap();
    Request::new(Method::GET, url)
}

/// Sends requests to one worker at these times. Returns the status and the delay of each response.
fn responses(worker: Worker, arrivals: &[Duration]) -> Vec<(u16, Duration)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let service = SimulatedService::with_latency(Duration::ZERO)
            .rule(worker)
            .start();
        let client = service.client_behind(no_retry(0));
        let calls = arrivals.iter().map(|at| async {
            tokio::time::sleep_until(service.started() + *at).await;
            let response = client.execute(request()).await.unwrap();
            (
                response.status().as_u16(),
                service.started().elapsed() - *at,
            )
        });
        futures_util::future::join_all(calls).await
    })
}

#[test]
fn a_window_refuses_the_51st_request_and_the_next_resets() {
    let mut limit = Limit::window(500.0, 100 * MS);
    assert_eq!(passed(&mut limit, 40 * MS, 30), 30);
    assert_eq!(passed(&mut limit, 99 * MS, 30), 20);
    assert_eq!(passed(&mut limit, 100 * MS, 60), 50);
    assert_eq!(passed(&mut limit, 1000 * MS, 60), 50);
}

#[test]
fn a_window_uses_the_rate_at_its_start() {
    let rate = Steps::from(500.0).then(150 * MS, 250.0);
    let mut limit = Limit::window(rate, 100 * MS);
    assert_eq!(passed(&mut limit, 160 * MS, 99), 50);
    assert_eq!(passed(&mut limit, 200 * MS, 99), 25);
}

#[test]
fn a_bucket_holds_its_burst_and_fills_at_its_rate() {
    let mut limit = Limit::bucket(500.0, 5.0);
    assert_eq!(passed(&mut limit, Duration::ZERO, 9), 5);
    assert_eq!(passed(&mut limit, MS, 9), 0);
    let by_ms = (2..1002).map(|ms| passed(&mut limit, ms * MS, 9));
    assert_eq!(by_ms.sum::<usize>(), 500);
    assert_eq!(passed(&mut limit, 10 * SEC, 9), 5);
}

#[test]
fn a_bucket_follows_changes_of_its_rate() {
    let rate = Steps::from(100.0).then(SEC, 10.0).then(2 * SEC, 1.0);
    assert_eq!(rate.sum(500 * MS..4 * SEC), 50.0 + 10.0 + 2.0);
    assert_eq!(rate.sum(SEC..SEC), 0.0);
    let mut limit = Limit::bucket(rate, 1000.0);
    assert_eq!(passed(&mut limit, Duration::ZERO, 2000), 1000);
    assert_eq!(passed(&mut limit, 4 * SEC, 2000), 112);
}

#[test]
fn an_outage_lasts_exactly_until_its_end() {
    let mut down = Down::with_status(503, SEC..2 * SEC);
    let passed = [999 * MS, SEC, 1999 * MS, 2 * SEC].map(|at| passed(&mut down, at, 1));
    assert_eq!(passed, [1, 0, 0, 1]);
}

#[test]
fn a_worker_handles_requests_in_order() {
    let worker = Worker::new(1000.0, SEC..SEC);
    let responses = responses(worker, &[10 * MS, 10 * MS, 11 * MS, 99 * MS]);
    assert_eq!(
        responses,
        [(200, MS), (200, 2 * MS), (200, 2 * MS), (200, MS)]
    );
}

#[test]
fn work_interrupted_by_a_stall_finishes_after_it() {
    let worker = Worker::new(10.0, 10 * SEC..10 * SEC + 500 * MS);
    // The first is half done when the stall starts, and the second waits behind it.
    let arrivals = [10 * SEC - 50 * MS, 10 * SEC + 250 * MS, 20 * SEC];
    let expected = [
        (200, 50 * MS + 500 * MS + 50 * MS),
        (200, 250 * MS + 50 * MS + 100 * MS),
        (200, 100 * MS),
    ];
    assert_eq!(responses(worker, &arrivals), expected);
}

#[test]
fn timed_out_requests_keep_the_worker_busy() {
    let worker = Worker::new(10.0, 99 * SEC..99 * SEC);
    let mut arrivals = vec![Duration::ZERO; 102];
    arrivals.extend([9100 * MS, 9300 * MS]);
    let responses = responses(worker, &arrivals);
    let count = |response| {
        responses[..102]
            .iter()
            .filter(|it| **it == response)
            .count()
    };
    assert_eq!(
        responses[..102]
            .iter()
            .filter(|(status, _)| *status == 200)
            .count(),
        10
    );
    // Requests queue for up to 10 s. The next one is refused.
    assert_eq!(count((504, SEC)), 91);
    assert_eq!(count((503, Duration::ZERO)), 1);
    // The worker has 10.1 s of work, although callers have timed out.
    assert_eq!(responses[102..], [(504, SEC), (200, SEC)]);
}

#[test]
fn half_of_the_latency_is_before_the_decision() {
    for (latency, arrived, responded) in [(2, 1, 2), (50, 25, 50), (1, 1, 1)] {
        let service = SimulatedService::with_latency(latency * MS);
        let outcome = Simulation::new(service, Load::AtOnce(3)).run(&no_retry);
        let arrivals: Vec<_> = outcome.arrivals.0.iter().map(|one| one.at).collect();
        assert_eq!(arrivals, [arrived * MS; 3]);
        assert_eq!(outcome.last_success(), responded * MS);
        assert_eq!(outcome.added_latency(1.0, Duration::ZERO), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_on_its_way_never_arrives() {
    let service = SimulatedService::with_latency(50 * MS).start();
    let client = service.client_behind(no_retry(0));
    let url = format!("http://{HOST}/");
    let dropped = |after| timeout(after, client.get(&url).send());
    assert!(dropped(20 * MS).await.is_err());
    tokio::time::sleep(SEC).await;
    assert_eq!(service.arrivals().count(), 0);
    // Here the response is on its way back.
    assert!(dropped(30 * MS).await.is_err());
    assert_eq!(service.arrivals().successes(), 1);
}

#[test]
fn the_latency_varies_by_the_given_share() {
    let service = SimulatedService::with_latency(100 * MS).jitter(0.2);
    let simulation = Simulation::new(service, Load::AtOnce(500)).seed(7);
    let outcome = simulation.run(&no_retry);
    let took = |rank| outcome.added_latency(rank, Duration::ZERO);
    assert_eq!(took(0.4), Duration::ZERO);
    assert!((18 * MS..=20 * MS).contains(&took(1.0)), "{:?}", took(1.0));
}

#[tokio::test(start_paused = true)]
async fn a_limit_shows_the_remaining_quota_on_request() {
    let limit = Limit::window(20.0, 100 * MS).status(503).with_hints();
    let limit = limit.on_refusal("retry-after", "1");
    let service = SimulatedService::with_latency(2 * MS).rule(limit).start();
    let client = service.client_behind(no_retry(0));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let response = client.get(format!("http://{HOST}/")).send().await.unwrap();
        let header = |name| response.headers().get(name).map(|it| it.to_str().unwrap());
        seen.push(format!(
            "{} {:?} {:?} {:?}",
            response.status().as_u16(),
            header("ratelimit-remaining"),
            header("ratelimit-reset"),
            header("retry-after"),
        ));
    }
    let expected = [
        r#"200 Some("1") Some("1") None"#,
        r#"200 Some("0") Some("1") None"#,
        r#"503 Some("0") Some("1") Some("1")"#,
    ];
    assert_eq!(seen, expected);
}

#[test]
fn calls_take_turns_among_clients_and_hosts() {
    let service = SimulatedService::with_latency(2 * MS)
        .host_rule("b", Down::unreachable(Duration::ZERO..SEC));
    let simulation = Simulation::new(service, Load::Rate(8.0, SEC)).clients(2);
    let outcome = simulation.hosts(&["a", "b"]).run(&no_retry);
    let arrivals = outcome.arrivals.0.iter();
    let mut seen: Vec<_> = arrivals
        .map(|one| (one.host.as_str(), one.client.unwrap()))
        .collect();
    // Within a turn, the order is random.
    seen.chunks_mut(2).for_each(<[_]>::sort);
    let twice = [("a", 0), ("a", 1), ("b", 0), ("b", 1)].repeat(2);
    assert_eq!(seen, twice);
    let gaps = outcome
        .arrivals
        .0
        .windows(2)
        .map(|two| two[1].at - two[0].at);
    assert!(gaps.clone().all(|gap| gap == 125 * MS), "{gaps:?}");
    assert_eq!(outcome.successes_by_client(), [2, 2]);
    assert_eq!(outcome.failures().into_values().sum::<usize>(), 4);
    let healthy = outcome.of_host("a");
    assert_eq!((healthy.succeeded(), healthy.requests()), (4, 4));
}

#[test]
fn a_peak_is_found_wherever_it_starts() {
    let simulation = Simulation::new(
        SimulatedService::with_latency(2 * MS),
        Load::Rate(100.0, SEC),
    );
    let arrivals = simulation.run(&no_retry).arrivals;
    // At 1, 11, 21 ms and so on.
    assert_eq!(arrivals.peak(100 * MS), 10);
    assert_eq!(arrivals.peak(101 * MS), 11);
    assert_eq!(arrivals.by(500 * MS), [50, 50]);
    assert_eq!(arrivals.during(900 * MS..SEC).peak(SEC), 10);
}

#[test]
fn the_same_seed_gives_the_same_simulation() {
    let run = |seed| -> Outcome {
        let service = SimulatedService::with_latency(10 * MS)
            .jitter(0.5)
            .rule(Flaky::new(0.3));
        let simulation = Simulation::new(service, Load::Rate(200.0, SEC)).clients(3);
        simulation.seed(seed).run(&steady_retry)
    };
    let ends = |outcome: Outcome| -> Vec<_> {
        let calls = outcome.calls.into_iter();
        calls.map(|call| (call.begun, call.ended)).collect()
    };
    assert_eq!(ends(run(1)), ends(run(1)));
    assert_ne!(ends(run(1)), ends(run(2)));
}

#[test]
fn without_retries_a_limit_accepts_its_rate() {
    let outcome = nine_writes(NEAR).run(&no_retry);
    assert_eq!((outcome.succeeded(), outcome.requests()), (5, 9));
    assert_eq!(outcome.failures(), [("429".to_owned(), 4)].into());

    let outcome = overload_of_bucket(NEAR).run(&no_retry);
    let burst = 5;
    assert_eq!(outcome.succeeded(), 5000 + burst - 1);
    assert_eq!(outcome.requests(), 10_000);
}

#[test]
fn reqwest_retry_wastes_requests_on_nine_writes() {
    let outcome = nine_writes(NEAR).run(&reqwest_retry);
    assert_eq!(outcome.succeeded(), 9);
    assert!((13..30).contains(&outcome.requests()), "{outcome:?}");
}

#[test]
fn reqwest_retry_behaves_the_same_with_a_seed() {
    let mean = |stack: &Stack, of: fn(&Outcome) -> f64| {
        let seeds = 0..10;
        let outcomes = seeds.map(|seed| of(&thousand_writes(NEAR).seed(seed).run(stack)));
        outcomes.sum::<f64>() / 10.0
    };
    let same = |of| {
        let (seeded, free) = (mean(&reqwest_retry, of), mean(&reqwest_retry_unseeded, of));
        assert!((seeded / free - 1.0).abs() < 0.02, "{seeded} and {free}");
    };
    same(Outcome::share);
    same(Outcome::requests_per_call);
    // The maximum of a thousand random waits varies more than their mean.
    let median = |outcome: &Outcome| outcome.added_latency(0.5, Duration::ZERO).as_secs_f64();
    same(median);

    let arrivals = |seed| {
        let outcome = thousand_writes(NEAR).seed(seed).run(&reqwest_retry);
        outcome.arrivals.by(MS)
    };
    assert_eq!(arrivals(1), arrivals(1));
    assert_ne!(arrivals(1), arrivals(2));
}

#[test]
fn the_ideal_time_to_drain_a_backlog_is_minimal() {
    let window = Shape::Window(100 * MS);
    let drain = |rate, shape| Drain { rate, shape }.ideal(50 * MS);
    assert_eq!(drain(500.0, window), 1900 * MS + 25 * MS);
    assert_eq!(drain(500.0, Shape::Bucket(0.1)), 1900 * MS + 25 * MS);
    // One window accepts all.
    assert_eq!(drain(50.0, Shape::Window(2 * SEC)), 50 * MS);
}

#[tokio::test]
async fn a_simulation_runs_from_within_a_runtime_too() {
    let outcome = nine_writes(NEAR).run(&no_retry);
    assert_eq!(outcome.requests(), 9);
}

#[test]
fn beats_start_calls_together() {
    let load = Load::Beats {
        calls: 3,
        every: SEC,
        times: 2,
    };
    let outcome = Simulation::new(SimulatedService::with_latency(2 * MS), load).run(&no_retry);
    let mut begun: Vec<_> = outcome.calls.iter().map(|call| call.begun).collect();
    begun.sort_unstable();
    assert_eq!(begun, [[Duration::ZERO; 3], [SEC; 3]].concat());
}

#[test]
fn a_load_can_have_more_callers() {
    let callers = |load| {
        let simulation = Simulation::new(SimulatedService::with_latency(2 * MS), load);
        simulation.callers(7).run(&no_retry).calls.len()
    };
    assert_eq!(callers(Load::AtOnce(3)), 7);
    assert_eq!(callers(Load::Rate(3.0, 2 * SEC)), 14);
    let (calls, every, times) = (3, SEC, 4);
    let beats = Load::Beats {
        calls,
        every,
        times,
    };
    assert_eq!(callers(beats), 28);
}

/// Asserts that `make` panics with a message that contains `named`.
#[track_caller]
fn refused<T>(named: &str, make: impl FnOnce() -> T) {
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make));
    let panic = made.err().expect("a panic");
    let text = match panic.downcast_ref::<String>() {
        Some(text) => text.as_str(),
        None => panic.downcast_ref::<&str>().unwrap(),
    };
    assert!(text.contains(named), "{text}");
}

#[test]
fn invalid_values_panic_where_created_and_are_named() {
    let service = || SimulatedService::with_latency(2 * MS);
    let load = |load| Simulation::new(service(), load);
    let beats = |calls, every, times| Load::Beats {
        calls,
        every,
        times,
    };
    refused("99", || Reply::status(99));
    refused("99", || Server::statuses([200, 99]));
    refused("99", || Down::with_status(99, Duration::ZERO..SEC));
    refused("2s", || Down::unreachable(2 * SEC..SEC));
    refused("-5", || Limit::window(-5.0, SEC));
    refused("NaN", || Limit::bucket(f64::NAN, 5.0));
    refused("0.5", || Limit::bucket(5.0, 0.5));
    refused("NaN", || Limit::bucket(5.0, f64::NAN));
    refused("width", || Limit::window(5.0, Duration::ZERO));
    refused("1000", || Limit::window(5.0, SEC).status(1000));
    refused("1s", || Steps::from(1.0).then(SEC, 2.0).then(SEC, 3.0));
    refused("1.5", || Flaky::new(1.5));
    refused("-1", || service().jitter(-1.0));
    refused("rate of 0", || Worker::patient(0.0));
    refused("3s", || Worker::new(1.0, 3 * SEC..SEC));
    refused("not a host", || {
        service().host_rule("not a host", Flaky::new(0.5))
    });
    refused("a:8080", || load(Load::AtOnce(1)).hosts(&["a:8080"]));
    refused("NaN", || load(Load::Rate(f64::NAN, SEC)));
    refused("inf", || load(Load::Rate(f64::INFINITY, SEC)));
    refused("longest", || load(Load::Rate(1e-3, 1_000_000 * SEC)));
    refused("the most", || load(Load::Rate(1e9, Duration::MAX)));
    refused("the most", || load(beats(usize::MAX, SEC, 2)));
    refused("longest", || load(beats(1, Duration::MAX, 3)));
    refused("callers", || load(Load::AtOnce(1)).callers(0));
    refused("clients", || load(Load::AtOnce(1)).clients(0));
    refused("2.0..1.0", || Chance::new(0).between(2.0..1.0));
}

#[test]
fn hosts_are_normalized_as_in_urls() {
    let down = Down::with_status(503, Duration::ZERO..Duration::MAX);
    let service = SimulatedService::with_latency(2 * MS).host_rule("Down.Example.com", down);
    let simulation = Simulation::new(service, Load::AtOnce(4));
    let outcome = simulation
        .hosts(&["DOWN.example.com", "bücher.example"])
        .run(&no_retry);
    assert_eq!(outcome.succeeded(), 2);
    let books = outcome.of_host("BÜCHER.example");
    assert_eq!(
        (books.calls.len(), books.requests(), books.succeeded()),
        (2, 2, 2)
    );
}

#[test]
fn every_client_of_every_seed_has_a_different_seed() {
    let seen = std::sync::Mutex::new(Vec::new());
    for seed in 1..=3 {
        let service = SimulatedService::with_latency(2 * MS);
        let simulation = Simulation::new(service, Load::AtOnce(1)).clients(2000);
        simulation.seed(seed).run(&|seed| {
            seen.lock().unwrap().push(seed);
            no_retry(seed)
        });
    }
    let seen = seen.into_inner().unwrap();
    let different: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), different.len()), (6000, 6000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn time_never_decreases_for_a_service_with_many_threads() {
    let service = SimulatedService::with_latency(Duration::ZERO).start();
    let client = service.client_behind(no_retry(0));
    let mut threads = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let client = client.clone();
        threads.spawn(async move {
            for _ in 0..1000 {
                client.execute(request()).await.unwrap();
            }
        });
    }
    threads.join_all().await;
    let arrivals = service.arrivals();
    assert_eq!(arrivals.count(), 4000);
    assert!(arrivals.0.is_sorted_by_key(|arrival| arrival.at));
    assert!(arrivals.peak(SEC) > 0);
}

#[test]
#[should_panic(expected = "a broken middleware")]
fn a_panic_of_a_middleware_reaches_the_caller() {
    struct Broken;
    #[async_trait::async_trait]
    impl reqwest_middleware::Middleware for Broken {
        async fn handle(
            &self,
            _: Request,
            _: &mut http::Extensions,
            _: reqwest_middleware::Next<'_>,
        ) -> reqwest_middleware::Result<reqwest::Response> {
            panic!("a broken middleware");
        }
    }
    let simulation = Simulation::new(SimulatedService::with_latency(2 * MS), Load::AtOnce(3));
    simulation.run(&|_| vec![std::sync::Arc::new(Broken)]);
}

/// Fails if the future takes more than an hour of virtual time.
async fn in_an_hour<T>(future: impl Future<Output = T>) -> T {
    timeout(3600 * SEC, future)
        .await
        .expect("should have ended")
}

#[tokio::test(start_paused = true)]
async fn a_scripted_server_applies_the_timeout_of_a_request() {
    let server = Server::new(|before| match before {
        0 => Reply::silence(),
        1 => Reply::status(200).after(3 * SEC),
        _ => Reply::status(200).after(2 * SEC),
    });
    let backoff = Backoff::exponential(100 * MS).jitter(Jitter::None);
    let retry = RetryMiddleware::builder().backoff(backoff).build().unwrap();
    let client = server.client(retry);
    let started = Instant::now();
    // An IP address needs no lookup, so only the server itself keeps the request in.
    let get = || {
        client
            .get("http://127.0.0.1:9/stock?token=x")
            .timeout(2500 * MS)
    };
    let error = in_an_hour(get().no_retry().send()).await.unwrap_err();
    assert!(error.is_timeout() && error.is_request() && !error.is_connect());
    assert_eq!(
        error.url().unwrap().as_str(),
        "http://127.0.0.1:9/stock?token=x"
    );
    let took = started.elapsed();
    assert!(took >= 2500 * MS && took <= 2502 * MS, "{took:?}");

    let response = in_an_hour(get().send()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.count()), (200, 3));
    let report = RetryReport::of(&response).unwrap();
    let first = report.attempts().next().unwrap().outcome();
    assert_eq!(first, AttemptOutcome::Failure(FailureKind::Timeout));
    let gap = server.gaps()[1];
    assert!(gap >= 2600 * MS && gap <= 2604 * MS, "{gap:?}");
}

#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_request_covers_a_scripted_body() {
    // The body takes 30 ms.
    let server = Server::new(|_| dripping(200, 3));
    let client = server.client_behind([]);
    let get = |limit| client.get(URL).timeout(limit).send();
    let text = in_an_hour(get(100 * MS)).await.unwrap().text();
    assert_eq!(in_an_hour(text).await.unwrap(), "dripdripdrip");
    let text = in_an_hour(get(25 * MS)).await.unwrap().text();
    let started = Instant::now();
    assert!(in_an_hour(text).await.unwrap_err().is_timeout());
    let took = started.elapsed();
    assert!(took >= 25 * MS && took <= 27 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_simulated_service_applies_the_request_timeout() {
    let service = SimulatedService::with_latency(100 * MS).start();
    let client = service.client_behind([]);
    let get = |limit| client.get(URL).timeout(limit).send();
    assert_eq!(get(101 * MS).await.unwrap().status(), 200);
    // The first request arrives before its timeout, the second does not.
    for (limit, arrived) in [(80 * MS, 2), (30 * MS, 2)] {
        let started = Instant::now();
        let error = get(limit).await.unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
        let took = started.elapsed();
        assert!(took >= limit && took <= limit + 2 * MS, "{took:?}");
        assert_eq!(service.arrivals().count(), arrived);
    }
}
