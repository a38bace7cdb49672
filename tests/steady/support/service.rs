//! A service without a socket: a last middleware that is some way off, takes as much as its rules
//! let it, and remembers what arrived.
//!
//! It runs on tokio's paused clock, whose timers count whole milliseconds.

#![allow(
    dead_code,
    reason = "shared by tests and benches, and neither needs all of it"
)]

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Extensions;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::{Body, Request, Response, ResponseBuilderExt};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tokio::time::{Instant, sleep_until};

use super::rules::{Rule, Verdict};

/// The header that tells one client from another.
pub(crate) const CLIENT: &str = "x-client";

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Since the service started.
    pub(crate) at: Duration,
    /// `None` if the connection failed.
    pub(crate) status: Option<u16>,
    pub(crate) host: String,
    pub(crate) client: String,
    /// From here to the answer, without the way back.
    pub(crate) took: Duration,
}

impl Arrival {
    pub(crate) fn succeeded(&self) -> bool {
        matches!(self.status, Some(200..=299))
    }
}

/// All requests, in the order in which they arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals(pub(crate) Vec<Arrival>);

impl Arrivals {
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn successes(&self) -> usize {
        self.0.iter().filter(|arrival| arrival.succeeded()).count()
    }

    /// Those that arrived within this time.
    pub(crate) fn during(&self, time: Range<Duration>) -> Self {
        let inside = self.0.iter().filter(|arrival| time.contains(&arrival.at));
        Self(inside.cloned().collect())
    }

    /// The most that arrived within any `width`, wherever it begins.
    pub(crate) fn peak(&self, width: Duration) -> usize {
        let mut first = 0;
        let mut peak = 0;
        for (last, arrival) in self.0.iter().enumerate() {
            while arrival.at - self.0[first].at >= width {
                first += 1;
            }
            peak = peak.max(last - first + 1);
        }
        peak
    }

    /// How many arrived in each `width`, counted from the start of the service.
    pub(crate) fn by(&self, width: Duration) -> Vec<usize> {
        let mut counts = Vec::new();
        for arrival in &self.0 {
            let index = (arrival.at.as_nanos() / width.as_nanos()) as usize;
            counts.resize(counts.len().max(index + 1), 0);
            counts[index] += 1;
        }
        counts
    }
}

pub(crate) struct ServiceBuilder {
    latency: Duration,
    jitter: f64,
    seed: u64,
    rules: Vec<(Option<&'static str>, Box<dyn Rule>)>,
}

impl ServiceBuilder {
    /// Each way there and back takes `latency` times `1 ± share`.
    pub(crate) fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Behind all rules so far.
    pub(crate) fn rule(mut self, rule: impl Rule) -> Self {
        self.rules.push((None, Box::new(rule)));
        self
    }

    /// Only for requests to this host.
    pub(crate) fn host_rule(mut self, host: &'static str, rule: impl Rule) -> Self {
        self.rules.push((Some(host), Box::new(rule)));
        self
    }

    /// The service's time begins now.
    pub(crate) fn start(self) -> Arc<Service> {
        let mut seeds = StdRng::seed_from_u64(self.seed);
        let road = StdRng::seed_from_u64(seeds.random());
        let chance = StdRng::seed_from_u64(seeds.random());
        Arc::new(Service {
            latency: self.latency,
            jitter: self.jitter,
            started: Instant::now(),
            road: Mutex::new(road),
            inside: Mutex::new(Inside {
                chance,
                rules: self.rules,
                arrivals: Arrivals::default(),
            }),
        })
    }
}

struct Inside {
    chance: StdRng,
    rules: Vec<(Option<&'static str>, Box<dyn Rule>)>,
    arrivals: Arrivals,
}

pub(crate) struct Service {
    latency: Duration,
    jitter: f64,
    started: Instant,
    road: Mutex<StdRng>,
    inside: Mutex<Inside>,
}

impl Service {
    /// One that takes everything, until it is given rules. A request takes half of `latency` to get
    /// there, and its answer the other half to get back.
    pub(crate) fn away(latency: Duration) -> ServiceBuilder {
        ServiceBuilder {
            latency,
            jitter: 0.0,
            seed: 0,
            rules: Vec::new(),
        }
    }

    pub(crate) fn latency(&self) -> Duration {
        self.latency
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn arrivals(&self) -> Arrivals {
        self.inside.lock().unwrap().arrivals.clone()
    }

    /// There and back.
    fn trip(&self) -> Duration {
        if self.jitter == 0.0 {
            return self.latency;
        }
        let deviation = self.road.lock().unwrap().random_range(-1.0..=1.0);
        self.latency.mul_f64(1.0 + self.jitter * deviation)
    }

    fn decide(&self, request: &Request) -> Verdict {
        let at = self.started.elapsed();
        let host = request.url().host_str().unwrap_or_default();
        let client = request.headers().get(CLIENT);
        let mut inside = self.inside.lock().unwrap();
        let Inside {
            chance,
            rules,
            arrivals,
        } = &mut *inside;
        let mut verdict = None;
        let mut hints = Vec::new();
        for (only, rule) in rules {
            if only.is_some_and(|only| only != host) {
                continue;
            }
            verdict = rule.decide(at, chance);
            hints.extend(rule.hints(at));
            if verdict.is_some() {
                break;
            }
        }
        let mut verdict = verdict.unwrap_or_else(|| Verdict::at_once(200));
        let mut status = None;
        let mut took = Duration::ZERO;
        if let Verdict::Answer(code, headers, after) = &mut verdict {
            status = Some(*code);
            took = *after;
            headers.extend(hints);
        }
        arrivals.0.push(Arrival {
            at,
            status,
            took,
            host: host.to_owned(),
            client: client.map_or_else(String::new, |tag| tag.to_str().unwrap().to_owned()),
        });
        verdict
    }
}

#[async_trait::async_trait]
impl Middleware for Service {
    /// All that is under way is in this future: a caller that drops it leaves nothing behind.
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let sent = Instant::now();
        let trip = self.trip();
        // Two sleeps of half a millisecond would be two milliseconds, so both count from here.
        sleep_until(sent + trip / 2).await;
        match self.decide(&request) {
            Verdict::Answer(status, headers, after) => {
                sleep_until(sent + trip + after).await;
                let mut response = http::Response::builder().status(status);
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                let response = response.url(request.url().clone());
                Ok(response.body(Body::from("")).unwrap().into())
            }
            Verdict::Fail(kind) => {
                sleep_until(sent + trip).await;
                Err(Error::Middleware(io::Error::from(kind).into()))
            }
        }
    }
}
