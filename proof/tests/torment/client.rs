//! Clients as a payment team builds them, and their calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware};
use reqwest_steady::{
    Backoff, Budget, IdempotencyKey, ReportSlot, RequestBuilderExt, RetryMiddleware,
    RetryMiddlewareBuilder,
};
use tokio::task::JoinSet;

use crate::faults::Weather;
use crate::ledger::{Receipt, body_of};
use crate::process::Addresses;

/// The number of concurrent calls.
pub(crate) const CONCURRENCY: u32 = 200;

const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(300);
/// A short time, so that the pool soon drops connections that the server has ended.
const IDLE_TIMEOUT: Duration = Duration::from_millis(100);
const HTTP1: &str = "http://one.payments.test/orders";
const HTTP2: &str = "http://two.payments.test/orders";
const TLS: &str = "https://tls.payments.test/orders";
const TUNNELLED: &str = "https://behind-proxy.payments.test/orders";
const PROXY: &str = "http://proxy.payments.test";

/// Builds a retry with enough time and budget for any series of faults.
pub(crate) fn persistent() -> RetryMiddlewareBuilder {
    let backoff = Backoff::exponential(Duration::from_millis(5)).cap(Duration::from_millis(50));
    RetryMiddleware::builder()
        .backoff(backoff)
        // Over TLS a connection carries fifty calls and often ends early, so some calls need more than sixty attempts.
        .max_retries(200)
        .attempt_timeout(ATTEMPT_TIMEOUT)
        .deadline(Duration::from_secs(120))
        .budget(Budget::unlimited())
}

/// Builds a retry with default settings and time limits.
pub(crate) fn usual() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder()
        .attempt_timeout(ATTEMPT_TIMEOUT)
        .deadline(Duration::from_secs(5))
}

/// The number of refused connections per thousand.
const REFUSED: u32 = 40;

/// Resolves the server's address, or at random an address that refuses connections.
///
/// The pool resolves the name whenever it opens a connection.
pub(crate) struct Names {
    addresses: Addresses,
    generator: Mutex<StdRng>,
    weather: Weather,
    refused: AtomicU64,
}

impl Names {
    pub(crate) fn new(addresses: Addresses, weather: Weather, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            addresses,
            generator: Mutex::new(StdRng::seed_from_u64(seed)),
            weather,
            refused: AtomicU64::new(0),
        })
    }

    /// The number of connections to the address that refuses them.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn find(&self, name: &str) -> SocketAddr {
        let roll = self.generator.lock().unwrap().random_range(0..1000);
        if self.weather == Weather::Foul && roll < REFUSED {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return self.addresses.refusing;
        }
        match name {
            "one.payments.test" => self.addresses.http1,
            "tls.payments.test" => self.addresses.balancer,
            "proxy.payments.test" => self.addresses.proxy,
            _ => self.addresses.http2,
        }
    }
}

struct Lookup(Arc<Names>);

impl Resolve for Lookup {
    fn resolve(&self, name: Name) -> Resolving {
        let address = self.0.find(name.as_str());
        Box::pin(async move { Ok(Box::new(std::iter::once(address)) as _) })
    }
}

/// A client and its URL.
pub(crate) struct Caller {
    url: &'static str,
    pub(crate) client: ClientWithMiddleware,
}

/// Builds four clients: HTTP/1.1, HTTP/2, HTTP/2 over TLS by ALPN, and HTTP/1.1 over TLS through a proxy.
///
/// They keep reqwest's own retries and redirects, as most users do.
pub(crate) fn callers(names: &Arc<Names>, stack: &[Arc<dyn Middleware>]) -> [Caller; 4] {
    callers_with(names, stack, Policy::default)
}

