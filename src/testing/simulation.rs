//! Runs many calls against a simulated service.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use reqwest::Method;
use reqwest_middleware::{ClientWithMiddleware, Middleware, RequestBuilder};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::host_name;
use super::outcome::{Call, Outcome};
use super::rules::assert_rate;
use super::service::{CLIENT, SimulatedService, SimulatedServiceBuilder};
use crate::clock;
use crate::request::{IdempotencyKey, RequestBuilderExt};

/// The time limit of a simulation, so that calls that wait for each other do not hang.
const FOR_EVER: Duration = Duration::from_secs(24 * 60 * 60);

/// The most calls of a simulation. Each takes a few hundred bytes, and more while it runs.
const MOST_CALLS: usize = 10_000_000;

/// Builds the middlewares of a client of a [`Simulation`], the outermost first.
///
/// It gets a seed for their builders, which is different for each client.
pub type Stack<'a> = dyn Fn(u64) -> Vec<Arc<dyn Middleware>> + Sync + 'a;

/// Describes when calls start.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Load {
    /// This many calls, all at the start.
    AtOnce(usize),
    /// This many calls per second, evenly spaced, for this long.
    Rate(f64, Duration),
    /// Calls in regular groups, the first at the start.
    Beats {
        /// The number of calls in a group.
        calls: usize,
        /// The time between groups.
        every: Duration,
        /// The number of groups.
        times: usize,
    },
}

impl Load {
    /// Returns the total number of calls.
    pub fn calls(self) -> usize {
        match self {
            Self::AtOnce(calls) => calls,
            Self::Rate(rate, lasting) => (rate * lasting.as_secs_f64()).round() as usize,
            Self::Beats { calls, times, .. } => calls.saturating_mul(times),
        }
    }

    #[track_caller]
    fn check(self) {
        if let Self::Rate(rate, _) = self {
            assert_rate(rate);
        }
        let calls = self.calls();
        assert!(
            calls <= MOST_CALLS,
            "a load of {calls} calls: {MOST_CALLS} are the most"
        );
        if calls > 0 {
            let last = self.begin(calls - 1);
            assert!(
                last <= FOR_EVER,
                "a load for {last:?}: {FOR_EVER:?} is the longest"
            );
        }
    }

    fn begin(self, index: usize) -> Duration {
        match self {
            Self::AtOnce(_) => Duration::ZERO,
            Self::Rate(rate, _) => {
                Duration::try_from_secs_f64(index as f64 / rate).unwrap_or(Duration::MAX)
            }
            Self::Beats { calls, every, .. } => {
                let beat = u32::try_from(index / calls).unwrap_or(u32::MAX);
                every.saturating_mul(beat)
            }
        }
    }
}

/// Runs calls against a simulated service, in virtual time.
///
/// It runs on one thread, and all random numbers come from one seed. So the same simulation always gives the same
/// outcome, if the middlewares use no other random numbers.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use reqwest_steady::RetryMiddleware;
/// use reqwest_steady::testing::{Flaky, Load, SimulatedService, Simulation};
///
/// // 100 calls per second for a minute, and every tenth response is a 503.
/// let service = SimulatedService::with_latency(Duration::from_millis(5)).rule(Flaky::new(0.1));
/// let load = Load::Rate(100.0, Duration::from_secs(60));
/// let outcome = Simulation::new(service, load)
///     .seed(7)
///     .run(&|seed| vec![Arc::new(RetryMiddleware::builder().seed(seed).build().unwrap())]);
/// assert!(outcome.share() > 0.99);
/// assert!(outcome.requests_per_call() < 1.2);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Simulation {
    service: SimulatedServiceBuilder,
    clients: usize,
    calls: CallPlan,
}

impl Simulation {
    /// Creates a simulation of `GET` requests from one client to one host.
    ///
    /// # Panics
    ///
    /// Panics if the rate of the load is not more than 0. Panics if the load has more than ten million calls or is
    /// longer than a day.
    pub fn new(service: SimulatedServiceBuilder, load: Load) -> Self {
        load.check();
        let calls = CallPlan {
            load,
            method: Method::GET,
            hosts: vec!["api.example.com".into()],
            seed: 0,
        };
        Self {
            service,
            clients: 1,
            calls,
        }
    }

    /// Sends `POST` instead of `GET`, with a different idempotency key for each call.
    pub fn writes(mut self) -> Self {
        self.calls.method = Method::POST;
        self
    }

