//! Retry and throttle under workloads with many calls at once.
//!
//! Both have default settings. The service is the simulated one of `testing`, in virtual time. `cargo bench -p proof
//! --bench throttle` prints the figures of reqwest-retry for the same workloads.

use std::time::Duration;

use reqwest_steady::testing::{
    Down, Flaky, Limit, Load, Outcome, SimulatedService, Simulation, Steps,
};

use lab::stacks::steady_throttle;
use lab::workloads::{
    CONTROLLERS_UP, Drain, FAR, HOST, NEAR, TICK, TWENTY_CLIENTS_RATE, TWENTY_CLIENTS_TIME, WARM,
    blackout, bucket_with_503, burst_and_healthy, busy_and_healthy, controllers,
    controllers_cut_off, halved_and_doubled, halved_capacity, nine_writes, one_in_a_hundred,
    overload_of_bucket, overload_of_window, overload_with_503, quota, slow_worker, stalled_worker,
    thousand_writes, thousand_writes_with_retry_after, three_thousand,
    three_thousand_with_quota_left, twenty_clients, with_dead_host, without_dead_host,
};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

fn for_each_seed(workload: fn(Duration) -> Simulation) -> Vec<Outcome> {
    let run = |seed| workload(NEAR).seed(seed).run(&steady_throttle);
    SEEDS.into_iter().map(run).collect()
}

#[track_caller]
fn assert_all_succeed(outcome: &Outcome) {
    let calls = outcome.calls.len();
    assert_eq!(outcome.succeeded(), calls, "{:?}", outcome.failures());
}

#[track_caller]
fn assert_at_most(value: f64, limit: f64) {
    assert!(value <= limit, "{value} is more than {limit}");
}

#[track_caller]
fn assert_at_least(value: f64, limit: f64) {
    assert!(value >= limit, "{value} is less than {limit}");
}

#[test]
fn nine_writes_succeed_where_five_are_allowed_at_once() {
    for outcome in for_each_seed(nine_writes) {
        assert_all_succeed(&outcome);
        assert!(outcome.requests() <= 14, "{}", outcome.requests());
        assert!(outcome.last_success() < SEC);
    }
}

#[test]
fn a_thousand_writes_drain_at_the_rate_of_the_server() {
    for outcome in for_each_seed(thousand_writes) {
        assert_all_succeed(&outcome);
        assert_at_most(outcome.requests_per_success(), 1.1);
        assert_at_most(outcome.last_success().as_secs_f64(), 1.2 * 2.0);
    }
}

#[test]
fn no_request_arrives_before_the_retry_after_of_a_refusal() {
    for outcome in for_each_seed(thousand_writes_with_retry_after) {
        assert_all_succeed(&outcome);
        assert_at_most(outcome.requests_per_success(), 1.1);
        let arrivals = &outcome.arrivals.0;
        let refusals = arrivals.iter().filter(|it| it.status == Some(429));
        let mut refused = 0;
        for refusal in refusals {
            // Requests that were already sent, or left in the same millisecond, do not count.
            let known = refusal.at + NEAR + MS;
            let early = known..refusal.at + SEC;
            assert_eq!(
                outcome.arrivals.during(early).count(),
                0,
                "after {refusal:?}"
            );
            refused += 1;
        }
        assert!(refused > 0);
    }
}

#[test]
fn a_herd_waits_for_an_outage_to_end_and_returns_in_steps() {
    for scenario in [controllers, controllers_cut_off] {
        for outcome in for_each_seed(scenario) {
            assert_all_succeed(&outcome);
            assert_at_most(outcome.requests_per_call(), 1.2);
            let first_tick = outcome.arrivals.by(TICK)[0];
            let later = outcome.arrivals.during(TICK..Duration::MAX);
            assert!(later.peak(TICK) <= 100, "{}", later.peak(TICK));
            assert!(first_tick <= 20, "{first_tick}");
            let up = outcome.arrivals.during(CONTROLLERS_UP..Duration::MAX);
            assert_eq!(up.count(), 500);
        }
    }
}

#[test]
fn a_service_that_is_down_gets_few_requests() {
    for outcome in for_each_seed(blackout) {
        // For 30,000 calls.
        assert!(outcome.requests() < 60, "{}", outcome.requests());
    }
}

