//! The throttle middleware: learns the rate that each server accepts, and keeps to it.
//!
//! A request goes to the gate of its key ([`key`]). The gate ([`gate`]) admits it, queues it ([`queue`]) or
//! refuses it. Its response becomes a signal ([`signal`]), from which the controller of the gate
//! ([`controller`]) learns. `docs/decisions/throttle.md` explains why it works as it does.

mod builder;
mod config;
mod controller;
mod gate;
mod gate_views;
mod key;
mod meter;
mod queue;
mod read_back;
mod replace;
mod signal;
mod token_bucket;

use std::sync::Arc;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::Result;

pub use builder::ThrottleMiddlewareBuilder;
use config::{ThrottleConfig, ThrottleParts};
use gate::{Gate, GateRequest};
pub use key::KeyBy;
use signal::SignalKind;

use crate::config::{ConfigError, Current, Timers};
use crate::entropy::Entropy;
use crate::handoff::Pacing;
use crate::host::BoundedTable;
use crate::log::{THROTTLE_OUTSIDE_RETRY, WarnOnce};
use crate::outcome::{RetryReport, SteadyError};
use crate::settings::ThrottleSettings;
use crate::upstream::Upstream;

/// Learns the rate limit of each server, and queues requests that exceed it.
///
/// This is an adaptive rate limiter with backpressure and a circuit breaker. The page
/// [admit](crate::guide::admit) of the guide explains how to use it.
///
/// Put it **after** the [`RetryMiddleware`](crate::RetryMiddleware), so that every attempt passes through it:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = wiremock::MockServer::start().await;
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::{RetryMiddleware, ThrottleMiddleware};
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::default())
///     .with(ThrottleMiddleware::default())
///     .build();
/// client.get(server.uri()).send().await?;
/// # Ok(()) }
/// ```
///
/// Each host has its own gate, or each key if you set [`KeyBy`]. No gate delays requests of another.
///
/// - **At first** 16 requests go at once, and more while the server keeps up. A server that never refuses is
///   not slowed: its gate opens within a few round trips.
/// - **A refusal** (429, or many 5xx in a row) closes the gate for a moment. Then one request goes as a
///   probe. If it succeeds, the others follow at the rate that the server accepted before, and the rate
///   rises again step by step.
/// - **A pause** that the server asks for, by `Retry-After` or a quota that is used up, holds for all
///   requests. After at most one hour a probe goes. A quota whose reset is 1 or 2 whole seconds away
///   delays only the refused call, because rounded seconds may mean any moment.
/// - **A server that is down** gets one request at a time. The pauses between them grow to 30 s. This is a
///   circuit breaker that closes without help: there is nothing to tune or to reset.
/// - **A slow server** gets fewer requests at once.
///
/// [`Steady::state`](crate::Steady::state) shows each circuit breaker, learned limit and queue as it is now.
///
/// Requests wait in order, retries first, and never past the deadline of their call. A request that cannot
/// go in time fails with a [`SteadyError`](crate::SteadyError). A retry after a 429 costs nothing from the retry
/// [`Budget`](crate::Budget): it waits as long as the server asks and then in the queue, without a backoff.
///
/// If endpoints of one host differ much in limits or latency, separate them with [`KeyBy::HostAndPath`].
///
/// Clones share their gates. A request takes up a slot until its response headers arrive.
///
/// It needs a tokio runtime with timers, like
/// [`RetryMiddleware`](crate::RetryMiddleware#what-it-needs).
#[derive(Clone)]
pub struct ThrottleMiddleware {
    throttle: Arc<Throttle>,
}

/// What all clones share.
struct Throttle {
    config: Current<ThrottleConfig>,
    parts: ThrottleParts,
    entropy: Arc<Entropy>,
    gates: BoundedTable<Arc<Gate>>,
    timers: Timers,
    order_warning: WarnOnce,
}

impl Default for ThrottleMiddleware {
    fn default() -> Self {
        // A test builds it.
        Self::new(ThrottleSettings::default(), ThrottleParts::default()).expect("valid defaults")
    }
}

impl ThrottleMiddleware {
    /// Returns a builder with the default settings.
    pub fn builder() -> ThrottleMiddlewareBuilder {
        ThrottleMiddlewareBuilder::default()
    }

    fn new(data: ThrottleSettings, parts: ThrottleParts) -> std::result::Result<Self, ConfigError> {
        let config = ThrottleConfig::new(data, &parts)?;
        let throttle = Throttle {
            entropy: Arc::new(Entropy::new(config.data.seed)),
            config: Current::new(config),
            parts,
            gates: BoundedTable::new(|gate: &Arc<Gate>, now| gate.must_keep(now)),
            timers: Timers::default(),
            order_warning: WarnOnce::default(),
        };
        Ok(Self {
            throttle: Arc::new(throttle),
        })
    }

    /// Sends the request through `upstream`, as soon as its gate has a slot.
    // An `async fn` would hold the request twice: 830 instructions a call.
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn run<'a>(
        &'a self,
        request: Request,
        extensions: &'a mut Extensions,
        mut upstream: impl Upstream + 'a,
    ) -> impl Future<Output = Result<Response>> + Send + 'a {
        async move {
            let throttle = &*self.throttle;
            SteadyError::check(throttle.timers.check(), request.url())?;
            let config = throttle.config.get();
            let gate = throttle.gate_of(&request, &config);
            let mut at_gate = GateRequest::new(&gate, &config, &request, extensions);
            if let Some(queued) = at_gate.admit(&request, extensions)? {
                // In a box: few requests wait, and all would carry its size.
                Box::pin(at_gate.wait(queued, &request, extensions)).await?;
            }

            let result = upstream.send(request, extensions).await;

            let signal = signal::read(&result);
            if let (true, Ok(response)) = (at_gate.is_sample(), &result) {
                throttle.check_order(response);
            }
            let is_limit = at_gate.on_response(&signal);
            let is_ok = (result.as_ref()).is_ok_and(|response| response.status().as_u16() < 400);
            if !is_ok || at_gate.reads_successes || !at_gate.waited.is_zero() {
                let pacing = match signal.kind {
                    SignalKind::Refused if config.adaptive => Pacing::Paused,
                    _ if is_limit => Pacing::Limited,
                    _ => Pacing::None,
                };
                let own = || at_gate.handoff.take().unwrap_or_default();
                extensions.get_or_insert_with(own).leave_visit(pacing);
            }
            result
        }
    }
}

impl Throttle {
    fn gate_of(&self, request: &Request, config: &ThrottleConfig) -> Arc<Gate> {
        let key = config.key_by.key(request);
        // With the settings of now: they may have been replaced since the request began, and a gate is kept for long.
        let new = |now| Gate::new(key.to_owned(), &self.config.get(), &self.entropy, now);
        let renew = |gate: &mut Arc<Gate>, now| match Arc::get_mut(gate) {
            Some(gate) => gate.renew(&key, &self.config.get(), now),
            None => *gate = new(now),
        };
        self.gates.get(key.hash(), new, renew)
    }

    /// Warns once if the throttle is outside the retry: its response has passed a retry already.
    fn check_order(&self, response: &Response) {
        if !self.order_warning.is_done() && RetryReport::of(response).is_some() {
            self.order_warning.warn(&THROTTLE_OUTSIDE_RETRY);
        }
    }
}
