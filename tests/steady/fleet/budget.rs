//! Many workers that pay for retries from one budget, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest_steady::RetryMiddleware;
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::fleet::{
    FleetError, FleetStore, Lease, LeaseAsk, MemoryStore, Pauses, Retries, RetriesAsk, StoreFuture,
};
use reqwest_steady::testing::{Flaky, Load, Outcome, SimulatedService, Simulation};

const WORKERS: usize = 8;
const TIME: Duration = Duration::from_secs(20);

/// 8 workers make 80 calls per second, of which this share fails.
fn calls(failing: f64) -> Simulation {
    let service =
        SimulatedService::with_latency(Duration::from_millis(5)).rule(Flaky::new(failing));
    Simulation::new(service, Load::Rate(80.0, TIME)).clients(WORKERS)
}

fn run(failing: f64, store: Option<&Arc<dyn FleetStore>>) -> (Outcome, u64) {
    let workers = Mutex::new(Vec::new());
    let outcome = calls(failing).run(&|seed| {
        let mut retry = RetryMiddleware::builder().seed(seed);
        if let Some(store) = store {
            let fleet = FleetLimits::with_store(Arc::clone(store));
            workers.lock().unwrap().push(fleet.clone());
            retry = retry.fleet(fleet);
        }
        vec![Arc::new(retry.build().unwrap())]
    });
    let workers = workers.into_inner().unwrap();
    (outcome, workers.iter().map(FleetLimits::round_trips).sum())
}

fn retries(outcome: &Outcome) -> usize {
    outcome.requests() - outcome.calls.len()
}

#[test]
fn a_dead_server_gets_the_retries_of_one_budget_not_of_eight() {
    let store: Arc<dyn FleetStore> = Arc::new(MemoryStore::new());
    let (together, round_trips) = run(1.0, Some(&store));
    let (alone, _) = run(1.0, None);
    println!(
        "{} retries together in {round_trips} round trips for {} calls, {} alone",
        retries(&together),
        together.calls.len(),
        retries(&alone)
    );
    // One reserve of 20, of which failures without a retry take some. Time refills nothing.
    assert!(
        (10..=20).contains(&retries(&together)),
        "{}",
        retries(&together)
    );
    assert!(retries(&alone) > 6 * retries(&together));
}

#[test]
fn where_few_calls_fail_all_of_them_are_retried() {
    let store: Arc<dyn FleetStore> = Arc::new(MemoryStore::new());
    let (outcome, round_trips) = run(0.1, Some(&store));
    let per_thousand = round_trips as f64 / outcome.requests() as f64 * 1000.0;
    println!(
        "{} retries, {per_thousand:.0} round trips per 1000",
        retries(&outcome)
    );
    assert_eq!(
        outcome.succeeded(),
        outcome.calls.len(),
        "{:?}",
        outcome.failures()
    );
    // Far fewer round trips than one per request.
    assert!(per_thousand < 300.0);
}

/// A store that never responds.
#[derive(Debug)]
struct Silent;

impl Silent {
    fn nothing<T: Send + 'static>() -> StoreFuture<'static, T> {
        Box::pin(std::future::pending::<Result<T, FleetError>>())
    }
}

impl FleetStore for Silent {
    fn lease<'a>(&'a self, _: &'a str, _: LeaseAsk) -> StoreFuture<'a, Lease> {
        Self::nothing()
    }

    fn retries<'a>(&'a self, _: &'a str, _: RetriesAsk) -> StoreFuture<'a, Retries> {
        Self::nothing()
    }

    fn pause<'a>(&'a self, _: &'a str, _: Duration) -> StoreFuture<'a, ()> {
        Self::nothing()
    }

    fn pauses(&self) -> StoreFuture<'_, Box<dyn Pauses>> {
        Self::nothing()
    }
}

#[test]
fn a_store_that_never_responds_does_not_stop_retries() {
    let silent: Arc<dyn FleetStore> = Arc::new(Silent);
    let (outcome, _) = run(0.1, Some(&silent));
    assert_eq!(
        outcome.succeeded(),
        outcome.calls.len(),
        "{:?}",
        outcome.failures()
    );
    let (alone, _) = run(0.1, None);
    let longest = |outcome: &Outcome| outcome.added_latency(0.99, Duration::ZERO);
    println!("p99 {:?}, alone {:?}", longest(&outcome), longest(&alone));
    assert!(longest(&outcome) <= longest(&alone) + Duration::from_millis(60));
}
