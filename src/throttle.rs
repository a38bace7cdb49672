//! The throttle middleware: one answer teaches all requests to the same server.

mod builder;
mod controller;
mod events;
mod gate;
mod key;
mod meter;
mod queue;
mod rate;
mod sharing;
mod signal;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Result};
use tokio::time::Instant;

use builder::Settings;
pub use builder::ThrottleMiddlewareBuilder;
use events::GateEvents;
use gate::{Entry, Gate, Slot, Waiting};
pub use key::{KeyBy, KeyFn};
use signal::SignalKind;

use crate::clock;
use crate::config::Timers;
use crate::handoff::{Handoff, Terms};
use crate::host::BoundedTable;
use crate::log::throttle_outside_retry;
use crate::outcome::{Attempt, Refusal, RetryReport};
use crate::request::RequestOptions;
use crate::upstream::Upstream;

/// Finds the rate that a server accepts, and holds requests back instead of letting them fail.
///
/// Put it **after** the [`RetryMiddleware`](crate::RetryMiddleware), so that every attempt passes it:
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
/// Every host has a gate of its own (or whatever [`KeyBy`] says), and no gate ever holds up another:
///
/// - A few requests go at once, and more while the server keeps up. One that never refuses is not
///   slowed, once the gate has opened within some round trips.
/// - **A refusal** (429, or many a 5xx in a row) closes the gate for a moment. Then a single request
///   tries; if it comes through, the others follow at the rate that the server has really accepted,
///   which rises again step by step.
/// - **A pause** that the server asks for, with `Retry-After` or by a quota that is used up, holds for
///   everybody. After an hour, however long it was to be, a single request asks again.
/// - **A server that is down** gets one request at a time, each after a longer pause, up to half a
///   minute. This is a circuit breaker, which closes by itself: there is nothing to tune or to reset.
/// - **A server that gets slow** has fewer requests to work on at once.
///
/// What has to wait does so in order, a repeated attempt first, and not past the deadline of its call.
/// What cannot be let through is refused with a [`Refusal`]. A retry after a 429 costs nothing of the
/// retry [`Budget`](crate::Budget): it waits as long as the server asked, and then for its turn here,
/// instead of for a backoff.
///
/// Endpoints of one host that differ much, in what they allow or in how long they take, are better off
/// with [`KeyBy::HostAndPath`].
///
/// Clones share their gates. A slot is in use until the head of the answer is there.
///
/// It needs a tokio runtime with timers, as a
/// [`RetryMiddleware`](crate::RetryMiddleware#what-it-needs) does.
#[derive(Clone, Debug)]
pub struct ThrottleMiddleware {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Arc<Settings>,
    gates: BoundedTable<Arc<Gate>>,
    timers: Timers,
    warned: AtomicBool,
}

impl Default for ThrottleMiddleware {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl ThrottleMiddleware {
    /// Starts from the defaults.
    pub fn builder() -> ThrottleMiddlewareBuilder {
        ThrottleMiddlewareBuilder::default()
    }

    fn new(settings: Arc<Settings>) -> Self {
        Self {
            shared: Arc::new(Shared {
                settings,
                gates: BoundedTable::new(|gate: &Arc<Gate>, now| gate.must_keep(now)),
                timers: Timers::default(),
                warned: AtomicBool::new(false),
            }),
        }
    }
}

impl Shared {
    fn gate_of(&self, request: &Request) -> Arc<Gate> {
        let key = self.settings.key_by.key(request);
        let new = |now| Gate::in_arc(key.to_owned(), &self.settings, now);
        let renew = |gate: &mut Arc<Gate>, now| match Arc::get_mut(gate) {
            Some(gate) => gate.renew(&key, &self.settings, now),
            None => *gate = new(now),
        };
        self.gates.get(&key, new, renew)
    }

