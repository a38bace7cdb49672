//! The throttle middleware: learns the rate that each server accepts, and keeps to it.
//!
//! A request goes to the gate of its key ([`key`]). The gate ([`gate`]) admits it, queues it ([`queue`]) or
//! refuses it. Its response becomes a signal ([`signal`]), from which the controller of the gate
//! ([`controller`]) learns. `docs/decisions/throttle.md` explains why it works as it does.

mod builder;
mod controller;
mod events;
mod gate;
mod gate_store;
mod key;
mod meter;
mod queue;
mod signal;
mod token_bucket;

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Result};
use tokio::time::Instant;

pub use builder::ThrottleMiddlewareBuilder;
use builder::ThrottleSettings;
use events::GateEvents;
use gate::{Gate, GateEntry, QueuedRequest, Slot};
pub use key::{KeyBy, KeyFn};
use signal::SignalKind;

use crate::clock;
use crate::config::Timers;
use crate::handoff::{Handoff, Terms};
use crate::host::BoundedTable;
use crate::log::{WarnOnce, throttle_outside_retry};
use crate::outcome::{Attempt, Refusal, RetryReport};
use crate::request::RequestOptions;
use crate::upstream::Upstream;

/// Learns the rate that a server accepts, and delays requests instead of letting them fail.
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
///   requests. After at most one hour a probe goes.
/// - **A server that is down** gets one request at a time. The pauses between them grow to 30 s. This is a
///   circuit breaker that closes without help: there is nothing to tune or to reset.
/// - **A slow server** gets fewer requests at once.
///
/// Requests wait in order, retries first, and never past the deadline of their call. A request that cannot
/// go in time fails with a [`Refusal`]. A retry after a 429 costs nothing from the retry
/// [`Budget`](crate::Budget): it waits as long as the server asks and then in the queue, without a backoff.
///
/// If endpoints of one host differ much in limits or latency, separate them with [`KeyBy::HostAndPath`].
///
/// Clones share their gates. A request takes up a slot until its response headers arrive.
///
/// It needs a tokio runtime with timers, like
/// [`RetryMiddleware`](crate::RetryMiddleware#what-it-needs).
#[derive(Clone, Debug)]
pub struct ThrottleMiddleware {
    throttle: Arc<Throttle>,
}

/// What all clones share.
#[derive(Debug)]
struct Throttle {
    settings: Arc<ThrottleSettings>,
    gates: BoundedTable<Arc<Gate>>,
    timers: Timers,
    order_warning: WarnOnce,
}

impl Default for ThrottleMiddleware {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl ThrottleMiddleware {
    /// Returns a builder with the default settings.
    pub fn builder() -> ThrottleMiddlewareBuilder {
        ThrottleMiddlewareBuilder::default()
    }

    fn new(settings: Arc<ThrottleSettings>) -> Self {
        Self {
            throttle: Arc::new(Throttle::new(settings)),
        }
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
            throttle.timers.check().map_err(Error::middleware)?;
            let gate = throttle.gate_of(&request);
            let options = RequestOptions::of(extensions);
            // The body of a buffered response is read later, and may break off.
            let is_buffered = options.is_some_and(|options| options.buffer.is_some());
            // Declared before the slot, so that it is dropped after it and sees the slot given back.
            let mut events = throttle.events(&gate, &request, extensions);
            let mut slot = (throttle.admit(&gate, &request, extensions, &mut events)).await?;

            let result = upstream.send(request, extensions).await;

            let signal = signal::read(&result);
            if let (true, Ok(response)) = (slot.is_sample(), &result) {
                throttle.check_order(response);
            }
            let snapshot = slot.on_response(&signal);
            if let (Some(events), Some(snapshot)) = (&mut events, snapshot) {
                events.ended(snapshot);
            }
            let is_ok = (result.as_ref()).is_ok_and(|response| response.status().as_u16() < 400);
            if !is_ok || is_buffered || !slot.waited.is_zero() {
                let is_paced = throttle.settings.adaptive && signal.kind == SignalKind::Refused;
                let own = || slot.handoff.take().unwrap_or_default();
                extensions.get_or_insert_with(own).leave_visit(is_paced);
            }
            result
        }
    }
}

