//! Calls against a simulated service.
//!
//! Everything runs on one thread in virtual time, and all chance comes from one seed. What
//! reqwest-retry draws is the exception: it cannot be seeded.

#![allow(
    dead_code,
    reason = "shared by tests and benches, and neither needs all of it"
)]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use reqwest::Method;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, RequestBuilder};
use reqwest_retry::policies::ExponentialBackoff;
use reqwest_retry::{Jitter, RetryTransientMiddleware};
use reqwest_steady::{IdempotencyKey, RequestBuilderExt, RetryMiddleware, ThrottleMiddleware};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::outcome::{Call, Outcome};
use super::service::{CLIENT, Service, ServiceBuilder};

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

/// Both, as they come.
pub(crate) fn steady_throttle(seed: u64) -> Vec<Arc<dyn Middleware>> {
    let throttle = ThrottleMiddleware::builder().seed(seed).build().unwrap();
    let mut stack = steady_retry(seed);
    stack.push(Arc::new(throttle));
    stack
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
