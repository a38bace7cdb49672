//! A service without a socket: a last middleware that is some way off, takes as much as its rules let
//! it, and remembers what arrived.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Extensions, HeaderName};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientWithMiddleware, Middleware, Next, Result};
use tokio::time::{Instant, sleep_until};

use super::arrivals::{Arrival, Arrivals};
use super::reply::{Reply, What};
use super::rules::{Chance, Rule};
use super::timeout::{end_of, until};
use super::{client_of, host_name};
use crate::clock;

/// The header that tells one client of a simulation from another.
pub(super) const CLIENT: HeaderName = HeaderName::from_static("x-client");

/// What a [`SimulatedService`] is built from.
#[must_use]
pub struct SimulatedServiceBuilder {
    latency: Duration,
    jitter: f64,
    seed: u64,
    rules: Vec<(Option<String>, Box<dyn Rule>)>,
}

impl SimulatedServiceBuilder {
    /// Each way there and back takes the latency times `1 ± share`.
    ///
    /// # Panics
    ///
    /// If the share is not from 0 to 1.
    pub fn jitter(mut self, share: f64) -> Self {
        super::rules::assert_share(share);
        self.jitter = share;
        self
    }

    /// What chances are drawn from, which is 0 by default. A [`Simulation`](super::Simulation) sets it
    /// to its own.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Adds a rule, behind all rules so far.
    pub fn rule(mut self, rule: impl Rule) -> Self {
        self.rules.push((None, Box::new(rule)));
        self
    }

    /// Adds a rule only for requests to this host.
    ///
    /// # Panics
    ///
    /// If it is not the name of a host.
    pub fn host_rule(mut self, host: &str, rule: impl Rule) -> Self {
        self.rules.push((Some(host_name(host)), Box::new(rule)));
        self
    }

    /// The service's time begins now.
    pub fn start(self) -> Arc<SimulatedService> {
        let mut seeds = StdRng::seed_from_u64(self.seed);
        let road = StdRng::seed_from_u64(seeds.random());
        let chance = Chance::new(seeds.random());
        Arc::new(SimulatedService {
            latency: self.latency,
            jitter: self.jitter,
            started: clock::now(),
            road: Mutex::new(road),
            inside: Mutex::new(Inside {
                chance,
                rules: self.rules,
                arrivals: Arrivals::default(),
            }),
        })
    }
}

impl fmt::Debug for SimulatedServiceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedServiceBuilder")
            .field("latency", &self.latency)
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}

struct Inside {
    chance: Chance,
    rules: Vec<(Option<String>, Box<dyn Rule>)>,
    arrivals: Arrivals,
}

/// A service without a socket, which is some way off and takes as much as its rules let it.
///
/// Under tokio's paused clock its time goes in whole milliseconds, as tokio's timers do. It can be shared by as many
/// clients as you like; a [`Simulation`](super::Simulation) makes them, and their calls, by itself.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::RetryMiddleware;
/// use reqwest_steady::testing::{Down, SimulatedService};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let down = Down::answering(503, Duration::ZERO..Duration::from_millis(300));
/// let service = SimulatedService::away(Duration::from_millis(20)).rule(down).start();
/// let client = service.client(RetryMiddleware::default());
/// let answer = client.get("https://api.example.com/").send().await?;
/// assert_eq!(answer.status(), 200);
/// assert_eq!(service.arrivals().successes(), 1);
/// # Ok(()) }
/// ```
pub struct SimulatedService {
    latency: Duration,
    jitter: f64,
    started: Instant,
    road: Mutex<StdRng>,
    inside: Mutex<Inside>,
}

impl SimulatedService {
    /// One that takes everything, until it is given rules. A request takes half of `latency` to get
    /// there, and its answer the other half to get back.
    pub fn away(latency: Duration) -> SimulatedServiceBuilder {
        SimulatedServiceBuilder {
            latency,
            jitter: 0.0,
            seed: 0,
            rules: Vec::new(),
        }
    }

    /// A client with one middleware before this service.
    pub fn client(self: &Arc<Self>, middleware: impl Middleware) -> ClientWithMiddleware {
        self.client_behind([Arc::new(middleware) as Arc<dyn Middleware>])
    }

    /// A client with these middlewares before this service, the outermost first.
    pub fn client_behind(
        self: &Arc<Self>,
        middlewares: impl IntoIterator<Item = Arc<dyn Middleware>>,
    ) -> ClientWithMiddleware {
        client_of(middlewares, self.clone())
    }

    /// The way there and back.
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// When its time began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// All requests so far.
    pub fn arrivals(&self) -> Arrivals {
        self.inside().arrivals.clone()
    }

    pub(super) fn take_arrivals(&self) -> Arrivals {
        std::mem::take(&mut self.inside().arrivals)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There and back.
    fn trip(&self) -> Duration {
        if self.jitter == 0.0 {
            return self.latency;
        }
        let mut road = self.road.lock().unwrap_or_else(PoisonError::into_inner);
        let deviation = road.random_range(-1.0..=1.0);
        let seconds = self.latency.as_secs_f64() * (1.0 + self.jitter * deviation);
        Duration::try_from_secs_f64(seconds).unwrap_or(self.latency)
    }

    fn decide(&self, request: &Request) -> Reply {
        let host = request.url().host_str().unwrap_or_default();
        let mut inside = self.inside();
        // Under the lock, so that no other thread gets here with an earlier time.
        let at = clock::now().saturating_duration_since(self.started);
        let Inside {
            chance,
            rules,
            arrivals,
        } = &mut *inside;
        let mut reply = None;
        let mut hints = Vec::new();
        for (only, rule) in rules {
            if only.as_ref().is_some_and(|only| only != host) {
                continue;
            }
            reply = rule.decide(request, at, chance);
            hints.extend(rule.hints(at));
            if reply.is_some() {
                break;
            }
        }
        let reply = reply.unwrap_or_else(|| Reply::status(200));
        let reply = hints
            .into_iter()
            .fold(reply, |reply, (name, value)| reply.header(name, &value));
        let client = request.headers().get(CLIENT);
        arrivals.0.push(Arrival {
            at,
            status: match &reply.what {
                What::Answer(response) => Some(response.status().as_u16()),
                What::Fail(_) | What::Silence => None,
            },
            host: host.to_owned(),
            client: client.and_then(|index| index.to_str().ok()?.parse().ok()),
            took: reply.after,
        });
        reply
    }
}

impl fmt::Debug for SimulatedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedService")
            .field("latency", &self.latency)
            .field("arrivals", &self.inside().arrivals.count())
            .finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Middleware for SimulatedService {
    /// All that is under way is in this future: a caller that drops it leaves nothing behind.
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let sent = clock::now();
        let end = end_of(&request);
        let trip = self.trip();
        let delivered = async {
            // Two sleeps of half a millisecond would be two milliseconds, so both count from here.
            sleep_until(clock::after(sent, trip / 2)).await;
            let reply = self.decide(&request);
            sleep_until(clock::after(sent, trip.saturating_add(reply.after))).await;
            reply.deliver(&request, end).await
        };
        until(end, &request, delivered).await
    }
}
