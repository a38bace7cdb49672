//! Calls against a simulated service, and what came of them.
//!
//! Everything runs on one thread in virtual time, and all chance comes from one seed. What
//! reqwest-retry draws is the exception: it cannot be seeded.

#![allow(
    dead_code,
    reason = "shared by tests and benches, and neither needs all of it"
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use reqwest::Method;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, RequestBuilder};
use reqwest_retry::policies::ExponentialBackoff;
use reqwest_retry::{Jitter, RetryTransientMiddleware};
use reqwest_steady::{IdempotencyKey, RequestBuilderExt, RetryMiddleware};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::rules::Steps;
use super::service::{Arrivals, CLIENT, Service, ServiceBuilder};

/// Nothing is ever sent with it, but reqwest-middleware wants one.
static UNUSED: LazyLock<reqwest::Client> = LazyLock::new(reqwest::Client::new);

pub(crate) const HOST: &str = "api.example.com";

/// No call takes so long. It keeps a world whose calls wait for each other from hanging.
const FOR_EVER: Duration = Duration::from_secs(24 * 60 * 60);

/// What a client has before the service, outermost first. It is given a seed of its own.
pub(crate) type Stack = dyn Fn(u64) -> Vec<Arc<dyn Middleware>>;

pub(crate) fn no_retry(_seed: u64) -> Vec<Arc<dyn Middleware>> {
    Vec::new()
}

/// 5 retries, after up to 100 ms, 200 ms, and so on.
pub(crate) fn reqwest_retry(_seed: u64) -> Vec<Arc<dyn Middleware>> {
    let policy = ExponentialBackoff::builder()
        .retry_bounds(Duration::from_millis(100), Duration::from_secs(10))
        .jitter(Jitter::Full)
        .build_with_max_retries(5);
    vec![Arc::new(RetryTransientMiddleware::new_with_policy(policy))]
}

/// As it comes.
pub(crate) fn steady_retry(seed: u64) -> Vec<Arc<dyn Middleware>> {
    vec![Arc::new(
        RetryMiddleware::builder().seed(seed).build().unwrap(),
    )]
}

pub(crate) fn client(
    stack: Vec<Arc<dyn Middleware>>,
    service: Arc<Service>,
) -> ClientWithMiddleware {
    let builder = ClientBuilder::new(UNUSED.clone());
    let builder = stack.into_iter().fold(builder, ClientBuilder::with_arc);
    builder.with_arc(service).build()
}

/// When calls begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    AtOnce(usize),
    /// Evenly, so many a second for so long.
    Rate(f64, Duration),
}

impl Load {
    fn calls(self) -> usize {
        match self {
            Self::AtOnce(calls) => calls,
            Self::Rate(rate, lasting) => (rate * lasting.as_secs_f64()).round() as usize,
        }
    }

    fn begin(self, index: usize) -> Duration {
        match self {
            Self::AtOnce(_) => Duration::ZERO,
            Self::Rate(rate, _) => Duration::from_secs_f64(index as f64 / rate),
        }
    }
}

/// What is asked of a service.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    load: Load,
    method: Method,
    hosts: Vec<&'static str>,
    seed: u64,
}

impl Calls {
    /// GET, to one host.
    pub(crate) fn new(load: Load) -> Self {
        Self {
            load,
            method: Method::GET,
            hosts: vec![HOST],
            seed: 0,
        }
    }

    /// Sends them, until the last has ended. The clock has to be paused.
    ///
    /// Clients take turns, but not always in the same order: on an even limit the same of them would
    /// win every time, by nothing but their place.
    pub(crate) async fn run(
        self,
        service: Arc<Service>,
        clients: &[ClientWithMiddleware],
    ) -> Outcome {
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
            // A task for each call, but only once it begins.
            sleep_until(started + self.load.begin(index)).await;
            let client = turns[turn];
            let host = self.hosts[round % self.hosts.len()];
            let request = self.request(&clients[client], host, index);
            let request = request.header(CLIENT, client);
            under_way.spawn(async move {
                let begun = started.elapsed();
                let result = answer(request).await;
                Call {
                    client,
                    host,
                    begun,
                    ended: started.elapsed(),
                    result,
                }
            });
            while let Some(ended) = under_way.try_join_next() {
                calls.push(ended.unwrap());
            }
        }
        let rest = timeout(FOR_EVER, under_way.join_all()).await;
        calls.extend(rest.expect("every call ends"));
        Outcome {
            latency: service.latency(),
            calls,
            clients: clients.len(),
            arrivals: service.arrivals(),
        }
    }

    fn request(&self, client: &ClientWithMiddleware, host: &str, index: usize) -> RequestBuilder {
        let request = client.request(self.method.clone(), format!("http://{host}/orders"));
        if self.method != Method::POST {
            return request;
        }
        let key = IdempotencyKey::new(format!("order-{index}")).unwrap();
        request.idempotency_key(key)
    }
}

async fn answer(request: RequestBuilder) -> Result<u16, String> {
    let answer = request.send().await.map_err(|error| error.to_string())?;
    let status = answer.status().as_u16();
    // A call ends when its caller has all of the answer.
    answer.bytes().await.map_err(|error| error.to_string())?;
    Ok(status)
}

/// A service, and what is asked of it.
pub(crate) struct World {
    service: ServiceBuilder,
    clients: usize,
    calls: Calls,
}

