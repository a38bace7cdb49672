//! Throttles that share their limits, in virtual time.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use reqwest_middleware::Middleware;
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::fleet::{FleetStore, MemoryStore};
use reqwest_steady::testing::{Limit, Load, Outcome, SimulatedService, Simulation, Steps};
use reqwest_steady::{RetryMiddleware, ThrottleMiddleware};
use tokio::time::{sleep, timeout};

use crate::support::scripted::{Server, call, late, respond, respond_with};
use crate::support::stacks::SEC;

const QUOTA: f64 = 500.0;
/// A little less than the quota, because a worker may send a leased request slightly later.
const RATE: f64 = 490.0;
const WORKERS: usize = 8;
const MINUTE: Duration = Duration::from_secs(60);

/// A minute of load above the quota.
fn minute(seed: u64) -> Simulation {
    let quota = Limit::bucket(QUOTA, 250.0);
    let service = SimulatedService::with_latency(Duration::from_millis(2)).rule(quota);
    Simulation::new(service, Load::Rate(540.0, MINUTE))
        .clients(WORKERS)
        .seed(seed)
}

fn stack(seed: u64, fleet: Option<FleetLimits>) -> Vec<Arc<dyn Middleware>> {
    let mut retry = RetryMiddleware::builder().seed(seed);
    let mut throttle = ThrottleMiddleware::builder().seed(seed).rate(RATE, 20);
    if let Some(fleet) = fleet {
        retry = retry.fleet(fleet.clone());
        throttle = throttle.fleet(fleet);
    }
    vec![
        Arc::new(retry.build().unwrap()),
        Arc::new(throttle.build().unwrap()),
    ]
}

/// How much of its quota the service saw, after the first second.
fn quota_used(outcome: &Outcome) -> f64 {
    outcome.use_of(&Steps::from(QUOTA), SEC..MINUTE)
}

#[test]
fn eight_workers_keep_one_quota_together() {
    for seed in [1, 2, 3] {
        let store = Arc::new(MemoryStore::new());
        let workers = std::sync::Mutex::new(Vec::new());
        let outcome = minute(seed).run(&|seed| {
            let fleet = FleetLimits::with_store(store.clone());
            workers.lock().unwrap().push(fleet.clone());
            stack(seed, Some(fleet))
        });
        let round_trips: u64 = workers
            .lock()
            .unwrap()
            .iter()
            .map(|it| it.round_trips())
            .sum();
        let peak = outcome.arrivals.peak(SEC);
        let per_thousand = round_trips as f64 / outcome.requests() as f64 * 1000.0;
        println!(
            "seed {seed}: {:.1} % used, {:.4} requests a success, peak {peak}, fairness {:.4}, \
             {per_thousand:.1} round trips per 1000 requests",
            quota_used(&outcome) * 100.0,
            outcome.requests_per_success(),
            outcome.fairness(),
        );
        assert_eq!(
            outcome.succeeded(),
            outcome.calls.len(),
            "{:?}",
            outcome.failures()
        );
        assert!(quota_used(&outcome) >= 0.95);
        assert!(outcome.requests_per_success() <= 1.1);
        // A lease covers what a worker sends in 500 ms.
        let lease = RATE / 2.0 / WORKERS as f64;
        assert!(peak as f64 <= QUOTA + lease * WORKERS as f64, "{peak}");
        assert!(outcome.fairness() >= 0.95);
        assert!(per_thousand <= 50.0);
    }
}

#[test]
fn without_sharing_the_same_workers_waste_requests() {
    let alone = minute(1).run(&|seed| stack(seed, None));
    println!(
        "alone: {:.1} % used, {:.4} requests a success",
        quota_used(&alone) * 100.0,
        alone.requests_per_success()
    );
    assert!(alone.arrivals.count() > alone.arrivals.successes());
}

/// How many of 300 calls at once a worker sends in its first second, without a refusal.
async fn sent_in_a_second(fleet: FleetLimits) -> usize {
    let server = Server::new(|_| late(Duration::from_millis(10), respond(200)));
    let throttle = ThrottleMiddleware::builder().seed(2).fleet(fleet);
    let client = server.client(throttle.build().unwrap());
    // Its first question to the store tells it about the other workers.
    call(&client, 0).await.unwrap();
    sleep(Duration::from_millis(10)).await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 1..=300 {
        let client = client.clone();
        calls.spawn(async move { call(&client, number).await.is_ok() });
    }
    sleep(SEC).await;
    server.count() - 1
}

#[tokio::test(start_paused = true)]
async fn a_pace_that_one_worker_learned_holds_for_another() {
    let store = Arc::new(MemoryStore::new());
    let taught = FleetLimits::with_store(store.clone());
    let refused = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::new(move |_| {
        let number = refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        respond(if number % 10 == 9 { 429 } else { 200 })
    });
    let throttle = ThrottleMiddleware::builder().seed(1).fleet(taught);
    let client = server.client(throttle.build().unwrap());
    let start = tokio::time::Instant::now();
    let mut number = 0;
    while start.elapsed() < 10 * SEC {
        number += 1;
        call(&client, number).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    let informed = sent_in_a_second(FleetLimits::with_store(store)).await;
    let uninformed = sent_in_a_second(FleetLimits::in_memory()).await;
    println!("{informed} with what the other has learned, {uninformed} without");
    assert_eq!(uninformed, 300);
    assert!((1..=60).contains(&informed), "{informed}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_with_quota_left_pauses_no_other_worker() {
    for (left, is_shared) in [("98", false), ("0", true)] {
        let store = Arc::new(MemoryStore::new());
        let mut pauses = store.pauses().await.unwrap();
        let field = format!("\"100-in-15min\";r={left};t=900");
        let server = Server::new(move |_| respond_with(503, &[("ratelimit", &field)]));
        let fleet = FleetLimits::with_store(store.clone());
        let throttle = ThrottleMiddleware::builder().fleet(fleet).build().unwrap();
        assert_eq!(call(&server.client(throttle), 0).await.unwrap(), 503);
        let pause = timeout(SEC, pauses.next()).await;
        assert_eq!(pause.is_ok(), is_shared, "{left} left: {pause:?}");

        let server = Server::statuses([200]);
        let fleet = FleetLimits::with_store(store);
        let throttle = ThrottleMiddleware::builder().fleet(fleet).build().unwrap();
        let client = server.client(throttle);
        for name in 0..5 {
            let other = call(&client, name).await;
            assert_eq!(
                other.is_ok(),
                !is_shared || name == 0,
                "{left} left: {other:?}"
            );
            // Its first question to the store tells it about pauses.
            sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_holds_a_lease_is_over_at_its_first_poll() {
    let server = Server::new(|_| respond(200));
    let fleet = FleetLimits::in_memory();
    let client = server.client_behind(stack(1, Some(fleet.clone())));
    let mut asked = Vec::new();
    for number in 0..1000 {
        sleep(Duration::from_millis(5)).await;
        let mut calling = pin!(call(&client, number));
        let first = poll_fn(|context| Poll::Ready(calling.as_mut().poll(context))).await;
        match first {
            Poll::Ready(status) => assert_eq!(status.unwrap(), 200),
            Poll::Pending => {
                asked.push(number);
                assert_eq!(calling.await.unwrap(), 200);
            }
        }
    }
    // In the first second some calls wait for the store, until the demand is known.
    assert!(asked.iter().all(|number| *number < 200), "{asked:?}");
    // The store is asked only now and then.
    let round_trips = fleet.round_trips();
    assert!((10..=60).contains(&round_trips), "{round_trips}");
}