pub(crate) fn callers_with(
    names: &Arc<Names>,
    stack: &[Arc<dyn Middleware>],
    redirects: fn() -> Policy,
) -> [Caller; 4] {
    let inner = || {
        reqwest::Client::builder()
            .no_proxy()
            .redirect(redirects())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .dns_resolver(Lookup(names.clone()))
            // This test has no invalid certificates.
            .tls_danger_accept_invalid_certs(true)
    };
    let proxy = reqwest::Proxy::https(PROXY).unwrap();
    [
        (HTTP1, inner()),
        (HTTP2, inner().http2_prior_knowledge()),
        (TLS, inner()),
        (TUNNELLED, inner().http1_only().proxy(proxy)),
    ]
    .map(|(url, inner)| {
        let mut builder = ClientBuilder::new(inner.build().unwrap());
        for middleware in stack {
            builder = builder.with_arc(middleware.clone());
        }
        Caller {
            url,
            client: builder.build(),
        }
    })
}

/// What a call returned to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallResult {
    /// The payment is done, with this receipt.
    Done(u64),
    /// The receipt of another call.
    MixedUp,
    Status(u16),
    Error,
}

/// Calls, numbered from 0, and their results.
pub(crate) struct Calls {
    callers: Vec<Caller>,
    keyed: fn(u32) -> bool,
    results: Vec<OnceLock<CallResult>>,
    retries: AtomicU64,
    /// How unsuccessful calls ended, with counts.
    endings: Mutex<BTreeMap<String, u64>>,
}

impl Calls {
    pub(crate) fn new(count: u32, keyed: fn(u32) -> bool) -> Self {
        Self {
            callers: Vec::new(),
            keyed,
            results: (0..count).map(|_| OnceLock::new()).collect(),
            retries: AtomicU64::new(0),
            endings: Mutex::default(),
        }
    }

    pub(crate) fn set_callers(&mut self, callers: Vec<Caller>) {
        self.callers = callers;
    }

    /// Makes the calls of one round.
    pub(crate) async fn run(self: &Arc<Self>, round: std::ops::Range<u32>) {
        let next = Arc::new(AtomicU32::new(round.start));
        let mut workers = JoinSet::new();
        for _ in 0..CONCURRENCY {
            let (calls, next, end) = (self.clone(), next.clone(), round.end);
            workers.spawn(async move {
                loop {
                    let call = next.fetch_add(1, Ordering::Relaxed);
                    if call >= end {
                        return;
                    }
                    let result = calls.make(call).await;
                    calls.results[call as usize].set(result).unwrap();
                }
            });
        }
        while let Some(worker) = workers.join_next().await {
            worker.unwrap();
        }
    }

    async fn make(&self, call: u32) -> CallResult {
        let caller = &self.callers[call as usize % self.callers.len()];
        let slot = ReportSlot::new();
        let mut request = (caller.client.post(caller.url))
            .header("x-call", call)
            .body(body_of(call))
            .buffer_response(64 * 1024)
            .report_to(&slot);
        if (self.keyed)(call) {
            request = request.idempotency_key(IdempotencyKey::random());
        }
        let result = match request.send().await {
            Err(_) => CallResult::Error,
            Ok(response) if response.status() == 200 => {
                let body = response.text().await;
                let receipt = body.ok().and_then(|body| Receipt::from_text(&body));
                match receipt {
                    Some(receipt) if receipt.call == call => CallResult::Done(receipt.number),
                    _ => CallResult::MixedUp,
                }
            }
            Ok(response) => CallResult::Status(response.status().as_u16()),
        };
        let report = slot.get().unwrap();
        let retries = report.retries().into();
        self.retries.fetch_add(retries, Ordering::Relaxed);
        if !matches!(result, CallResult::Done(_)) {
            let last = report.attempts().last().unwrap().outcome();
            let ending = format!("{last}: {}", report.stop_reason());
            *self.endings.lock().unwrap().entry(ending).or_default() += 1;
        }
        result
    }

    pub(crate) fn count(&self) -> u32 {
        self.results.len() as u32
    }

    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn is_keyed(&self, call: u32) -> bool {
        (self.keyed)(call)
    }

    /// How unsuccessful calls ended, with counts.
    pub(crate) fn endings(&self) -> BTreeMap<String, u64> {
        self.endings.lock().unwrap().clone()
    }

    /// Returns every call and its result.
    pub(crate) fn results(&self) -> impl Iterator<Item = (u32, CallResult)> {
        let results = self.results.iter().map(|result| *result.get().unwrap());
        (0..).zip(results)
    }
}
