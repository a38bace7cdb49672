//! The scenarios of the lab, the clients in each, and the notes on the results.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use reqwest_middleware::Middleware;
use reqwest_steady::testing::{
    Down, Limit, Load, Outcome, SimulatedService, Simulation, Stack, Steps,
};
use reqwest_steady::{Budget, RetryMiddleware};

use crate::conclusion::{done, find_run, share, share_and_cost, whole};
use crate::contention;
use crate::lines::Lines;
use crate::results::{OURS, PEER, Run};
use lab::stacks::{
    exponential, fixed_interval, no_retry, reqwest_retry, steady_retry, steady_throttle,
    with_throttle,
};
use lab::workloads::{
    CONTROLLERS_UP, NEAR, STALLED_WORKER_RATE, TICK, blackout, controllers, nine_writes,
    overload_of_bucket, stalled_worker, thousand_writes,
};

const SEC: Duration = Duration::from_secs(1);

/// A simulation, and the clients that it compares.
pub(crate) struct Scenario {
    /// The name on the command line.
    pub(crate) name: &'static str,
    pub(crate) topic: &'static str,
    pub(crate) story: &'static str,
    /// Says what the runs show, with their figures. So it is true for any seed and number of clients.
    pub(crate) conclusion: fn(&[Run], usize) -> String,
    /// The default number of calls: at once, per second, or per round.
    pub(crate) clients: usize,
    /// A limit, because more clients would take hours.
    pub(crate) most_clients: usize,
    pub(crate) simulation: fn(usize) -> Simulation,
    /// When the service is down or stalled, and what a legend calls it.
    pub(crate) trouble: Range<Duration>,
    pub(crate) trouble_name: &'static str,
    /// How many requests per second the service accepts when it is well.
    pub(crate) capacity: fn(usize) -> Option<f64>,
    /// The number of requests that a successful call needs.
    pub(crate) useful: usize,
    pub(crate) stacks: &'static [(&'static str, &'static Stack<'static>)],
    /// Describes what else matters in an outcome.
    pub(crate) note: fn(&Outcome) -> String,
    /// Draws more charts, for this number of clients and this seed.
    pub(crate) lines: fn(usize, u64) -> Vec<Lines>,
}

impl Scenario {
    /// Returns the description, with this number of clients.
    pub(crate) fn description(&self, clients: usize) -> String {
        if clients == self.clients {
            return self.story.to_owned();
        }
        format!(
            "{} This run has {clients} instead of {}.",
            self.story, self.clients
        )
    }
}

pub(crate) const RETRY: &str = "reqwest-steady, retry alone";

/// The clients that most scenarios compare.
pub(crate) const MEANINGS: [(&str, &str); 6] = [
    ("no retry", "every response is final"),
    (
        "fixed interval",
        "5 retries, 1 s apart: a RetryMiddleware without jitter and budget, which still applies Retry-After",
    ),
    (
        "exponential, no jitter",
        "the same, with waits of 200 ms, 400 ms and so on",
    ),
    (
        PEER,
        "5 retries with random waits up to 200 ms, 400 ms and so on; it ignores Retry-After",
    ),
    (
        RETRY,
        "RetryMiddleware with default settings: as many retries, a budget per host, and waits that follow its failures",
    ),
    (
        OURS,
        "RetryMiddleware with ThrottleMiddleware inside, both with default settings",
    ),
];

const NO_TROUBLE: Range<Duration> = Duration::ZERO..Duration::ZERO;

const MOST_CLIENTS: usize = 10_000;

const SPREAD: &str = "reqwest-steady, launch_spread 8 s";
const RETRY_SPREAD: &str = "reqwest-steady, retry alone, launch_spread 8 s";
const SMALL_RESERVE: &str = "reqwest-steady, reserve of 1";
const RETRY_SMALL_RESERVE: &str = "reqwest-steady, retry alone, reserve of 1";