    /// Replaces the number of calls of the load: at once, per second, or per group.
    ///
    /// # Panics
    ///
    /// Panics if it is 0, or if the load then has more than ten million calls.
    pub fn callers(mut self, callers: usize) -> Self {
        assert!(callers > 0, "a simulation without callers");
        match &mut self.calls.load {
            Load::AtOnce(calls) | Load::Beats { calls, .. } => *calls = callers,
            Load::Rate(rate, _) => *rate = callers as f64,
        }
        self.calls.load.check();
        self
    }

    /// Distributes the calls over this many clients, each with its own middlewares.
    ///
    /// # Panics
    ///
    /// Panics if it is 0.
    pub fn clients(mut self, clients: usize) -> Self {
        assert!(clients > 0, "a simulation without clients");
        self.clients = clients;
        self
    }

    /// Distributes the calls of each client over these hosts, instead of `api.example.com`.
    ///
    /// # Panics
    ///
    /// Panics if there are none, or if one is not the name of a host.
    pub fn hosts(mut self, hosts: &[&str]) -> Self {
        assert!(!hosts.is_empty(), "a simulation without hosts");
        self.calls.hosts = hosts.iter().map(|host| host_name(host).into()).collect();
        self
    }

    /// Sets the seed of all random numbers.
    ///
    /// Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.calls.seed = seed;
        self
    }

    /// Runs until the last call ends.
    ///
    /// It blocks, and uses a separate thread and runtime. So you can call it from async code, too.
    ///
    /// # Panics
    ///
    /// Panics if a middleware panics, or if a call does not end within a day of virtual time.
    pub fn run(self, stack: &Stack<'_>) -> Outcome {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .start_paused(true)
                    .build()
                    .expect("a runtime without input and output");
                runtime.block_on(self.run_here(stack))
            });
            let ended = thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    async fn run_here(self, stack: &Stack<'_>) -> Outcome {
        let seed = self.calls.seed;
        let service = self.service.seed(seed).start();
        let mut seeds = StdRng::seed_from_u64(seed);
        let clients: Vec<_> = (0..self.clients)
            .map(|_| service.client_behind(stack(seeds.random())))
            .collect();
        let calls = self.calls.make(&service, &clients).await;
        Outcome {
            latency: service.latency(),
            calls,
            clients: clients.len(),
            arrivals: service.take_arrivals(),
        }
    }
}

/// The calls to make.
#[derive(Debug)]
struct CallPlan {
    load: Load,
    method: Method,
    hosts: Vec<Arc<str>>,
    seed: u64,
}

impl CallPlan {
    /// Makes the calls. Clients take turns in random order: in a fixed order, the same clients would always win
    /// against a fixed limit.
    async fn make(
        &self,
        service: &SimulatedService,
        clients: &[ClientWithMiddleware],
    ) -> Vec<Call> {
        let started = service.started();
        let mut chance = StdRng::seed_from_u64(self.seed);
        let mut turns: Vec<_> = (0..clients.len()).collect();
        let mut under_way = JoinSet::new();
        let mut calls = Vec::with_capacity(self.load.calls());
        for index in 0..self.load.calls() {
            let (round, turn) = (index / clients.len(), index % clients.len());
            if turn == 0 {
                turns.shuffle(&mut chance);
            }
            // The task of a call is spawned when the call starts.
            sleep_until(started + self.load.begin(index)).await;
            let client = turns[turn];
            let host = self.hosts[round % self.hosts.len()].clone();
            let request = self.request(&clients[client], &host, index);
            let request = request.header(CLIENT, client);
            under_way.spawn(async move {
                let begun = clock::now() - started;
                let result = send(request).await;
                let ended = clock::now() - started;
                Call {
                    client,
                    host,
                    begun,
                    ended,
                    result,
                }
            });
            while let Some(ended) = under_way.try_join_next() {
                calls.push(ended.unwrap_or_else(resume));
            }
        }
        let rest = timeout(FOR_EVER, async {
            while let Some(ended) = under_way.join_next().await {
                calls.push(ended.unwrap_or_else(resume));
            }
        });
        rest.await.expect("every call ends within a day");
        calls
    }

    fn request(&self, client: &ClientWithMiddleware, host: &str, index: usize) -> RequestBuilder {
        let request = client.request(self.method.clone(), format!("http://{host}/orders"));
        if self.method != Method::POST {
            return request;
        }
        let key = IdempotencyKey::new(format!("order-{index}")).expect("letters and digits");
        request.idempotency_key(key)
    }
}

/// Passes the panic of a middleware to the caller.
fn resume(error: tokio::task::JoinError) -> Call {
    std::panic::resume_unwind(error.into_panic())
}

async fn send(request: RequestBuilder) -> Result<u16, String> {
    let response = request.send().await.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    // A call ends when its caller has the whole response.
    response.bytes().await.map_err(|error| error.to_string())?;
    Ok(status)
}
