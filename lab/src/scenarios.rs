//! The worlds of the lab, the clients that meet in each, and what to look at.

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
use lab::worlds::{
    CONTROLLERS_UP, NEAR, TICK, blackout, controllers, nine_writes, overload_of_bucket,
    stalled_worker, thousand_writes,
};

const SEC: Duration = Duration::from_secs(1);

/// A world, and who meets in it.
pub(crate) struct Scenario {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) story: &'static str,
    /// How many call at once, a second or on each beat, unless told otherwise.
    pub(crate) clients: usize,
    /// More of them would take hours.
    pub(crate) most_clients: usize,
    pub(crate) world: fn(usize) -> Simulation,
    /// When the service is in trouble of its own.
    pub(crate) trouble: Range<Duration>,
    /// How many requests a success has use for.
    pub(crate) useful: usize,
    pub(crate) stacks: &'static [(&'static str, &'static Stack<'static>)],
    /// What else is worth knowing of an outcome.
    pub(crate) note: fn(&Outcome) -> String,
}

impl Scenario {
    /// What happens, with so many clients.
    pub(crate) fn told(&self, clients: usize) -> String {
        if clients == self.clients {
            return self.story.to_owned();
        }
        format!(
            "{} Here with {clients} in place of {}.",
            self.story, self.clients
        )
    }
}

pub(crate) const RETRY: &str = "RetryMiddleware";
pub(crate) const THROTTLE: &str = "with ThrottleMiddleware";
pub(crate) const PEER: &str = "reqwest-retry";

/// What the stacks are that most worlds have.
pub(crate) const MEANINGS: [(&str, &str); 6] = [
    ("no retry", "every answer is final"),
    (
        "fixed interval",
        "5 retries, a second apart: a RetryMiddleware without jitter and budget, which still keeps to Retry-After",
    ),
    (
        "exponential, no jitter",
        "the same, after 200 ms, 400 ms and so on",
    ),
    (
        PEER,
        "5 retries after up to 200 ms, 400 ms and so on, at random, whatever Retry-After says",
    ),
    (
        RETRY,
        "as it comes: the same waits and number, and a budget for each host",
    ),
    (THROTTLE, "both, as they come"),
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
        title: "The burst of nine",
        story: "Nine writes at once, to a service that takes five in 100 ms and refuses the rest with 429.",
        clients: 9,
        most_clients: MOST_CLIENTS,
        world: |clients| nine_writes(NEAR).callers(clients),
        trouble: NO_TROUBLE,
        useful: 1,
        stacks: STACKS,
        note: took,
    },
    Scenario {
        name: "drain",
        title: "The drain of a thousand",
        story: "A thousand writes at once, to a service that takes 50 in 100 ms: two seconds of work.",
        clients: 1000,
        most_clients: MOST_CLIENTS,
        world: |clients| thousand_writes(NEAR).callers(clients),
        trouble: NO_TROUBLE,
        useful: 1,
        stacks: STACKS,
        note: took,
    },
    Scenario {
        name: "herd",
        title: "The herd of 500",
        story: "500 controllers of one process ask at once, and for its first three seconds the service answers \
                503. The retry alone has saved up for 20 retries; the throttle makes the others wait.",
        clients: 500,
        most_clients: MOST_CLIENTS,
        world: |clients| controllers(NEAR).callers(clients),
        trouble: Duration::ZERO..CONTROLLERS_UP,
        useful: 1,
        stacks: STACKS,
        note: |outcome| {
            let later = outcome.arrivals.during(TICK..Duration::MAX);
            let up = outcome.arrivals.during(CONTROLLERS_UP..Duration::MAX);
            let [later, up] = [later, up].map(|arrivals| arrivals.peak(TICK));
            format!(
                "{}; peak after the first {later}, when it is up {up}",
                took(outcome)
            )
        },
    },
    Scenario {
        name: "blackout",
        title: "The blackout",
        story: "1000 calls a second for 30 s, and every answer is a 503. What is sent again is in vain.",
        clients: 1000,
        most_clients: MOST_CLIENTS,
        world: |clients| blackout(NEAR).callers(clients),
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
        title: "The overload",
        story: "1000 writes a second for 10 s, to a service that takes 500 a second: what cannot be \
                taken now has to wait.",
        clients: 1000,
        most_clients: MOST_CLIENTS,
        world: |clients| overload_of_bucket(NEAR).callers(clients),
        trouble: NO_TROUBLE,
        useful: 1,
        stacks: STACKS,
        note: |outcome| {
            let used = outcome.use_of(&Steps::from(500.0), Duration::ZERO..10 * SEC);
            format!(
                "{:.0} % of the service used; {}",
                100.0 * used,
                took(outcome)
            )
        },
    },
    Scenario {
        name: "metastable",
        title: "The outage that never ends",
        story: "800 calls a second for a minute, to one worker that does 1000. It stalls from second 10 to \
                13; the gateway before it answers 504 after a second, but the work goes on. Retries keep \
                it busy with what nobody waits for.",
        clients: 800,
        most_clients: MOST_CLIENTS,
        world: |clients| stalled_worker(NEAR).callers(clients),
        trouble: Duration::from_secs(10)..Duration::from_secs(13),
        useful: 1,
        stacks: STACKS,
        note: recovery,
    },
    Scenario {
        name: "agents",
        title: "Agents on the same beat",
        story: "300 agents, each a process of its own, call every ten seconds on the same beat. They share \
                a quota of 50 a second; what is over it gets a 429 with Retry-After: 1.",
        clients: 300,
        most_clients: MOST_CLIENTS,
        world: agents,
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
            format!("{refused} refused; half waited {:.1} s", median(outcome))
        },
    },
    Scenario {
        name: "contention",
        title: "One row, many writers",
        story: "AWS's model: 100 clients change one row that has an optimistic lock. Each reads and writes, \
                and begins anew if another was faster: a request is half a try. Base 5 ms, cap 2 s, no \
                other bounds.",
        clients: 100,
        most_clients: 1000,
        world: contention::world,
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
        title: "The fleet",
        story: "10,000 clients, each with a budget of its own, call every four seconds. The service could \
                take 5000 a second, and is down from second 5 to 20. A budget's reserve is for each of \
                them: 2 retries a second, the default, are 20,000 for the fleet.",
        clients: 10_000,
        most_clients: MOST_CLIENTS,
        world: fleet,
        trouble: FLEET_DOWN,
        useful: 1,
        stacks: &[
            ("no retry", &no_retry),
            ("fixed interval", &fixed_interval),
            ("exponential, no jitter", &exponential),
            (PEER, &reqwest_retry),
            (RETRY, &steady_retry),
            ("RetryMiddleware, reserve 0.1/s", &small_reserve),
            (THROTTLE, &steady_throttle),
            ("with Throttle, reserve 0.1/s", &small_reserve_throttle),
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
        0 => "nothing got through".to_owned(),
        _ => format!("last after {:.2} s", outcome.last_success().as_secs_f64()),
    }
}

