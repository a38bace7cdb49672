//! Troubles of small clients: outages, random failures, and limits without hints.
//!
//! Most fleets consist of many small clients. Each has its own middlewares, and calls at random times. A trouble starts
//! after a time of health, so that budgets are full. Only calls that start in the trouble count.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Request;
use reqwest_middleware::RequestBuilder;
use reqwest_steady::RequestBuilderExt;
use reqwest_steady::testing::{Chance, Down, Flaky, Limit, Reply, Rule, SimulatedService, Stack};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::study::{STACKS, quantile};
use crate::workloads::{NEAR, TICK};

const SEC: Duration = Duration::from_secs(1);
const CALL: &str = "x-call";

/// What happens to the service.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Every response has this status, for this time.
    Down(u16, Duration),
    /// This share of the responses is a 503.
    Flaky(f64),
    /// It accepts this many requests in each window.
    Windows(f64, Duration),
}

/// When calls start.
#[derive(Clone, Copy, Debug)]
enum Calls {
    /// This many clients call at random times, each this often per second, for this long.
    Fleet(usize, f64, Duration),
    /// One client makes all calls at once.
    AtOnce(usize),
    /// One client calls this often per second, evenly, for this long.
    Even(f64, Duration),
}

/// Describes a trouble and the calls during it.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    pub name: &'static str,
    event: Event,
    calls: Calls,
    /// A call that takes longer has failed.
    deadline: Option<Duration>,
}

const fn fleet(name: &'static str, event: Event, clients: usize, rate: f64, secs: u64) -> Trouble {
    Trouble {
        name,
        event,
        calls: Calls::Fleet(clients, rate, Duration::from_secs(secs)),
        deadline: None,
    }
}

const fn limit(name: &'static str, accepts: f64, width: Duration, calls: Calls) -> Trouble {
    Trouble {
        name,
        event: Event::Windows(accepts, width),
        calls,
        deadline: None,
    }
}

const fn down(secs: u64) -> Event {
    Event::Down(503, Duration::from_secs(secs))
}

/// All troubles, in the order of the table. The clients of a fleet are as many as a steady mean needs.
pub const TROUBLES: [Trouble; 20] = [
    fleet("blackout 60 s, 0.25/s", down(60), 40, 0.25, 60),
    fleet("blackout 600 s, 0.25/s", down(600), 40, 0.25, 600),
    fleet("blackout 60 s, 1/s", down(60), 40, 1.0, 60),
    fleet("blackout 60 s, 5/s", down(60), 10, 5.0, 60),
    fleet("blackout 60 s, 50/s", down(60), 2, 50.0, 60),
    fleet(
        "blackout of 429, 600 s, 0.25/s",
        BLACKOUT_429,
        40,
        0.25,
        600,
    ),
    fleet("down 3 s of 60, 1/s", down(3), 100, 1.0, 60),
    fleet("down 3 s of 60, 5/s", down(3), 20, 5.0, 60),
    fleet("down 1 s of 60, 50/s", down(1), 4, 50.0, 60),
    fleet("down 1 s of 60, 500/s", down(1), 1, 500.0, 60),
    Trouble {
        deadline: Some(SEC),
        ..fleet("down 1 s of 60, 50/s, deadline 1 s", down(1), 4, 50.0, 60)
    },
    fleet("30 % fail, 5/s", Event::Flaky(0.3), 10, 5.0, 60),
    fleet("30 % fail, 500/s", Event::Flaky(0.3), 1, 500.0, 30),
    limit(
        "1,000 at once on 50 per 100 ms",
        50.0,
        TICK,
        Calls::AtOnce(1000),
    ),
    limit(
        "2,000 at once on 100 per 1 s",
        100.0,
        SEC,
        Calls::AtOnce(2000),
    ),
    limit("200 at once on 5 per 100 ms", 5.0, TICK, Calls::AtOnce(200)),
    limit("50 at once on 1 per 100 ms", 1.0, TICK, Calls::AtOnce(50)),
    limit("20 at once on 5 per 1 s", 5.0, SEC, Calls::AtOnce(20)),
    limit(
        "1,000/s on 500/s for 10 s",
        50.0,
        TICK,
        Calls::Even(1000.0, TEN),
    ),
    limit("30/s on 20/s for 10 s", 2.0, TICK, Calls::Even(30.0, TEN)),
];