#[test]
fn all_calls_of_a_double_load_succeed_in_time() {
    for scenario in [overload_of_bucket, overload_of_window] {
        for outcome in for_each_seed(scenario) {
            assert_at_least(outcome.share(), 0.99);
            assert_at_most(outcome.requests_per_success(), 1.05);
        }
    }
}

#[test]
fn a_limit_that_responds_with_503_is_found_too() {
    for workload in [overload_with_503, bucket_with_503] {
        for outcome in for_each_seed(workload) {
            assert_at_least(outcome.share(), 0.99);
            assert_at_most(outcome.requests_per_success(), 1.1);
        }
    }
}

#[test]
fn an_outage_ends_when_its_cause_does() {
    for outcome in for_each_seed(stalled_worker) {
        // The stall ends at 13 s.
        let by_second = outcome.successes_by_second();
        assert!(by_second[16] >= 800, "{by_second:?}");
        let late = outcome.successes_during(50 * SEC..60 * SEC);
        assert!(late >= 8000, "{late}");
        assert_all_succeed(&outcome);
    }
}

#[test]
fn calls_to_a_healthy_service_never_wait() {
    for latency in [NEAR, FAR] {
        for seed in SEEDS {
            let outcome = busy_and_healthy(latency).seed(seed).run(&steady_throttle);
            assert_all_succeed(&outcome);
            assert!(outcome.added_latency(0.99, WARM) < MS);
        }
    }
}

#[test]
fn a_burst_on_a_healthy_service_takes_few_round_trips() {
    for (latency, most) in [(2, 15.0), (20, 10.0), (50, 10.0), (200, 10.0)] {
        let latency = latency * MS;
        let outcome = burst_and_healthy(latency).seed(1).run(&steady_throttle);
        assert_all_succeed(&outcome);
        let trips = outcome.last_success().as_secs_f64() / latency.as_secs_f64();
        assert_at_most(trips, most);
    }
}

#[test]
fn random_failures_do_not_look_like_a_limit() {
    for outcome in for_each_seed(one_in_a_hundred) {
        assert_at_least(outcome.share(), 0.999);
        // Only failed calls wait, so the median is zero.
        assert_eq!(outcome.added_latency(0.98, Duration::ZERO), Duration::ZERO);
        let by_second = outcome.arrivals.by(SEC);
        assert!(
            by_second[..20].iter().all(|count| *count >= 495),
            "{by_second:?}"
        );
    }
}

#[test]
fn quota_headers_with_quota_left_slow_no_call() {
    let plain = for_each_seed(three_thousand);
    let with_quota = for_each_seed(three_thousand_with_quota_left);
    for (plain, with_quota) in plain.iter().zip(&with_quota) {
        assert_eq!(plain.calls.len(), 3000);
        assert_all_succeed(plain);
        assert_all_succeed(with_quota);
        // The same seed gives the same failures.
        assert_eq!(with_quota.requests(), plain.requests());
        let (plain, with_quota) = (plain.last_success(), with_quota.last_success());
        assert!(with_quota < 7 * SEC, "{with_quota:?}");
        assert!(with_quota <= plain + 50 * MS, "{with_quota:?}, {plain:?}");
    }
}

#[test]
fn twenty_independent_clients_share_a_service_fairly() {
    for outcome in for_each_seed(twenty_clients) {
        let capacity = Steps::from(TWENTY_CLIENTS_RATE);
        let used = outcome.use_of(&capacity, Duration::ZERO..TWENTY_CLIENTS_TIME);
        assert_at_least(used, 0.9);
        assert_at_most(outcome.requests_per_success(), 1.3);
        assert_at_least(outcome.fairness(), 0.9);
    }
}

#[test]
fn a_dead_host_does_not_slow_another() {
    for seed in SEEDS {
        let both = with_dead_host(NEAR).seed(seed).run(&steady_throttle);
        let with_dead = both.of_host(HOST);
        let alone = without_dead_host(NEAR).seed(seed).run(&steady_throttle);
        assert_all_succeed(&with_dead);
        for rank in [0.5, 0.99, 1.0] {
            let [with_dead, alone] =
                [&with_dead, &alone].map(|it| it.added_latency(rank, Duration::ZERO));
            assert_eq!(with_dead, alone);
        }
    }
}

