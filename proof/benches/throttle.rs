//! Runs the workloads of the lab with different stacks.
//!
//! `cargo bench -p proof --bench throttle` prints a line for each scenario, stack and seed. With `-- latencies` it varies
//! the latency from 1 to 200 ms. With `-- grid` it prints how backlogs drain, over rates, kinds of limits and latencies.
//! Any other word selects the scenarios and stacks whose names contain it.
//!
//! Everything runs in virtual time, so the results do not depend on the machine.

// The service reads tokio's paused clock itself.
#![allow(clippy::disallowed_methods)]

use std::time::Duration;

use lab::stacks::{no_retry, reqwest_retry, steady_retry, steady_throttle};
use lab::workloads::{
    CONTROLLERS_UP, Drain, FAR, HOST, NEAR, TICK, TWENTY_CLIENTS_RATE, TWENTY_CLIENTS_TIME, WARM,
    blackout, bucket_with_503, burst_and_healthy, busy_and_healthy, controllers,
    controllers_cut_off, halved_and_doubled, halved_capacity, nine_writes, one_in_a_hundred,
    overload_of_bucket, overload_of_window, overload_with_503, quota, slow_worker, stalled_worker,
    thousand_writes, thousand_writes_with_retry_after, twenty_clients, with_dead_host,
    without_dead_host,
};
use reqwest_steady::testing::{Outcome, Simulation, Stack, Steps};

const SEC: Duration = Duration::from_secs(1);

const STACKS: [(&str, &Stack); 4] = [
    ("no retry", &no_retry),
    ("reqwest-retry", &reqwest_retry),
    ("retry alone", &steady_retry),
    ("with throttle", &steady_throttle),
];
const SEEDS: [u64; 3] = [1, 2, 3];
const LATENCIES: [u64; 5] = [1, 2, 10, 50, 200];

/// A line of the table: a workload, and a summary of its outcome.
struct Scenario {
    name: &'static str,
    latency: Duration,
    workload: fn(Duration) -> Simulation,
    remark: fn(&Outcome) -> String,
}

const fn scenario(
    name: &'static str,
    workload: fn(Duration) -> Simulation,
    remark: fn(&Outcome) -> String,
) -> Scenario {
    let latency = NEAR;
    Scenario {
        name,
        latency,
        workload,
        remark,
    }
}

const fn far(mut scenario: Scenario) -> Scenario {
    scenario.latency = FAR;
    scenario
}

const SCENARIOS: &[Scenario] = &[
    scenario("9 writes, 5 per 100 ms", nine_writes, took),
    scenario("1000 writes, 50 per 100 ms", thousand_writes, took),
    scenario(
        "… with Retry-After: 1",
        thousand_writes_with_retry_after,
        took,
    ),
    scenario("500 at once, down for 3 s", controllers, peaks),
    scenario("… and unreachable", controllers_cut_off, peaks),
    scenario("1000/s for 30 s, blackout", blackout, nothing),
    scenario("1000/s on a bucket of 500/s", overload_of_bucket, half_used),
    scenario("1000/s on windows of 500/s", overload_of_window, half_used),
    scenario("… with status 503", overload_with_503, half_used),
    scenario("500 on a bucket, status 503", bucket_with_503, took),
    scenario("2500 on a quota of 1000/10 s", quota, took),
    scenario("2000/s, slow worker of 1000/s", slow_worker, longest_trip),
    scenario("800/s, worker stalls for 3 s", stalled_worker, recovery),
    scenario("5000/s, healthy, near", busy_and_healthy, added_when_warm),
    far(scenario(
        "5000/s, healthy, far",
        busy_and_healthy,
        added_when_warm,
    )),
    scenario(
        "1000 at once, healthy, near",
        burst_and_healthy,
        round_trips,
    ),
    far(scenario(
        "1000 at once, healthy, far",
        burst_and_healthy,
        round_trips,
    )),
    scenario("500/s, 1 % random 503", one_in_a_hundred, added),
    scenario("20 clients, 2000/s on 1000/s", twenty_clients, shared),
    scenario("200/s with a dead host", with_dead_host, added),
    scenario("200/s without the dead host", without_dead_host, added),
    scenario(
        "1000/s on 500, 250, 500/s",
        halved_and_doubled,
        used_by_second,
    ),
];

fn nothing(_: &Outcome) -> String {
    String::new()
}

fn took(outcome: &Outcome) -> String {
    format!(
        "last success after {:.2} s",
        outcome.last_success().as_secs_f64()
    )
}

fn peaks(outcome: &Outcome) -> String {
    let later = outcome.arrivals.by(TICK).into_iter().skip(1);
    let up = outcome.arrivals.during(CONTROLLERS_UP..Duration::MAX);
    let took = outcome.last_success().as_secs_f64();
    format!(
        "peak in 100 ms: {} after the first, {} when up; last success after {took:.2} s",
        later.max().unwrap_or_default(),
        up.peak(TICK),
    )
}

/// Shows the longest queue of the worker.
fn longest_trip(outcome: &Outcome) -> String {
    let longest = outcome.arrivals.0.iter().map(|arrival| arrival.took).max();
    format!("slowest response took {:?}", longest.unwrap_or_default())
}

fn half_used(outcome: &Outcome) -> String {
    let used = outcome.use_of(&Steps::from(500.0), Duration::ZERO..10 * SEC);
    format!("{:.1} % used, {}", 100.0 * used, took(outcome))
}

