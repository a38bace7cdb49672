//! The scenarios of the lab, the clients in each, and the notes on the results.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use reqwest_middleware::Middleware;
use reqwest_steady::testing::{
    Down, Limit, Load, Outcome, SimulatedService, Simulation, Stack, Steps,
};
use reqwest_steady::{Budget, RetryMiddleware};

use crate::contention;
use lab::stacks::{
    exponential, fixed_interval, no_retry, reqwest_retry, steady_retry, steady_throttle,
    with_throttle,
};
use lab::workloads::{
    CONTROLLERS_UP, NEAR, TICK, blackout, controllers, nine_writes, overload_of_bucket,
    stalled_worker, thousand_writes,
};

const SEC: Duration = Duration::from_secs(1);

/// A simulation, and the clients that it compares.
pub(crate) struct Scenario {
    /// The name on the command line.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) story: &'static str,
    /// The default number of calls: at once, per second, or per round.
    pub(crate) clients: usize,
    /// A limit, because more clients would take hours.
    pub(crate) most_clients: usize,
    pub(crate) simulation: fn(usize) -> Simulation,
    /// When the service is down or stalled.
    pub(crate) trouble: Range<Duration>,
    /// The number of requests that a successful call needs.
    pub(crate) useful: usize,
    pub(crate) stacks: &'static [(&'static str, &'static Stack<'static>)],
    /// Describes what else matters in an outcome.
    pub(crate) note: fn(&Outcome) -> String,
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

pub(crate) const RETRY: &str = "RetryMiddleware";
pub(crate) const THROTTLE: &str = "with ThrottleMiddleware";
pub(crate) const PEER: &str = "reqwest-retry";

/// The stacks that most scenarios compare.
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
        "default settings: as many retries, a budget per host, and waits that follow its failures",
    ),
    (THROTTLE, "both middlewares, default settings"),
];

const NO_TROUBLE: Range<Duration> = Duration::ZERO..Duration::ZERO;

const MOST_CLIENTS: usize = 10_000;