const TEN: Duration = Duration::from_secs(10);
const BLACKOUT_429: Event = Event::Down(429, Duration::from_secs(600));

/// Returns the trouble with this name.
///
/// # Panics
///
/// Panics if there is none.
pub fn trouble(name: &str) -> Trouble {
    let found = TROUBLES.into_iter().find(|trouble| trouble.name == name);
    found.unwrap_or_else(|| panic!("no trouble has the name {name:?}"))
}

/// What clients achieved in a trouble.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    pub calls: usize,
    pub requests_per_call: f64,
    /// The share of calls that succeeded.
    pub succeeded: f64,
    /// The median time of successful calls that needed a retry, in seconds. NaN without such calls.
    pub median_wait: f64,
    /// The time from the start of the trouble to the end of the last call, in seconds.
    pub total: f64,
}

impl Trouble {
    /// Runs it with the middlewares of this stack for each client.
    pub fn run(&self, seed: u64, stack: &Stack<'_>) -> Effect {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without input and output");
        runtime.block_on(self.run_here(seed, stack))
    }

    async fn run_here(&self, seed: u64, stack: &Stack<'_>) -> Effect {
        let mut chance = StdRng::seed_from_u64(seed);
        let start = self.health();
        let sent = Sent::default();
        let service = SimulatedService::with_latency(NEAR).seed(seed);
        let service = service.rule(sent.clone()).rule(self.rule(start)).start();
        let clients: Vec<_> = (0..self.clients())
            .map(|_| service.client_behind(stack(chance.random())))
            .collect();
        let begins = self.begins(&mut chance);
        sent.0.lock().unwrap().resize(begins.len(), 0);
        let mut under_way = JoinSet::new();
        for (index, (begin, client)) in begins.iter().enumerate() {
            sleep_until(service.started() + *begin).await;
            let url = "http://api.example.com/";
            let mut request = clients[*client].get(url).header(CALL, index);
            if let Some(deadline) = self.deadline {
                request = request.deadline(deadline);
            }
            under_way.spawn(call(request, index));
        }
        let ended = under_way.join_all().await;
        let requests = sent.0.lock().unwrap();
        let calls = ended.iter().filter(|call| begins[call.index].0 >= start);
        self.effect(calls, &requests, service.started() + start)
    }

