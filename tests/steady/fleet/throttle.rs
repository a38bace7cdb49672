//! Throttles that share their limits, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use reqwest_middleware::Middleware;
use reqwest_steady::fleet::MemoryStore;
use reqwest_steady::testing::{Limit, Load, Outcome, SimulatedService, Simulation, Steps};
use reqwest_steady::{FleetLimits, RetryMiddleware, ThrottleMiddleware};

const SEC: Duration = Duration::from_secs(1);
const QUOTA: f64 = 500.0;
/// A little less than the quota: what a worker has leased may be sent a moment later.
const RATE: f64 = 490.0;
const WORKERS: usize = 8;
const MINUTE: Duration = Duration::from_secs(60);

/// A minute of more than the quota allows.
fn minute(seed: u64) -> Simulation {
    let quota = Limit::bucket(QUOTA, 250.0);
    let service = SimulatedService::away(Duration::from_millis(2)).rule(quota);
    Simulation::new(service, Load::Rate(540.0, MINUTE))
        .clients(WORKERS)
        .seed(seed)
}

fn stack(seed: u64, fleet: Option<FleetLimits>) -> Vec<Arc<dyn Middleware>> {
    let retry = RetryMiddleware::builder().seed(seed).build().unwrap();
    let mut throttle = ThrottleMiddleware::builder().seed(seed).rate(RATE, 20);
    if let Some(fleet) = fleet {
        throttle = throttle.fleet(fleet);
    }
    vec![Arc::new(retry), Arc::new(throttle.build().unwrap())]
}

/// What the service saw of its quota, after the first second.
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
        // A lease is what a worker sends in half a second.
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
