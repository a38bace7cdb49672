//! A service as data: its limit, faults and load, read from TOML.
//!
//! The simulated service and its clients behave as those of the scenarios. All values are checked when they are read,
//! and an error names the place, the value and what to write instead.
//!
//! ```
//! use lab::service::Service;
//!
//! let service = Service::from_toml(
//!     r#"
//!     name = "An API with a small limit"
//!     latency = "80ms"
//!     limit = { kind = "window", rate = "10/s", window = "1s", hint = "retry-after" }
//!     load = { kind = "at-once", calls = 100 }
//!     "#,
//! )
//! .unwrap();
//! assert_eq!(service.load.calls(), 100);
//!
//! let error = Service::from_toml("limit = { kind = \"window\", rate = \"ten\" }").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "limit.rate: invalid value \"ten\": write a rate with a unit, like \"10/s\", \"600/min\" or \"5000/h\"",
//! );
//! ```

mod check;
mod sentence;
mod text;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use http::StatusCode;
use reqwest::Request;
use reqwest_steady::testing::{
    Chance, Down, Load, Reply, Rule, SimulatedService, Simulation, Steps, Worker,
};
use serde::{Deserialize, Serialize};

use crate::limiter::{AnyLimit, Limiter};
use crate::random::{Hint, LimitKind, Noise};
pub use text::{Rate, Span};

/// The gateway in front of a service responds with 504 after this time, also during a stall.
const GATEWAY: Duration = Duration::from_secs(1);

/// Describes a service, and the calls to it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// How tables and pages call it.
    pub name: String,
    /// The time for the way to the service and back.
    pub latency: Span,
    /// Varies each round trip by a factor of `1 ± jitter`.
    pub jitter: f64,
    pub limit: ServiceLimit,
    pub faults: Faults,
    pub load: ServiceLoad,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            name: "your service".to_owned(),
            latency: Span(Duration::from_millis(20)),
            jitter: 0.0,
            limit: ServiceLimit::default(),
            faults: Faults::default(),
            load: ServiceLoad {
                rate: Some(Rate(50.0)),
                duration: Some(Span(Duration::from_secs(20))),
                ..ServiceLoad::default()
            },
        }
    }
}

/// What the service accepts. The kind says which of the other settings it needs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceLimit {
    pub kind: Kind,
    /// Accepted requests. All kinds but `none` and `concurrency` need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The width of a fixed window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Span>,
    /// How many requests a full bucket accepts at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<f64>,
    /// How many requests can be in work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// How long the work on one request takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Span>,
    /// The status of refusals. Default: 429.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What responses tell about the limit. Default: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<Hint>,
}

/// The kind of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Accepts everything.
    #[default]
    None,
    /// Fixed windows.
    Window,
    /// A token bucket.
    Bucket,
    /// A token bucket that holds few tokens, which spaces requests.
    Gcra,
    /// Requests in work at once.
    Concurrency,
    /// Refuses nothing, and works on one request after the other. A gateway responds with 504 after 1 s. If more than
    /// 10 s of work wait, the worker responds with 503.
    Worker,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Window => "window",
            Self::Bucket => "bucket",
            Self::Gcra => "gcra",
            Self::Concurrency => "concurrency",
            Self::Worker => "worker",
        })
    }
}

/// What else goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// This share of the accepted requests gets `error_status`.
    pub errors: f64,
    /// Default: 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_status: Option<u16>,
    /// This share of the accepted requests ends with a connection reset.
    pub resets: f64,
    /// When the service refuses everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage: Option<Outage>,
    /// When the service accepts requests but works on none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<Period>,
}

/// A time in which the service refuses everything.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    pub from: Span,
    pub to: Span,
    #[serde(default)]
    pub response: OutageResponse,
}

/// How a service that is down responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageResponse {
    Status(u16),
    /// It refuses connections.
    Refused,
}

impl Default for OutageResponse {
    fn default() -> Self {
        Self::Status(503)
    }
}

/// A time, counted from the start of the run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Period {
    pub from: Span,
    pub to: Span,
}

/// The calls to the service. The kind says which of the other settings it needs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceLoad {
    pub kind: LoadKind,
    /// Calls of all clients together, evenly spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How long calls start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Calls that start together, once or in each burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<usize>,
    /// The time between bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// The number of bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<usize>,
    /// Clients, each with middlewares that know nothing of the others.
    pub clients: usize,
    pub method: CallMethod,
}

/// Has no calls yet, so that a file has to name those of its kind.
impl Default for ServiceLoad {
    fn default() -> Self {
        Self {
            kind: LoadKind::Steady,
            rate: None,
            duration: None,
            calls: None,
            every: None,
            times: None,
            clients: 1,
            method: CallMethod::Get,
        }
    }
}

/// When calls start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadKind {
    #[default]
    Steady,
    AtOnce,
    Bursts,
}

impl fmt::Display for LoadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Steady => "steady",
            Self::AtOnce => "at-once",
            Self::Bursts => "bursts",
        })
    }
}

/// The method of the calls. A POST has an idempotency key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CallMethod {
    #[default]
    Get,
    Post,
}

/// An invalid description of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceError {
    /// The place in the file, such as `limit.rate`. Empty if the file is not TOML.
    pub path: String,
    /// What is wrong, and what to write.
    pub message: String,
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for ServiceError {}