const STACKS: &[(&str, &Stack)] = &[
    ("no retry", &no_retry),
    ("fixed interval", &fixed_interval),
    ("exponential, no jitter", &exponential),
    (PEER, &reqwest_retry),
    (RETRY, &steady_retry),
    (OURS, &steady_throttle),
];

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "metastable",
        topic: "An outage that never ends",
        story: "800 calls per second for a minute. One worker handles 1000 per second, but stalls from second 10 \
                to 13. The gateway in front of it responds with 504 after 1 s, while the work continues. Retries \
                keep the worker busy with requests that have already timed out.",
        conclusion: |runs, _| {
            format!(
                "A stall of 3 s: {PEER} {}; with {OURS}, {}",
                find_run(runs, PEER).note,
                share(find_run(runs, OURS))
            )
        },
        clients: 800,
        most_clients: MOST_CLIENTS,
        simulation: |clients| stalled_worker(NEAR).callers(clients),
        trouble: Duration::from_secs(10)..Duration::from_secs(13),
        trouble_name: "worker stalled",
        capacity: |_| Some(STALLED_WORKER_RATE),
        useful: 1,
        stacks: STACKS,
        note: recovery,
        lines: |_, _| Vec::new(),
    },
    Scenario {
        name: "drain",
        topic: "A backlog of a thousand",
        story: "A thousand writes at once. The service accepts 50 per 100 ms, so this is two seconds of work.",
        conclusion: |runs, clients| {
            let [ours, peer] = [OURS, PEER].map(|name| share_and_cost(find_run(runs, name)));
            format!("A backlog of {}: {ours}; {peer}", whole(clients))
        },
        clients: 1000,
        most_clients: MOST_CLIENTS,
        simulation: |clients| thousand_writes(NEAR).callers(clients),
        trouble: NO_TROUBLE,
        trouble_name: "",
        capacity: |_| Some(500.0),
        useful: 1,
        stacks: STACKS,
        note: took,
        lines: |_, _| Vec::new(),
    },
    Scenario {
        name: "herd",
        topic: "A herd of 500",
        story: "500 controllers in one process call at once. For the first 3 s, the service responds with 503. \
                The retry alone has a reserve of 20 retries. The throttle lets the other calls wait.",
        conclusion: |runs, clients| {
            let [ours, peer] = [OURS, PEER].map(|name| share(find_run(runs, name)));
            format!(
                "{} calls start in an outage of 3 s: with {OURS}, {ours}; with {PEER}, {peer}",
                whole(clients)
            )
        },
        clients: 500,
        most_clients: MOST_CLIENTS,
        simulation: |clients| controllers(NEAR).callers(clients),
        trouble: Duration::ZERO..CONTROLLERS_UP,
        trouble_name: "service down",
        capacity: |_| None,
        useful: 1,
        stacks: STACKS,
        note: |outcome| {
            let later = outcome.arrivals.during(TICK..Duration::MAX);
            let up = outcome.arrivals.during(CONTROLLERS_UP..Duration::MAX);
            let [later, up] = [later, up].map(|arrivals| arrivals.peak(TICK));
            format!(
                "{}; peak after the first 100 ms {later}, after the outage {up}",
                took(outcome)
            )
        },
        lines: |_, _| Vec::new(),
    },
    Scenario {
        name: "fleet",
        topic: "A fleet of small clients",
        story: "4,000 clients, each with a separate budget, call every 4 s. The service accepts 2000 per second, \
                and is down from second 5 to 65. Each budget has a reserve of 20 retries, which failures empty. \
                Then only first attempts test the service, until one succeeds.",
        conclusion: |runs, clients| {
            let a_second = |name| {
                let sent = find_run(runs, name).requests_during(&FLEET_DOWN) as f64;
                whole((sent / (FLEET_DOWN.end - FLEET_DOWN.start).as_secs_f64()).round() as usize)
            };
            format!(
                "During the outage, {} calls per second become {} requests per second with {PEER}, {} with {OURS}, and \
                 {} with a reserve of 1",
                whole(clients / 4),
                a_second(PEER),
                a_second(OURS),
                a_second(SMALL_RESERVE)
            )
        },
        clients: 4_000,
        most_clients: MOST_CLIENTS,
        simulation: fleet,
        trouble: FLEET_DOWN,
        trouble_name: "service down",
        capacity: |clients| Some(clients as f64 / 2.0),
        useful: 1,
        stacks: &[
            ("no retry", &no_retry),
            ("fixed interval", &fixed_interval),
            ("exponential, no jitter", &exponential),
            (PEER, &reqwest_retry),
            (RETRY, &steady_retry),
            (RETRY_SMALL_RESERVE, &small_reserve),
            (OURS, &steady_throttle),
            (SMALL_RESERVE, &small_reserve_throttle),
        ],
        note: |outcome| {
            let whole = FLEET_DOWN.end - FLEET_DOWN.start;
            let a_second = |count: usize| count as f64 / whole.as_secs_f64();
            let sent = a_second(outcome.arrivals.during(FLEET_DOWN).count());
            let begun = outcome.calls.iter();
            let begun = begun.filter(|call| FLEET_DOWN.contains(&call.begun));
            let begun = a_second(begun.count());
            format!("while down {sent:.0} requests/s for {begun:.0} calls/s")
        },
        lines: |_, _| Vec::new(),
    },
    Scenario {
        name: "overload",
        topic: "An overload",
        story: "1000 writes per second for 10 s. The service accepts 500 per second, so the rest must wait.",
        conclusion: |runs, clients| {
            let [ours, peer] = [OURS, PEER].map(|name| share_and_cost(find_run(runs, name)));
            let load = clients as f64 / OVERLOAD_RATE;
            format!("{load:.1} times the limit for 10 s: {ours}; {peer}")
        },
        clients: 1000,
        most_clients: MOST_CLIENTS,
        simulation: |clients| overload_of_bucket(NEAR).callers(clients),
        trouble: NO_TROUBLE,
        trouble_name: "",
        capacity: |_| Some(OVERLOAD_RATE),
        useful: 1,
        stacks: STACKS,
        note: |outcome| {
            let used = outcome.use_of(&Steps::from(OVERLOAD_RATE), Duration::ZERO..10 * SEC);
            format!("{:.0} % of capacity used; {}", 100.0 * used, took(outcome))
        },
        lines: |_, _| Vec::new(),
    },
    Scenario {
        name: "blackout",
        topic: "A blackout",
        story: "1000 calls per second for 30 s. Every response is a 503, so every retry is wasted.",
        conclusion: |runs, _| {
            let [ours, peer] = [OURS, PEER].map(|name| find_run(runs, name));
            format!(
                "Every response is a 503: {} calls become {} requests with {PEER}, and {} with {OURS}",
                whole(ours.calls),
                whole(peer.requests),
                whole(ours.requests)
            )
        },
        clients: 1000,
        most_clients: MOST_CLIENTS,
        simulation: |clients| blackout(NEAR).callers(clients),
        trouble: Duration::ZERO..Duration::from_secs(30),
        trouble_name: "service down",
        capacity: |_| None,
        useful: 1,
        stacks: STACKS,
        note: |outcome| {
            let added = outcome.requests_per_call() - 1.0;
            format!("{:+.1} % load", 100.0 * added)
        },
        lines: |_, _| Vec::new(),
    },
    Scenario {
        name: "burst",
        topic: "A burst of nine",
        story: "Nine writes at once. The service accepts 5 per 100 ms and refuses the rest with 429.",
        conclusion: |runs, clients| {
            let [ours, peer] = [OURS, PEER].map(|name| done(find_run(runs, name)));
            format!(
                "{} writes at once: {OURS} {ours}, {PEER} {peer}",
                whole(clients)
            )
        },
        clients: 9,
        most_clients: MOST_CLIENTS,
        simulation: |clients| nine_writes(NEAR).callers(clients),
        trouble: NO_TROUBLE,
        trouble_name: "",
        capacity: |_| Some(50.0),
        useful: 1,
        stacks: STACKS,
        note: took,
        lines: |_, _| Vec::new(),
    },
    Scenario {
        name: "agents",
        topic: "Agents with the same schedule",
        story: "300 agents in separate processes all call every 10 s, at the same time. They share a quota of 50 \
                per second. Beyond it, the service responds with 429 and Retry-After: 1.",
        conclusion: |runs, clients| {
            let refused = |name| whole(find_run(runs, name).refused());
            format!(
                "{} agents call at the same time: {} refusals with {PEER}, {} with {OURS}, {} with launch_spread",
                whole(clients),
                refused(PEER),
                refused(OURS),
                refused(SPREAD)
            )
        },
        clients: 300,
        most_clients: MOST_CLIENTS,
        simulation: agents,
        trouble: NO_TROUBLE,
        trouble_name: "",
        capacity: |_| Some(50.0),
        useful: 1,
        stacks: &[
            ("no retry", &no_retry),
            ("fixed interval", &fixed_interval),
            ("exponential, no jitter", &exponential),
            (PEER, &reqwest_retry),
            (RETRY, &steady_retry),
            (RETRY_SPREAD, &launch_spread),
            (OURS, &steady_throttle),
            (SPREAD, &launch_spread_throttle),
        ],
        note: |outcome| {
            let refused = outcome.requests() - outcome.arrivals.successes();
            format!("{refused} refused; median wait {:.1} s", median(outcome))
        },
        lines: |_, _| Vec::new(),
    },
    Scenario {
        name: "contention",
        topic: "One row, many writers",
        story: "The model of AWS: 100 clients change one row with an optimistic lock. Each client reads and writes, \
                and starts again if another was faster. So a try takes two requests. Base 5 ms, cap 2 s, no other \
                limits.",
        conclusion: contention::conclusion,
        clients: 100,
        most_clients: 1000,
        simulation: contention::simulation,
        trouble: NO_TROUBLE,
        trouble_name: "",
        capacity: |_| None,
        useful: 2,
        stacks: contention::STACKS,
        note: |outcome| format!("{} writes; {}", outcome.requests() / 2, took(outcome)),
        lines: contention::lines,
    },
];