impl World {
    /// One client, GET, one host.
    pub(crate) fn new(service: ServiceBuilder, load: Load) -> Self {
        let (clients, calls) = (1, Calls::new(load));
        Self {
            service,
            clients,
            calls,
        }
    }

    /// POST with an idempotency key.
    pub(crate) fn writes(mut self) -> Self {
        self.calls.method = Method::POST;
        self
    }

    /// Calls take turns among so many clients, each with a stack of its own.
    pub(crate) fn clients(mut self, clients: usize) -> Self {
        self.clients = clients;
        self
    }

    /// The calls of each client take turns among the hosts.
    pub(crate) fn hosts(mut self, hosts: &[&'static str]) -> Self {
        self.calls.hosts = hosts.to_vec();
        self
    }

    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.calls.seed = seed;
        self
    }

    /// Until the last call has ended, in a runtime of its own.
    pub(crate) fn run(self, stack: &Stack) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let seed = self.calls.seed;
            let service = self.service.seed(seed).start();
            let clients: Vec<_> = (0..self.clients as u64)
                .map(|index| seed.wrapping_mul(1000).wrapping_add(index))
                .map(|seed| client(stack(seed), service.clone()))
                .collect();
            self.calls.run(service, &clients).await
        })
    }
}

/// One call as its caller saw it. Times count from the start of the service.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) client: usize,
    pub(crate) host: &'static str,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
    /// The status of the answer, or what the error said.
    pub(crate) result: Result<u16, String>,
}

impl Call {
    pub(crate) fn succeeded(&self) -> bool {
        matches!(self.result, Ok(200..=299))
    }
}

/// What came of all calls.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    latency: Duration,
    pub(crate) calls: Vec<Call>,
    clients: usize,
    pub(crate) arrivals: Arrivals,
}

impl Outcome {
    /// Only what has to do with this host.
    pub(crate) fn of_host(mut self, host: &str) -> Self {
        self.calls.retain(|call| call.host == host);
        self.arrivals.0.retain(|arrival| arrival.host == host);
        self
    }

    /// The way to the service and back.
    pub(crate) fn latency(&self) -> Duration {
        self.latency
    }

    fn successes(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.succeeded())
    }

    pub(crate) fn succeeded(&self) -> usize {
        self.successes().count()
    }

    /// Of all calls, the share that succeeded.
    pub(crate) fn share(&self) -> f64 {
        self.succeeded() as f64 / self.calls.len() as f64
    }

    pub(crate) fn requests(&self) -> usize {
        self.arrivals.count()
    }

    pub(crate) fn requests_per_call(&self) -> f64 {
        self.requests() as f64 / self.calls.len() as f64
    }

    /// Infinite if nothing succeeded.
    pub(crate) fn requests_per_success(&self) -> f64 {
        self.requests() as f64 / self.succeeded() as f64
    }

    /// When the last call that succeeded did so.
    pub(crate) fn last_success(&self) -> Duration {
        let ends = self.successes().map(|call| call.ended);
        ends.max().unwrap_or_default()
    }

    /// How long calls took beyond the way to the service and back: of those that began from a time
    /// on and succeeded, the share `rank` took no longer than this. 0.5 is the median.
    pub(crate) fn added_latency(&self, rank: f64, from: Duration) -> Duration {
        let calls = self.successes().filter(|call| call.begun >= from);
        let mut added: Vec<_> = calls
            .map(|call| (call.ended - call.begun).saturating_sub(self.latency))
            .collect();
        added.sort_unstable();
        let nearest = (rank * added.len() as f64).ceil() as usize;
        let found = added.get(nearest.saturating_sub(1));
        found.copied().unwrap_or_default()
    }

    /// How many calls succeeded in each second, by when they ended.
    pub(crate) fn successes_by_second(&self) -> Vec<usize> {
        let mut counts = Vec::new();
        for call in self.successes() {
            let second = call.ended.as_secs() as usize;
            counts.resize(counts.len().max(second + 1), 0);
            counts[second] += 1;
        }
        counts
    }

    /// How many calls succeeded by ending within this time.
    pub(crate) fn successes_during(&self, time: Range<Duration>) -> usize {
        let inside = self.successes().filter(|call| time.contains(&call.ended));
        inside.count()
    }

    /// What the service took within this time, of what it could take.
    pub(crate) fn use_of(&self, capacity: &Steps, time: Range<Duration>) -> f64 {
        let taken = self.arrivals.during(time.clone()).successes();
        taken as f64 / capacity.sum(time)
    }

    pub(crate) fn successes_by_client(&self) -> Vec<usize> {
        let mut counts = vec![0; self.clients];
        for call in self.successes() {
            counts[call.client] += 1;
        }
        counts
    }

    /// Between clients, by how many of their calls succeeded.
    pub(crate) fn fairness(&self) -> f64 {
        fairness(&self.successes_by_client())
    }

    /// How often calls failed in each way: by the status of the answer, or by what the error said.
    pub(crate) fn failures(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in self.calls.iter().filter(|call| !call.succeeded()) {
            let way = match &call.result {
                Ok(status) => status.to_string(),
                Err(text) => text.clone(),
            };
            *counts.entry(way).or_default() += 1;
        }
        counts
    }
}

/// Jain's index: 1 if all have the same, and 1/n if one of n has it all.
pub(crate) fn fairness(shares: &[usize]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}