fn median(outcome: &Outcome) -> f64 {
    outcome.added_latency(0.5, Duration::ZERO).as_secs_f64()
}

/// The first whole second after the stall in which nearly as many got through as began.
fn recovery(outcome: &Outcome) -> String {
    let by_second = outcome.successes_by_second();
    let begun = outcome.calls.len() / 60;
    let full = |second: &usize| {
        by_second
            .get(*second)
            .is_some_and(|count| 100 * count >= 98 * begun)
    };
    match (13..60).find(full) {
        Some(second) => format!("well again in second {second}"),
        None => "never well again".to_owned(),
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

const FLEET_DOWN: Range<Duration> = Duration::from_secs(5)..Duration::from_secs(20);

fn fleet(clients: usize) -> Simulation {
    let capacity = clients as f64 / 2.0;
    let service = SimulatedService::with_latency(20 * MS)
        .rule(Down::with_status(503, FLEET_DOWN))
        .rule(Limit::bucket(capacity, (capacity / 10.0).max(1.0)).status(503));
    let load = Load::Rate(clients as f64 / 4.0, 30 * SEC);
    Simulation::new(service, load).clients(clients)
}

/// A tenth of a retry a second, and a fifth of a retry for each success.
fn small_reserve(seed: u64) -> Vec<Arc<dyn Middleware>> {
    let small = Budget::builder().min_retries_per_sec(0.1);
    let retry = RetryMiddleware::builder().budget_per_host(small).seed(seed);
    vec![Arc::new(retry.build().unwrap())]
}

fn small_reserve_throttle(seed: u64) -> Vec<Arc<dyn Middleware>> {
    with_throttle(small_reserve(seed), seed)
}

/// The one with this name.
pub(crate) fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}