fn recovery(outcome: &Outcome) -> String {
    let late = outcome.successes_during(50 * SEC..60 * SEC);
    let by_second = outcome.successes_by_second();
    // The first second in which nearly all calls succeed.
    let full = |second: &usize| by_second.get(*second).is_some_and(|count| *count >= 790);
    let recovered = (13..60).find(full);
    let recovered = recovered.map_or("never".to_owned(), |second| format!("in second {second}"));
    format!("{late} in seconds 50 to 60, recovered {recovered}")
}

fn added_from(outcome: &Outcome, from: Duration) -> String {
    let added = |rank| outcome.added_latency(rank, from).as_millis();
    let [median, most, max] = [0.5, 0.99, 1.0].map(added);
    format!("added p50 {median} ms, p99 {most} ms, max {max} ms")
}

fn added(outcome: &Outcome) -> String {
    added_from(outcome, Duration::ZERO)
}

fn added_when_warm(outcome: &Outcome) -> String {
    added_from(outcome, WARM)
}

fn round_trips(outcome: &Outcome) -> String {
    let trips = outcome.last_success().as_secs_f64() / outcome.latency.as_secs_f64();
    format!("{trips:.1} round trips")
}

fn shared(outcome: &Outcome) -> String {
    let capacity = Steps::from(TWENTY_CLIENTS_RATE);
    let used = outcome.use_of(&capacity, Duration::ZERO..TWENTY_CLIENTS_TIME);
    let fairness = outcome.fairness();
    format!("{:.1} % used, Jain {fairness:.3}", 100.0 * used)
}

fn used_by_second(outcome: &Outcome) -> String {
    let used = (0..15).map(|second| {
        let time = second * SEC..(second + 1) * SEC;
        let used = 100.0 * outcome.use_of(&halved_capacity(), time);
        format!("{used:.0}")
    });
    format!("% used: {}", used.collect::<Vec<_>>().join(" "))
}

/// Formats the columns of `COUNTED`.
fn counts(outcome: &Outcome) -> String {
    format!(
        "{:>6} {:>6.1} {:>8} {:>8.2} {:>8.2}",
        outcome.calls.len(),
        100.0 * outcome.share(),
        outcome.requests(),
        outcome.requests_per_call(),
        outcome.requests_per_success(),
    )
}

const COUNTED: &str = " calls      % requests per call per good";

fn table(wanted: &impl Fn(&str, &str) -> bool, everywhere: bool) {
    println!(
        "{:<29} {:<15} {:>7} {:>4} {COUNTED}",
        "scenario", "stack", "latency", "seed"
    );
    for scenario in SCENARIOS {
        let latencies = if everywhere {
            LATENCIES.map(Duration::from_millis).to_vec()
        } else {
            vec![scenario.latency]
        };
        let stacks = STACKS
            .iter()
            .filter(|(stack, _)| wanted(scenario.name, stack));
        for (stack, build) in stacks {
            for latency in &latencies {
                let lines = SEEDS.map(|seed| {
                    // The dead host does not count.
                    let outcome = (scenario.workload)(*latency)
                        .seed(seed)
                        .run(build)
                        .of_host(HOST);
                    format!("{}  {}", counts(&outcome), (scenario.remark)(&outcome))
                });
                let name = scenario.name;
                let start = format!("{name:<29} {stack:<15} {:>7}", format!("{latency:?}"));
                // Without randomness, all seeds give the same line.
                if lines.iter().all(|line| *line == lines[0]) {
                    println!("{start} {:>4} {}", "all", lines[0]);
                    continue;
                }
                for (seed, line) in SEEDS.iter().zip(lines) {
                    println!("{start} {seed:>4} {line}");
                }
            }
        }
    }
}

fn grid(wanted: &impl Fn(&str, &str) -> bool) {
    println!(
        "{:<15} {:>6} {:<14} {:>7} {COUNTED} {:>8} {:>8}",
        "stack", "rate", "shape", "latency", "last", "ideal"
    );
    for (stack, build) in STACKS.iter().filter(|(stack, _)| wanted("grid", stack)) {
        for drain in Drain::grid() {
            for latency in LATENCIES.map(Duration::from_millis) {
                let outcome = drain.simulation(latency).seed(SEEDS[0]).run(build);
                println!(
                    "{stack:<15} {:>6} {:<14} {:>7} {} {:>7.2}s {:>7.2}s",
                    drain.rate,
                    format!("{:?}", drain.shape),
                    format!("{latency:?}"),
                    counts(&outcome),
                    outcome.last_success().as_secs_f64(),
                    drain.ideal(latency).as_secs_f64(),
                );
            }
        }
    }
}

fn main() {
    // Cargo adds `--bench`.
    let args = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"));
    let (grids, words): (Vec<_>, Vec<_>) = args.partition(|arg| arg == "grid");
    let (everywhere, words): (Vec<_>, Vec<_>) =
        words.into_iter().partition(|arg| arg == "latencies");
    let wanted = |scenario: &str, stack: &str| {
        let named = |word: &String| scenario.contains(word) || stack.contains(word);
        words.iter().all(named)
    };
    if grids.is_empty() {
        table(&wanted, !everywhere.is_empty());
    } else {
        grid(&wanted);
    }
}