pub(crate) fn took(outcome: &Outcome) -> String {
    match outcome.succeeded() {
        0 => "no successes".to_owned(),
        _ => format!(
            "last success after {:.2} s",
            outcome.last_success().as_secs_f64()
        ),
    }
}

fn median(outcome: &Outcome) -> f64 {
    outcome.added_latency(0.5, Duration::ZERO).as_secs_f64()
}

/// Finds the first second after the stall in which 98 % of the rate succeeds.
fn recovery(outcome: &Outcome) -> String {
    let by_second = outcome.successes_by_second();
    let begun = outcome.calls.len() / 60;
    let full = |second: &usize| {
        by_second
            .get(*second)
            .is_some_and(|count| 100 * count >= 98 * begun)
    };
    match (13..60).find(full) {
        Some(second) => format!("recovers in second {second}"),
        None => "never recovers".to_owned(),
    }
}

fn agents(clients: usize) -> Simulation {
    let quota = Limit::window(50.0, SEC).on_refusal("retry-after", "1");
    let service = SimulatedService::with_latency(50 * MS).rule(quota);
    let load = Load::Beats {
        calls: clients,
        every: 10 * SEC,
        times: 3,
    };
    Simulation::new(service, load).clients(clients)
}

/// What the limit of the overload accepts per second.
const OVERLOAD_RATE: f64 = 500.0;