    /// Sums up these calls.
    fn effect<'a>(
        &self,
        calls: impl Iterator<Item = &'a Ended>,
        requests: &[usize],
        start: Instant,
    ) -> Effect {
        let (mut count, mut sent, mut succeeded) = (0, 0, 0);
        let mut waits = Vec::new();
        let mut last = start;
        for call in calls {
            let took = call.end - call.begin;
            count += 1;
            sent += requests[call.index];
            last = last.max(call.end);
            // Timers are late by up to a millisecond.
            let late = |deadline| took > deadline + Duration::from_millis(1);
            if !call.succeeded || self.deadline.is_some_and(late) {
                continue;
            }
            succeeded += 1;
            if requests[call.index] > 1 {
                waits.push(took.as_secs_f64());
            }
        }
        Effect {
            calls: count,
            requests_per_call: sent as f64 / count as f64,
            succeeded: f64::from(succeeded) / count as f64,
            median_wait: quantile(&waits, 0.5),
            total: (last - start).as_secs_f64(),
        }
    }

    fn clients(&self) -> usize {
        match self.calls {
            Calls::Fleet(clients, ..) => clients,
            Calls::AtOnce(_) | Calls::Even(..) => 1,
        }
    }

    /// Returns how long the service is healthy first: 75 calls of each client, and at least 20 s.
    fn health(&self) -> Duration {
        match self.calls {
            Calls::Fleet(_, rate, _) => Duration::from_secs_f64((75.0 / rate).max(20.0)),
            Calls::AtOnce(_) | Calls::Even(..) => Duration::ZERO,
        }
    }

    /// Returns when each call starts, and its client, in order.
    fn begins(&self, chance: &mut StdRng) -> Vec<(Duration, usize)> {
        match self.calls {
            Calls::AtOnce(calls) => vec![(Duration::ZERO, 0); calls],
            Calls::Even(rate, lasting) => {
                let calls = (rate * lasting.as_secs_f64()) as usize;
                let begin = |index| Duration::from_secs_f64(index as f64 / rate);
                (0..calls).map(|index| (begin(index), 0)).collect()
            }
            Calls::Fleet(clients, rate, lasting) => {
                let end = (self.health() + lasting).as_secs_f64();
                let mut begins = Vec::new();
                for client in 0..clients {
                    // A Poisson process: the gaps between calls are exponentially distributed.
                    let mut gap = || -(1.0 - chance.random::<f64>()).ln() / rate;
                    let mut at = gap();
                    while at < end {
                        begins.push((Duration::from_secs_f64(at), client));
                        at += gap();
                    }
                }
                begins.sort_unstable();
                begins
            }
        }
    }

    /// Returns the rule of the service, whose trouble starts at this time.
    fn rule(&self, start: Duration) -> Later {
        let rule: Box<dyn Rule> = match self.event {
            Event::Down(status, lasting) => {
                Box::new(Down::with_status(status, Duration::ZERO..lasting))
            }
            Event::Flaky(share) => Box::new(Flaky::new(share)),
            Event::Windows(accepts, width) => {
                Box::new(Limit::window(accepts / width.as_secs_f64(), width))
            }
        };
        Later { rule, start }
    }
}

/// A call that ended.
struct Ended {
    index: usize,
    begin: Instant,
    end: Instant,
    succeeded: bool,
}

#[allow(clippy::disallowed_methods, reason = "it measures virtual time")]
async fn call(request: RequestBuilder, index: usize) -> Ended {
    let begin = Instant::now();
    let response = request.send().await;
    let succeeded = response.is_ok_and(|response| response.status().is_success());
    let end = Instant::now();
    Ended {
        index,
        begin,
        end,
        succeeded,
    }
}

/// Counts the requests of each call.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<usize>>>);

impl Rule for Sent {
    fn decide(&mut self, request: &Request, _: Duration, _: &mut Chance) -> Option<Reply> {
        let index: usize = request.headers().get(CALL)?.to_str().ok()?.parse().ok()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[index] += 1;
        None
    }
}

/// Applies a rule from a time on.
struct Later {
    rule: Box<dyn Rule>,
    start: Duration,
}

impl Rule for Later {
    fn decide(&mut self, request: &Request, at: Duration, chance: &mut Chance) -> Option<Reply> {
        let since = at.checked_sub(self.start)?;
        self.rule.decide(request, since, chance)
    }
}

/// A table of all troubles and stacks with this seed.
#[derive(Clone, Copy, Debug)]
pub struct TroubleTable {
    pub seed: u64,
}

impl fmt::Display for TroubleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Requests per call, calls that succeed, median time of those that needed a retry, total time; seed {}",
            self.seed
        )?;
        write!(f, "  {:<35}", "")?;
        for (name, _) in STACKS {
            write!(f, "  {name:<32}")?;
        }
        for trouble in TROUBLES {
            write!(f, "\n  {:<35}", trouble.name)?;
            for (_, stack) in STACKS {
                let it = trouble.run(self.seed, stack);
                write!(
                    f,
                    "  {:>5.2}  {:>6.2} %  {:>5}  {:>6.1} s",
                    it.requests_per_call,
                    100.0 * it.succeeded,
                    seconds(it.median_wait),
                    it.total
                )?;
            }
        }
        Ok(())
    }
}

fn seconds(value: f64) -> String {
    match value.is_nan() {
        true => "–".to_owned(),
        false => format!("{value:.1} s"),
    }
}
