//! A service without a socket, with a latency and rules, which records all requests.
//!
//! It is the last middleware of a client.

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
use super::reply::{Reply, ReplyKind};
use super::rules::{Chance, Rule};
use super::timeout::{end_of, until};
use super::{client_of, host_name};
use crate::clock;

/// The header that identifies a client of a simulation.
pub(super) const CLIENT: HeaderName = HeaderName::from_static("x-client");

/// Builds a [`SimulatedService`].
#[must_use]
pub struct SimulatedServiceBuilder {
    latency: Duration,
    jitter: f64,
    seed: u64,
    rules: Vec<(Option<String>, Box<dyn Rule>)>,
}

impl SimulatedServiceBuilder {
    /// Varies the latency of each round trip by a factor of `1 ± share`.
    ///
    /// # Panics
    ///
    /// Panics if the share is not from 0 to 1.
    pub fn jitter(mut self, share: f64) -> Self {
        super::rules::assert_share(share);
        self.jitter = share;
        self
    }

    /// Sets the seed of the random numbers. A [`Simulation`](super::Simulation) sets it to its own seed.
    ///
    /// Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Adds a rule after all rules so far.
    pub fn rule(mut self, rule: impl Rule) -> Self {
        self.rules.push((None, Box::new(rule)));
        self
    }

    /// Adds a rule that applies only to requests to this host.
    ///
    /// # Panics
    ///
    /// Panics if this is not the name of a host.
    pub fn host_rule(mut self, host: &str, rule: impl Rule) -> Self {
        self.rules.push((Some(host_name(host)), Box::new(rule)));
        self
    }

    /// Starts the service. Its time starts now.
    pub fn start(self) -> Arc<SimulatedService> {
        let mut seeds = StdRng::seed_from_u64(self.seed);
        let road = StdRng::seed_from_u64(seeds.random());
        let chance = Chance::new(seeds.random());
        Arc::new(SimulatedService {
            latency: self.latency,
            jitter: self.jitter,
            started: clock::now(),
            road: Mutex::new(road),
            inside: Mutex::new(ServiceState {
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

struct ServiceState {
    chance: Chance,
    rules: Vec<(Option<String>, Box<dyn Rule>)>,
    arrivals: Arrivals,
}

/// Responds by rules and after a latency, without a socket.
///
/// Any number of clients can share it. A [`Simulation`](super::Simulation) creates the clients and their calls. Under
/// tokio's paused clock, time advances in whole milliseconds, because tokio's timers do.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::RetryMiddleware;
/// use reqwest_steady::testing::{Down, SimulatedService};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let down = Down::with_status(503, Duration::ZERO..Duration::from_millis(300));
/// let service = SimulatedService::with_latency(Duration::from_millis(20)).rule(down).start();
/// let client = service.client(RetryMiddleware::default());
/// let response = client.get("https://api.example.com/").send().await?;
/// assert_eq!(response.status(), 200);
/// assert_eq!(service.arrivals().successes(), 1);
/// # Ok(()) }
/// ```
pub struct SimulatedService {
    latency: Duration,
    jitter: f64,
    started: Instant,
    road: Mutex<StdRng>,
    inside: Mutex<ServiceState>,
}

impl SimulatedService {
    /// Starts to build a service with this round-trip latency. Without rules it accepts all requests.
    ///
    /// A request takes half of `latency`, and its response the other half.
    pub fn with_latency(latency: Duration) -> SimulatedServiceBuilder {
        SimulatedServiceBuilder {
            latency,
            jitter: 0.0,
            seed: 0,
            rules: Vec::new(),
        }
    }

    /// Builds a client with one middleware before this service.
    pub fn client(self: &Arc<Self>, middleware: impl Middleware) -> ClientWithMiddleware {
        self.client_behind([Arc::new(middleware) as Arc<dyn Middleware>])
    }

    /// Builds a client with these middlewares before this service, the outermost first.
    pub fn client_behind(
        self: &Arc<Self>,
        middlewares: impl IntoIterator<Item = Arc<dyn Middleware>>,
    ) -> ClientWithMiddleware {
        client_of(middlewares, self.clone())
    }

    /// Returns the round-trip latency.
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// Returns the time when the service started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns all requests so far.
    pub fn arrivals(&self) -> Arrivals {
        self.state().arrivals.clone()
    }

    pub(super) fn take_arrivals(&self) -> Arrivals {
        std::mem::take(&mut self.state().arrivals)
    }

    fn state(&self) -> MutexGuard<'_, ServiceState> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the latency of one round trip, with jitter.
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
        let mut inside = self.state();
        // The time is read under the lock, so that rules never see it decrease.
        let at = clock::now().saturating_duration_since(self.started);
        let ServiceState {
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
            status: match &reply.kind {
                ReplyKind::Respond(response) => Some(response.status().as_u16()),
                ReplyKind::Fail(_) | ReplyKind::Silence => None,
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
            .field("arrivals", &self.state().arrivals.count())
            .finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Middleware for SimulatedService {
    /// All work is in this future. A caller that drops it leaves nothing running.
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let sent = clock::now();
        let end = end_of(&request);
        let trip = self.trip();
        let delivered = async {
            // Both ways count from here, because tokio rounds each sleep up to a millisecond.
            sleep_until(clock::after(sent, trip / 2)).await;
            let reply = self.decide(&request);
            sleep_until(clock::after(sent, trip.saturating_add(reply.after))).await;
            reply.deliver(&request, end).await
        };
        until(end, &request, delivered).await
    }
}