const MS: Duration = Duration::from_millis(1);

fn launch_spread(seed: u64) -> Vec<Arc<dyn Middleware>> {
    let retry = RetryMiddleware::builder().launch_spread(8 * SEC).seed(seed);
    vec![Arc::new(retry.build().unwrap())]
}

fn launch_spread_throttle(seed: u64) -> Vec<Arc<dyn Middleware>> {
    with_throttle(launch_spread(seed), seed)
}

const FLEET_DOWN: Range<Duration> = Duration::from_secs(5)..Duration::from_secs(65);

fn fleet(clients: usize) -> Simulation {
    let capacity = clients as f64 / 2.0;
    let service = SimulatedService::with_latency(20 * MS)
        .rule(Down::with_status(503, FLEET_DOWN))
        .rule(Limit::bucket(capacity, (capacity / 10.0).max(1.0)).status(503));
    let load = Load::Rate(clients as f64 / 4.0, 80 * SEC);
    Simulation::new(service, load).clients(clients)
}

/// Has a reserve of one retry, which successes refill by 0.1 per second, and 0.2 retries per success.
fn small_reserve(seed: u64) -> Vec<Arc<dyn Middleware>> {
    let small = Budget::builder().min_retries_per_sec(0.1);
    let retry = RetryMiddleware::builder().budget_per_host(small).seed(seed);
    vec![Arc::new(retry.build().unwrap())]
}

fn small_reserve_throttle(seed: u64) -> Vec<Arc<dyn Middleware>> {
    with_throttle(small_reserve(seed), seed)
}

/// Finds a scenario by name.
pub(crate) fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Tick;

    /// Returns a run of each client of this scenario, with these figures.
    fn runs(scenario: &Scenario, succeeded: usize, requests: usize, note: &str) -> Vec<Run> {
        let run = |(stack, _): &(&'static str, _)| Run {
            calls: 1000,
            succeeded,
            requests,
            last_success: Duration::from_millis(succeeded as u64),
            ticks: vec![
                Tick {
                    accepted: 0,
                    refused: requests
                };
                100
            ],
            note: note.to_owned(),
            ..Run::empty(stack)
        };
        scenario.stacks.iter().map(run).collect()
    }

    #[test]
    fn conclusions_are_made_of_the_figures() {
        for scenario in SCENARIOS {
            let conclusion = |succeeded, requests, note| {
                (scenario.conclusion)(&runs(scenario, succeeded, requests, note), 100)
            };
            let good = conclusion(1000, 1010, "recovers in second 15");
            let bad = conclusion(123, 5678, "never recovers");
            assert_ne!(good, bad, "{}", scenario.name);
            let claims = |text: &str| ["all calls", "is done"].iter().any(|it| text.contains(it));
            assert!(!claims(&bad), "{}: {bad}", scenario.name);
        }
    }

    #[test]
    fn the_scenarios_that_teach_most_come_first() {
        let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names[..4], ["metastable", "drain", "herd", "fleet"]);
    }
}
