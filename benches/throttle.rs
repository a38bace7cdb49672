//! What becomes of calls, and of the service, in worlds where clients get it wrong.
//!
//! `cargo bench --bench throttle` prints a line for each scenario, stack and seed.
//! `cargo bench --bench throttle -- grid` prints how backlogs drain, over rates, shapes of limits and
//! latencies. Any other word leaves only the scenarios and stacks whose names contain it.
//!
//! All of it runs in virtual time: how fast this machine is changes nothing.

// The service reads tokio's paused clock itself.
#![allow(clippy::disallowed_methods)]

#[path = "../tests/steady/support/rules.rs"]
mod rules;
#[path = "../tests/steady/support/scenarios.rs"]
mod scenarios;
#[path = "../tests/steady/support/service.rs"]
mod service;
#[path = "../tests/steady/support/world.rs"]
mod world;

use std::time::Duration;

use scenarios::{ALL, Drain};
use world::{Outcome, Stack, no_retry, reqwest_retry, steady_retry};

const STACKS: [(&str, &Stack); 3] = [
    ("no retry", &no_retry),
    ("reqwest-retry", &reqwest_retry),
    ("reqwest-steady", &steady_retry),
];
const SEEDS: [u64; 3] = [1, 2, 3];
const LATENCIES: [u64; 5] = [1, 2, 10, 50, 200];

/// What every table has a column for, as in `COUNTED`.
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

fn table(wanted: &impl Fn(&str, &str) -> bool) {
    println!("{:<29} {:<15} {:>4} {COUNTED}", "scenario", "stack", "seed");
    for scenario in ALL {
        for (stack, build) in STACKS
            .iter()
            .filter(|(stack, _)| wanted(scenario.name, stack))
        {
            let lines = SEEDS.map(|seed| {
                let outcome = (scenario.run)(scenario.latency, seed, build);
                format!("{}  {}", counts(&outcome), (scenario.remark)(&outcome))
            });
            let name = scenario.name;
            // Where nothing is left to chance, one line says it all.
            if lines.iter().all(|line| *line == lines[0]) {
                println!("{name:<29} {stack:<15} {:>4} {}", "all", lines[0]);
                continue;
            }
            for (seed, line) in SEEDS.iter().zip(lines) {
                println!("{name:<29} {stack:<15} {seed:>4} {line}");
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
                let outcome = drain.run(latency, SEEDS[0], build);
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
    let wanted = |scenario: &str, stack: &str| {
        let named = |word: &String| scenario.contains(word) || stack.contains(word);
        words.iter().all(named)
    };
    if grids.is_empty() {
        table(&wanted);
    } else {
        grid(&wanted);
    }
}