impl Service {
    /// Reads a description.
    ///
    /// # Errors
    ///
    /// Returns an error that names the place, the value and what to write instead.
    pub fn from_toml(text: &str) -> Result<Self, ServiceError> {
        let service: Self = text::read(text)?;
        service.check()?;
        Ok(service)
    }

    /// Writes the description, as [`from_toml`](Self::from_toml) reads it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a service is tables of texts and numbers")
    }

    /// Prepares the calls.
    pub fn simulation(&self) -> Simulation {
        let mut service = SimulatedService::with_latency(self.latency.0).jitter(self.jitter);
        if let Some(outage) = &self.faults.outage {
            let during = outage.from.0..outage.to.0;
            service = service.rule(match outage.response {
                OutageResponse::Status(status) => Down::with_status(status, during),
                OutageResponse::Refused => Down::unreachable(during),
            });
        }
        let stall = self.stall();
        service = service.rule(Stalled {
            // The worker stalls by itself, because its queue grows meanwhile.
            stall: match self.limit.kind {
                Kind::Worker => Duration::ZERO..Duration::ZERO,
                _ => stall,
            },
            limiter: self.limiter(),
        });
        let simulation = Simulation::new(service, self.load.load()).clients(self.load.clients);
        match self.load.method {
            CallMethod::Get => simulation,
            CallMethod::Post => simulation.writes(),
        }
    }

    fn limiter(&self) -> Limiter {
        let limit = &self.limit;
        let capacity = self.capacity().unwrap_or_default();
        let by_kind = |kind| {
            let capacity_times = |factor: f64| Steps::from(factor * capacity);
            AnyLimit::new(kind, capacity_times, limit.status())
        };
        let burst = limit.burst.unwrap_or(1.0);
        let span = |span: Option<Span>| span.unwrap_or_default().0;
        let any = match limit.kind {
            Kind::None => AnyLimit::None,
            Kind::Window => by_kind(LimitKind::Windows(span(limit.window))),
            Kind::Bucket => by_kind(LimitKind::TokenBucket(burst)),
            Kind::Gcra => by_kind(LimitKind::Gcra(burst)),
            Kind::Concurrency => by_kind(LimitKind::Concurrency(span(limit.work))),
            Kind::Worker => AnyLimit::Worker(Worker::new(capacity, self.stall())),
        };
        let mut noise = Vec::new();
        if self.faults.errors > 0.0 {
            let status = self.faults.error_status.unwrap_or(503);
            noise.push(Noise::Status(status, self.faults.errors));
        }
        if self.faults.resets > 0.0 {
            noise.push(Noise::Resets(self.faults.resets));
        }
        Limiter::new(any, limit.hint.unwrap_or_default(), noise)
    }

    fn stall(&self) -> Range<Duration> {
        match &self.faults.stall {
            Some(stall) => stall.from.0..stall.to.0,
            None => Duration::ZERO..Duration::ZERO,
        }
    }

    /// Returns how many requests per second the service accepts when it is well.
    pub fn capacity(&self) -> Option<f64> {
        let limit = &self.limit;
        match limit.kind {
            Kind::None => None,
            Kind::Concurrency => {
                let work = limit.work.unwrap_or_default().0.as_secs_f64();
                Some(f64::from(limit.at_once.unwrap_or_default()) / work)
            }
            _ => limit.rate.map(|rate| rate.0),
        }
    }

    /// Returns when the service is in trouble, and what a legend calls that.
    pub fn troubles(&self) -> Vec<(Range<Duration>, &'static str)> {
        let outage = self.faults.outage.as_ref();
        let outage = outage.map(|outage| (outage.from.0..outage.to.0, "service down"));
        let stall = self.faults.stall.as_ref();
        let stall = stall.map(|stall| (stall.from.0..stall.to.0, "service stalled"));
        outage.into_iter().chain(stall).collect()
    }
}

impl ServiceLimit {
    fn status(&self) -> u16 {
        self.status.unwrap_or(429)
    }
}

impl ServiceLoad {
    /// Returns the number of calls.
    pub fn calls(&self) -> usize {
        self.load().calls()
    }

    fn load(&self) -> Load {
        let calls = self.calls.unwrap_or_default();
        match self.kind {
            LoadKind::Steady => Load::Rate(
                self.rate.unwrap_or_default().0,
                self.duration.unwrap_or_default().0,
            ),
            LoadKind::AtOnce => Load::AtOnce(calls),
            LoadKind::Bursts => Load::Beats {
                calls,
                every: self.every.unwrap_or_default().0,
                times: self.times.unwrap_or_default(),
            },
        }
    }
}

/// Delays responses to the end of a stall, or until the gateway gives up.
struct Stalled {
    stall: Range<Duration>,
    limiter: Limiter,
}

impl Rule for Stalled {
    fn decide(&mut self, request: &Request, at: Duration, chance: &mut Chance) -> Option<Reply> {
        if !self.stall.contains(&at) {
            return self.limiter.decide(request, at, chance);
        }
        let wait = self.stall.end - at;
        if wait > GATEWAY {
            let status = StatusCode::GATEWAY_TIMEOUT.as_u16();
            return Some(Reply::status(status).after(GATEWAY));
        }
        let reply = self.limiter.decide(request, at, chance);
        reply.map(|reply| reply.after(wait))
    }
}
