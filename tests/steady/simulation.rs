//! The simulated service and the worlds around it do what the scenarios take for granted.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::timeout;

use crate::support::outcome::{Outcome, fairness};
use crate::support::rules::{Down, Flaky, Limit, Rule, Steps, Verdict, Worker};
use crate::support::scenarios::{Drain, NEAR, Shape, nine_writes, overload_of_bucket};
use crate::support::service::Service;
use crate::support::world::{
    Calls, HOST, Load, World, client, no_retry, reqwest_retry, steady_retry,
};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// How many of so many requests at this time pass.
fn passed(rule: &mut impl Rule, at: Duration, requests: usize) -> usize {
    let mut chance = StdRng::seed_from_u64(0);
    let passed = (0..requests).filter(|_| rule.decide(at, &mut chance).is_none());
    passed.count()
}

fn verdict(rule: &mut impl Rule, at: Duration) -> (u16, Duration) {
    match rule.decide(at, &mut StdRng::seed_from_u64(0)) {
        Some(Verdict::Answer(status, _, after)) => (status, after),
        other => panic!("no answer: {other:?}"),
    }
}

#[test]
fn a_window_refuses_the_51st_and_begins_anew_with_the_next() {
    let mut limit = Limit::window(500.0, 100 * MS);
    assert_eq!(passed(&mut limit, 40 * MS, 30), 30);
    assert_eq!(passed(&mut limit, 99 * MS, 30), 20);
    assert_eq!(passed(&mut limit, 100 * MS, 60), 50);
    assert_eq!(passed(&mut limit, 1000 * MS, 60), 50);
}