impl Throttle {
    fn new(settings: Arc<ThrottleSettings>) -> Self {
        Self {
            settings,
            gates: BoundedTable::new(|gate: &Arc<Gate>, now| gate.must_keep(now)),
            timers: Timers::default(),
            order_warning: WarnOnce::default(),
        }
    }

    fn gate_of(&self, request: &Request) -> Arc<Gate> {
        let key = self.settings.key_by.key(request);
        let new = |now| Gate::in_arc(key.to_owned(), &self.settings, now);
        let renew = |gate: &mut Arc<Gate>, now| match Arc::get_mut(gate) {
            Some(gate) => gate.renew(&key, &self.settings, now),
            None => *gate = new(now),
        };
        self.gates.get(&key, new, renew)
    }

    fn events<'a>(
        &'a self,
        gate: &'a Gate,
        request: &Request,
        extensions: &Extensions,
    ) -> Option<GateEvents<'a>> {
        let attempt = || Attempt::of(extensions);
        let has_observers = self.settings.has_observers();
        has_observers.then(|| GateEvents::new(&self.settings, gate, request, attempt()))
    }

    /// Takes a slot of the gate, at once or after a wait in its queue.
    async fn admit<'a>(
        &'a self,
        gate: &'a Gate,
        request: &Request,
        extensions: &mut Extensions,
        events: &mut Option<GateEvents<'a>>,
    ) -> Result<Slot<'a>> {
        let is_retry = Attempt::of(extensions).is_retry();
        let handoff = Handoff::of(extensions);
        let terms = handoff.as_ref().map(Handoff::terms).unwrap_or_default();
        let now = clock::now();
        match gate.enter(now, &self.settings, is_retry, terms) {
            Ok(GateEntry::Admitted(mut slot, snapshot)) => {
                if let Some(handoff) = &handoff {
                    handoff.send(now);
                }
                slot.handoff = handoff;
                if let (Some(events), Some(snapshot)) = (events, snapshot) {
                    events.sent(snapshot);
                }
                Ok(slot)
            }
            Ok(GateEntry::Queued(queued)) => {
                let insert = || Handoff::insert(extensions, Terms::default());
                let handoff = handoff.unwrap_or_else(insert);
                let wait = wait(queued, now, handoff, events);
                // In a box: few requests wait, and all would carry its size.
                let admitted = Box::pin(wait).await;
                admitted.map_err(|(refusal, waited)| {
                    (extensions.get_or_insert_default::<Handoff>()).leave_visit(false);
                    refuse(refusal, request, events, waited)
                })
            }
            Err(refusal) => {
                if let Some(handoff) = handoff {
                    handoff.refuse();
                }
                Err(refuse(refusal, request, events, Duration::ZERO))
            }
        }
    }

    /// Warns once if the throttle is outside the retry: its response has passed a retry already.
    fn check_order(&self, response: &Response) {
        if !self.order_warning.is_done() && RetryReport::of(response).is_some() {
            self.order_warning.warn(throttle_outside_retry);
        }
    }
}

/// Waits in the queue. A refusal comes with the time that the request has waited.
async fn wait<'a>(
    queued: QueuedRequest<'a>,
    since: Instant,
    handoff: Handoff,
    events: &mut Option<GateEvents<'a>>,
) -> std::result::Result<Slot<'a>, (Refusal, Duration)> {
    // The timeout of the attempt stands still in the queue.
    let stay = handoff.enter_queue(since);
    if let Some(events) = events {
        events.queued();
    }
    let admitted = queued.slot().await;
    let now = clock::now();
    let waited = now.saturating_duration_since(since);
    drop(stay);
    match admitted {
        Ok(mut slot) => {
            handoff.send(now);
            slot.handoff = Some(handoff);
            slot.waited = waited;
            if let Some(events) = events {
                events.waited(waited);
            }
            Ok(slot)
        }
        Err(refusal) => {
            handoff.refuse();
            Err((refusal, waited))
        }
    }
}

fn refuse(
    refusal: Refusal,
    request: &Request,
    events: &mut Option<GateEvents<'_>>,
    waited: Duration,
) -> Error {
    let refusal = refusal.of_request(request);
    if let Some(events) = events {
        events.refused(&refusal, waited);
    }
    Error::middleware(refusal)
}