    /// Lets a request through, or gives it a place in the queue, and a pass for nothing until then. Here and
    /// not in `handle`, so that its future keeps nothing that is not needed later.
    fn enter<'a>(
        &'a self,
        gate: &'a Gate,
        request: &Request,
        extensions: &mut Extensions,
        events: &mut Option<GateEvents<'a>>,
    ) -> std::result::Result<(Slot<'a>, Option<Box<Queued<'a>>>), Refusal> {
        let settings = &*self.settings;
        let (attempt, handoff) = match extensions.is_empty() {
            true => (Attempt::FIRST, None),
            false => (Attempt::of(extensions), Handoff::of(extensions)),
        };
        let terms = handoff.as_ref().map(Handoff::terms).unwrap_or_default();
        if settings.is_watched() {
            *events = Some(GateEvents::new(settings, gate, request, attempt));
        }
        let now = clock::now();
        let (again, queued) = (attempt.is_retry(), terms.queued_before);
        match gate.enter(now, settings, again, queued, terms.latest) {
            Ok(Entry::Admitted(mut slot, snapshot)) => {
                if let Some(handoff) = &handoff {
                    handoff.send(now);
                }
                slot.handoff = handoff;
                if let (Some(events), Some(snapshot)) = (events, snapshot) {
                    events.sent(snapshot);
                }
                Ok((slot, None))
            }
            Ok(Entry::Queued(waiting)) => {
                let insert = || Handoff::insert(extensions, Terms::default());
                let queued = Queued {
                    waiting,
                    since: now,
                    handoff: handoff.unwrap_or_else(insert),
                };
                Ok((Slot::empty(gate, settings), Some(Box::new(queued))))
            }
            Err(refusal) => {
                if let Some(handoff) = handoff {
                    handoff.refuse();
                }
                Err(refusal)
            }
        }
    }

    /// Says once that the order is wrong: what comes back has been through a retry already.
    fn check_order(&self, response: &Response) {
        if !self.warned.load(Ordering::Relaxed)
            && RetryReport::of(response).is_some()
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            throttle_outside_retry();
        }
    }
}

/// A request that has to wait.
struct Queued<'a> {
    waiting: Waiting<'a>,
    since: Instant,
    handoff: Handoff,
}

impl<'a> Queued<'a> {
    /// Waits for the turn, and says for how long.
    async fn turn(
        self: Box<Self>,
        events: &mut Option<GateEvents<'a>>,
    ) -> (std::result::Result<Slot<'a>, Refusal>, Duration) {
        let Self {
            waiting,
            since,
            handoff,
        } = *self;
        let stay = handoff.enter_queue(since);
        if let Some(events) = events {
            events.queued();
        }
        let turn = waiting.slot().await;
        let now = clock::now();
        let waited = now.saturating_duration_since(since);
        drop(stay);
        let turn = match turn {
            Ok(mut slot) => {
                handoff.send(now);
                slot.handoff = Some(handoff);
                if let Some(events) = events {
                    events.waited(waited);
                }
                Ok(slot)
            }
            Err(refusal) => {
                handoff.refuse();
                handoff.leave_visit(false);
                Err(refusal)
            }
        };
        (turn, waited)
    }
}

impl ThrottleMiddleware {
    /// Sends the request through `upstream`.
    // An `async fn` would hold the request twice: 830 instructions a call.
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn run<'a>(
        &'a self,
        request: Request,
        extensions: &'a mut Extensions,
        mut upstream: impl Upstream + 'a,
    ) -> impl Future<Output = Result<Response>> + Send + 'a {
        async move {
            let shared = &*self.shared;
            shared.timers.check().map_err(Error::middleware)?;
            let gate = shared.gate_of(&request);
            let own = RequestOptions::of(extensions);
            // Its body is read after this, and may break off.
            let buffered = own.is_some_and(|own| own.buffer.is_some());
            // Declared before the place that it tells of, so that it is dropped after it.
            let mut events = None;
            let mut waited = Duration::ZERO;
            let (mut slot, queued) = match shared.enter(&gate, &request, extensions, &mut events) {
                Ok(entered) => entered,
                Err(refusal) => return Err(refuse(refusal, &request, events, waited)),
            };
            if let Some(queued) = queued {
                let turn;
                (turn, waited) = Box::pin(queued.turn(&mut events)).await;
                slot = match turn {
                    Ok(slot) => slot,
                    Err(refusal) => return Err(refuse(refusal, &request, events, waited)),
                };
            }
            let result = upstream.send(request, extensions).await;
            let signal = signal::read(&result);
            if let (true, Ok(response)) = (slot.is_sample(), &result) {
                shared.check_order(response);
            }
            let snapshot = slot.on_response(&signal);
            if let (Some(events), Some(snapshot)) = (&mut events, snapshot) {
                events.ended(snapshot);
            }
            let failed = result
                .as_ref()
                .map_or(true, |it| it.status().as_u16() >= 400);
            if failed || buffered || !waited.is_zero() {
                let paced = shared.settings.adaptive && signal.kind == SignalKind::Refused;
                let insert = || extensions.get_or_insert_default::<Handoff>().clone();
                let handoff = slot.handoff.take().unwrap_or_else(insert);
                handoff.leave_visit(paced);
            }
            result
        }
    }
}

#[cold]
fn refuse(
    refusal: Refusal,
    request: &Request,
    events: Option<GateEvents<'_>>,
    waited: Duration,
) -> Error {
    let refusal = refusal.of_request(request);
    if let Some(mut events) = events {
        events.refused(&refusal, waited);
    }
    Error::middleware(refusal)
}