#[test]
fn the_throttle_follows_capacity_down_and_up() {
    for outcome in for_each_seed(halved_and_doubled) {
        assert_at_most(outcome.requests_per_success(), 1.2);
        let used = |from: u32, to: u32| outcome.use_of(&halved_capacity(), from * SEC..to * SEC);
        // At most 2 s after each change.
        assert_at_least(used(2, 5), 0.9);
        assert_at_least(used(7, 10), 0.9);
        assert_at_least(used(12, 15), 0.9);
        // The rate follows the capacity down, too, so few requests are refused.
        let refused = |from, to| {
            let arrivals = outcome.arrivals.during(from * SEC..to * SEC);
            arrivals.count() - arrivals.successes()
        };
        assert!(refused(7, 10) <= 30, "{}", refused(7, 10));
    }
}

#[test]
fn a_quota_shown_in_every_response_is_never_exceeded() {
    for outcome in for_each_seed(quota) {
        assert_all_succeed(&outcome);
        assert_eq!(outcome.requests(), outcome.calls.len());
    }
}

#[test]
fn a_slow_service_gets_fewer_requests_at_once() {
    for outcome in for_each_seed(slow_worker) {
        assert_all_succeed(&outcome);
        let longest = outcome.arrivals.0.iter().map(|it| it.took).max().unwrap();
        // Without a throttle, 5 s of work pile up.
        assert!(longest < 300 * MS, "{longest:?}");
        // The service is never idle.
        assert_at_most(outcome.last_success().as_secs_f64(), 10.2);
    }
}

/// Shows that no single case is tuned: 5 to 5,000 per second, 1 to 200 ms latency, windows and buckets.
#[test]
fn every_backlog_drains_at_every_rate_and_latency() {
    for drain in Drain::grid() {
        for latency in [1, 2, 10, 50, 200] {
            let latency = latency * MS;
            let outcome = drain.simulation(latency).seed(1).run(&steady_throttle);
            assert_all_succeed(&outcome);
            // At first it sends 16 at once. Each round trip then has up to 2.25 times as many.
            let calls = outcome.calls.len();
            let wasted = outcome.requests() - calls;
            let bound = (calls / 4).max(40);
            assert!(wasted <= bound, "{drain:?} {latency:?}: {wasted}");
            let ideal = drain.ideal(latency) + 12 * latency + 2 * SEC;
            let took = outcome.last_success();
            assert!(took < ideal.mul_f64(1.5), "{drain:?} {latency:?}: {took:?}");
        }
    }
}

/// Random failures may slow an existing pace, but not permanently.
#[test]
fn random_failures_do_not_wear_down_a_pace() {
    for share in [0.02, 0.05, 0.1] {
        for seed in SEEDS {
            let outage = Down::with_status(503, 2 * SEC..4 * SEC);
            let service = SimulatedService::with_latency(NEAR)
                .rule(outage)
                .rule(Flaky::new(share));
            let simulation = Simulation::new(service, Load::Rate(500.0, 30 * SEC));
            let outcome = simulation.seed(seed).run(&steady_throttle);
            eprintln!(
                "{share} {seed} {:?} {:?}",
                outcome.successes_by_second(),
                outcome.failures()
            );
            let late = outcome.successes_during(15 * SEC..30 * SEC);
            assert_at_least(late as f64, 0.98 * 15.0 * 500.0);
            let by_second = outcome.successes_by_second();
            assert!(by_second.len() <= 32, "{share}: {by_second:?}");
        }
    }
}

#[test]
fn jitter_of_the_latency_changes_nothing() {
    for seed in SEEDS {
        let limit = Limit::bucket(500.0, 50.0);
        let service = SimulatedService::with_latency(20 * MS)
            .jitter(0.3)
            .rule(limit);
        let simulation = Simulation::new(service, Load::AtOnce(1000)).writes();
        let outcome = simulation.seed(seed).run(&steady_throttle);
        assert_all_succeed(&outcome);
        assert_at_most(outcome.requests_per_success(), 1.2);
        assert_at_most(outcome.last_success().as_secs_f64(), 4.0);
    }
}