const STACKS: &[(&str, &Stack)] = &[
    ("no retry", &no_retry),
    ("fixed interval", &fixed_interval),
    ("exponential, no jitter", &exponential),
    (PEER, &reqwest_retry),
    (RETRY, &steady_retry),
    (THROTTLE, &steady_throttle),
];

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "burst",
        title: "A burst of nine",
        story: "Nine writes at once. The service accepts 5 per 100 ms and refuses the rest with 429.",
        clients: 9,
        most_clients: MOST_CLIENTS,
        simulation: |clients| nine_writes(NEAR).callers(clients),
        trouble: NO_TROUBLE,
        useful: 1,
        stacks: STACKS,
        note: took,
    },
    Scenario {
        name: "drain",
        title: "A backlog of a thousand",
        story: "A thousand writes at once. The service accepts 50 per 100 ms, so this is two seconds of work.",
        clients: 1000,
        most_clients: MOST_CLIENTS,
        simulation: |clients| thousand_writes(NEAR).callers(clients),
        trouble: NO_TROUBLE,
        useful: 1,
        stacks: STACKS,
        note: took,
    },
    Scenario {
        name: "herd",
        title: "A herd of 500",
        story: "500 controllers in one process call at once. For the first 3 s, the service responds with 503. \
                RetryMiddleware alone has a reserve of 20 retries. ThrottleMiddleware lets the other calls wait.",
        clients: 500,
        most_clients: MOST_CLIENTS,
        simulation: |clients| controllers(NEAR).callers(clients),
        trouble: Duration::ZERO..CONTROLLERS_UP,
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
    },
    Scenario {
        name: "blackout",
        title: "A blackout",
        story: "1000 calls per second for 30 s. Every response is a 503, so every retry is wasted.",
        clients: 1000,
        most_clients: MOST_CLIENTS,
        simulation: |clients| blackout(NEAR).callers(clients),
        trouble: Duration::ZERO..Duration::from_secs(30),
        useful: 1,
        stacks: STACKS,
        note: |outcome| {
            let added = outcome.requests_per_call() - 1.0;
            format!("{:+.1} % load", 100.0 * added)
        },
    },
    Scenario {
        name: "overload",
        title: "An overload",
        story: "1000 writes per second for 10 s. The service accepts 500 per second, so the rest must wait.",
        clients: 1000,
        most_clients: MOST_CLIENTS,
        simulation: |clients| overload_of_bucket(NEAR).callers(clients),
        trouble: NO_TROUBLE,
        useful: 1,
        stacks: STACKS,
        note: |outcome| {
            let used = outcome.use_of(&Steps::from(500.0), Duration::ZERO..10 * SEC);
            format!("{:.0} % of capacity used; {}", 100.0 * used, took(outcome))
        },
    },
    Scenario {
        name: "metastable",
        title: "An outage that never ends",
        story: "800 calls per second for a minute. One worker handles 1000 per second, but stalls from second 10 \
                to 13. The gateway in front of it responds with 504 after 1 s, while the work continues. Retries \
                keep the worker busy with requests that have already timed out.",
        clients: 800,
        most_clients: MOST_CLIENTS,
        simulation: |clients| stalled_worker(NEAR).callers(clients),
        trouble: Duration::from_secs(10)..Duration::from_secs(13),
        useful: 1,
        stacks: STACKS,
        note: recovery,
    },
    Scenario {
        name: "agents",
        title: "Agents with the same schedule",
        story: "300 agents in separate processes all call every 10 s, at the same time. They share a quota of 50 \
                per second. Beyond it, the service responds with 429 and Retry-After: 1.",
        clients: 300,
        most_clients: MOST_CLIENTS,
        simulation: agents,
        trouble: NO_TROUBLE,
        useful: 1,
        stacks: &[
            ("no retry", &no_retry),
            ("fixed interval", &fixed_interval),
            ("exponential, no jitter", &exponential),
            (PEER, &reqwest_retry),
            (RETRY, &steady_retry),
            ("RetryMiddleware, launch_spread 8 s", &launch_spread),
            (THROTTLE, &steady_throttle),
            ("with Throttle, launch_spread 8 s", &launch_spread_throttle),
        ],
        note: |outcome| {
            let refused = outcome.requests() - outcome.arrivals.successes();
            format!("{refused} refused; median wait {:.1} s", median(outcome))
        },
    },
    Scenario {
        name: "contention",
        title: "One row, many writers",
        story: "The model of AWS: 100 clients change one row with an optimistic lock. Each client reads and writes, \
                and starts again if another was faster. So a try takes two requests. Base 5 ms, cap 2 s, no other \
                limits.",
        clients: 100,
        most_clients: 1000,
        simulation: contention::simulation,
        trouble: NO_TROUBLE,
        useful: 2,
        stacks: &[
            ("no backoff", &contention::at_once),
            ("exponential, no jitter", &contention::exponential),
            ("Jitter::Equal", &contention::equal),
            ("Jitter::Decorrelated", &contention::decorrelated),
            ("Jitter::Full", &contention::full),
        ],
        note: |outcome| format!("{} writes; {}", outcome.requests() / 2, took(outcome)),
    },
    Scenario {
        name: "fleet",
        title: "A fleet of small clients",
        story: "4,000 clients, each with a separate budget, call every 4 s. The service accepts 2000 per second, \
                and is down from second 5 to 65. Each budget has a reserve of 20 retries, which failures empty. \
                Then only first attempts test the service, until one succeeds.",
        clients: 4_000,
        most_clients: MOST_CLIENTS,
        simulation: fleet,
        trouble: FLEET_DOWN,
        useful: 1,
        stacks: &[
            ("no retry", &no_retry),
            ("fixed interval", &fixed_interval),
            ("exponential, no jitter", &exponential),
            (PEER, &reqwest_retry),
            (RETRY, &steady_retry),
            ("RetryMiddleware, reserve of 1", &small_reserve),
            (THROTTLE, &steady_throttle),
            ("with Throttle, reserve of 1", &small_reserve_throttle),
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
    },
];

fn took(outcome: &Outcome) -> String {
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
        Some(second) => format!("recovered in second {second}"),
        None => "never recovered".to_owned(),
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