#[test]
fn a_window_goes_by_the_rate_at_its_start() {
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
fn a_bucket_fills_by_the_rate_of_each_time() {
    let rate = Steps::from(100.0).then(SEC, 10.0).then(2 * SEC, 1.0);
    assert_eq!(rate.sum(500 * MS..4 * SEC), 50.0 + 10.0 + 2.0);
    assert_eq!(rate.sum(SEC..SEC), 0.0);
    let mut limit = Limit::bucket(rate, 1000.0);
    assert_eq!(passed(&mut limit, Duration::ZERO, 2000), 1000);
    assert_eq!(passed(&mut limit, 4 * SEC, 2000), 112);
}

#[test]
fn a_service_is_down_until_the_very_end_of_it() {
    let mut down = Down::answering(503, SEC..2 * SEC);
    let passed = [999 * MS, SEC, 1999 * MS, 2 * SEC].map(|at| passed(&mut down, at, 1));
    assert_eq!(passed, [1, 0, 0, 1]);
}

#[test]
fn one_worker_does_everything_in_turn() {
    let mut worker = Worker::new(1000.0, SEC..SEC);
    assert_eq!(verdict(&mut worker, 10 * MS), (200, MS));
    assert_eq!(verdict(&mut worker, 10 * MS), (200, 2 * MS));
    assert_eq!(verdict(&mut worker, 11 * MS), (200, 2 * MS));
    assert_eq!(verdict(&mut worker, 99 * MS), (200, MS));
}

#[test]
fn work_that_meets_a_stall_is_finished_after_it() {
    let mut worker = Worker::new(10.0, 10 * SEC..10 * SEC + 500 * MS);
    // Half done when the stall begins.
    assert_eq!(
        verdict(&mut worker, 10 * SEC - 50 * MS),
        (200, 50 * MS + 500 * MS + 50 * MS)
    );
    // Behind it.
    assert_eq!(
        verdict(&mut worker, 10 * SEC + 250 * MS),
        (200, 250 * MS + 50 * MS + 100 * MS)
    );
    assert_eq!(verdict(&mut worker, 20 * SEC), (200, 100 * MS));
}

#[test]
fn work_that_nobody_waits_for_keeps_the_worker_busy() {
    let mut worker = Worker::new(10.0, 99 * SEC..99 * SEC);
    let answers: Vec<_> = (0..102)
        .map(|_| verdict(&mut worker, Duration::ZERO))
        .collect();
    assert_eq!(answers[9], (200, SEC));
    assert_eq!(answers[10], (504, SEC));
    // Up to ten seconds and the one that passes them, and then no more.
    assert_eq!(answers[100], (504, SEC));
    assert_eq!(answers[101], (503, Duration::ZERO));
    // 10.1 s of work, whoever waits.
    assert_eq!(verdict(&mut worker, 9100 * MS), (504, SEC));
    assert_eq!(verdict(&mut worker, 9300 * MS), (200, SEC));
}

#[test]
fn fairness_is_one_among_equals_and_1_in_n_for_a_winner() {
    assert_eq!(fairness(&[7, 7, 7]), 1.0);
    assert_eq!(fairness(&[0, 9, 0]), 1.0 / 3.0);
    assert_eq!(fairness(&[1, 2, 3]), 36.0 / 42.0);
}

#[tokio::test(start_paused = true)]
async fn half_the_way_is_before_the_decision_and_half_behind_it() {
    for (latency, arrived, answered) in [(2, 1, 2), (50, 25, 50), (1, 1, 1)] {
        let service = Service::away(latency * MS).start();
        let clients = [client(no_retry(0), service.clone())];
        let outcome = Calls::new(Load::AtOnce(3)).run(service, &clients).await;
        let arrivals: Vec<_> = outcome.arrivals.0.iter().map(|one| one.at).collect();
        assert_eq!(arrivals, [arrived * MS; 3]);
        assert_eq!(outcome.last_success(), answered * MS);
        assert_eq!(outcome.added_latency(1.0, Duration::ZERO), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_on_its_way_never_arrives() {
    let service = Service::away(50 * MS).start();
    let client = client(no_retry(0), service.clone());
    let url = format!("http://{HOST}/");
    let dropped = |after| timeout(after, client.get(&url).send());
    assert!(dropped(20 * MS).await.is_err());
    tokio::time::sleep(SEC).await;
    assert_eq!(service.arrivals().count(), 0);
    // This one is dropped on its way back.
    assert!(dropped(30 * MS).await.is_err());
    assert_eq!(service.arrivals().successes(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_way_varies_by_the_given_share() {
    let service = Service::away(100 * MS).jitter(0.2).seed(7).start();
    let clients = [client(no_retry(0), service.clone())];
    let outcome = Calls::new(Load::AtOnce(500)).run(service, &clients).await;
    let took = |rank| outcome.added_latency(rank, Duration::ZERO);
    assert_eq!(took(0.4), Duration::ZERO);
    assert!((18 * MS..=20 * MS).contains(&took(1.0)), "{:?}", took(1.0));
}

#[tokio::test(start_paused = true)]
async fn a_limit_says_what_is_left_if_asked_to() {
    let limit = Limit::window(20.0, 100 * MS).status(503).with_hints();
    let limit = limit.on_refusal("retry-after", "1");
    let service = Service::away(2 * MS).rule(limit).start();
    let client = client(no_retry(0), service);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let answer = client.get(format!("http://{HOST}/")).send().await.unwrap();
        let header = |name| answer.headers().get(name).map(|it| it.to_str().unwrap());
        seen.push(format!(
            "{} {:?} {:?} {:?}",
            answer.status().as_u16(),
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
    let service = Service::away(2 * MS).host_rule("b", Down::unreachable(Duration::ZERO..SEC));
    let world = World::new(service, Load::Rate(8.0, SEC)).clients(2);
    let outcome = world.hosts(&["a", "b"]).run(&no_retry);
    let arrivals = outcome.arrivals.0.iter();
    let mut seen: Vec<_> = arrivals
        .map(|one| (one.host.as_str(), one.client.as_str()))
        .collect();
    // Within a turn, the order is left to chance.
    seen.chunks_mut(2).for_each(<[_]>::sort);
    let twice = [("a", "0"), ("a", "1"), ("b", "0"), ("b", "1")].repeat(2);
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
fn a_peak_is_found_wherever_it_begins() {
    let world = World::new(Service::away(2 * MS), Load::Rate(100.0, SEC));
    let arrivals = world.run(&no_retry).arrivals;
    // At 1, 11, 21 ms and so on.
    assert_eq!(arrivals.peak(100 * MS), 10);
    assert_eq!(arrivals.peak(101 * MS), 11);
    assert_eq!(arrivals.by(500 * MS), [50, 50]);
    assert_eq!(arrivals.during(900 * MS..SEC).peak(SEC), 10);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let run = |seed| -> Outcome {
        let service = Service::away(10 * MS).jitter(0.5).rule(Flaky(0.3));
        let world = World::new(service, Load::Rate(200.0, SEC)).clients(3);
        world.seed(seed).run(&steady_retry)
    };
    let ends = |outcome: Outcome| -> Vec<_> {
        let calls = outcome.calls.into_iter();
        calls.map(|call| (call.begun, call.ended)).collect()
    };
    assert_eq!(ends(run(1)), ends(run(1)));
    assert_ne!(ends(run(1)), ends(run(2)));
}

#[test]
fn without_retries_a_limit_lets_through_what_it_says() {
    let outcome = nine_writes(NEAR, 0, &no_retry);
    assert_eq!((outcome.succeeded(), outcome.requests()), (5, 9));
    assert_eq!(outcome.failures(), [("429".to_owned(), 4)].into());

    let outcome = overload_of_bucket(NEAR, 0, &no_retry);
    let burst = 5;
    assert_eq!(outcome.succeeded(), 5000 + burst - 1);
    assert_eq!(outcome.requests(), 10_000);
}

#[test]
fn a_blind_retry_gets_nine_writes_through_with_twice_the_requests() {
    let outcome = nine_writes(NEAR, 0, &reqwest_retry);
    assert_eq!(outcome.succeeded(), 9);
    assert!((13..30).contains(&outcome.requests()), "{outcome:?}");
}

#[test]
fn the_ideal_way_to_drain_a_backlog_is_no_longer_than_it_has_to_be() {
    let window = Shape::Window(100 * MS);
    let drain = |rate, shape| Drain { rate, shape }.ideal(50 * MS);
    assert_eq!(drain(500.0, window), 1900 * MS + 25 * MS);
    assert_eq!(drain(500.0, Shape::Bucket(0.1)), 1900 * MS + 25 * MS);
    // One window takes it all.
    assert_eq!(drain(50.0, Shape::Window(2 * SEC)), 50 * MS);
}
