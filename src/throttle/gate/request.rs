//! One request on its way through a gate: it may wait, it is in flight, and it ends.
//!
//! On its way it tells others where it is: the retry around the throttle, by the [`Handoff`], and observers and the
//! log, by events.

use std::borrow::Cow;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use http::{Extensions, Method};
use rand::RngExt;
use reqwest::Request;
use reqwest_middleware::Error;
use tokio::time::{Instant, sleep_until};

use super::super::config::ThrottleConfig;
use super::super::queue::{WaiterId, WaiterState};
use super::super::signal::{Signal, SignalKind};
use super::reported::GateChanges;
use super::state::{GateSnapshot, Grant};
use super::{Gate, GateEntry};
use crate::clock;
use crate::handoff::{Handoff, Pacing, Terms};
use crate::hashed::hash_of;
use crate::host::host_of;
use crate::lock::lock;
use crate::observe::{CallInfo, Event, EventKind, LoadChange, ThrottleRefused, ThrottleWaited};
use crate::outcome::{Attempt, Refusal, SteadyError};

/// A request at a gate. Dropped, it leaves the queue, or it counts as abandoned if it is in flight.
pub(crate) struct GateRequest<'a> {
    gate: &'a Gate,
    config: &'a ThrottleConfig,
    position: GatePosition,
    attempt: Attempt,
    /// From the retry around the throttle. A request that waits has one in any case.
    pub(crate) handoff: Option<Handoff>,
    /// The retry reads the body of a success, and that may fail.
    pub(crate) reads_successes: bool,
    /// How long the request was in the queue.
    pub(crate) waited: Duration,
    /// `None` if neither observers nor the log want events.
    watched: Option<Watched<'a>>,
}

#[derive(Clone, Copy)]
enum GatePosition {
    /// Not yet at the gate, refused, or ended.
    Outside,
    Waiting(WaiterId),
    InFlight(Grant),
}

/// A request that has to wait in the queue.
pub(crate) struct Queued {
    id: WaiterId,
    since: Instant,
    handoff: Handoff,
}

/// What events say about the request.
struct Watched<'a> {
    method: Method,
    /// Borrowed from the gate, unless a user's function makes the keys.
    host: Cow<'a, str>,
    host_hash: u64,
}

impl<'a> GateRequest<'a> {
    pub(crate) fn new(
        gate: &'a Gate,
        config: &'a ThrottleConfig,
        request: &Request,
        extensions: &Extensions,
    ) -> Self {
        let watched = || {
            let method = request.method().clone();
            let (host, host_hash) = match gate.key.host() {
                Some(host) => (Cow::Borrowed(host), gate.host_hash),
                None => {
                    let host = host_of(request.url());
                    (Cow::Owned(host.to_owned()), hash_of(host))
                }
            };
            Watched {
                method,
                host,
                host_hash,
            }
        };
        Self {
            gate,
            config,
            position: GatePosition::Outside,
            attempt: Attempt::of(extensions),
            handoff: None,
            reads_successes: false,
            waited: Duration::ZERO,
            watched: config.is_watched().then(watched),
        }
    }

    /// Takes a slot of the gate, or a place in its queue, in which the request has to [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// If the gate refuses the request.
    pub(crate) fn admit(
        &mut self,
        request: &Request,
        extensions: &mut Extensions,
    ) -> Result<Option<Queued>, Error> {
        let terms = match Handoff::of(extensions) {
            Some((handoff, terms)) => {
                self.handoff = Some(handoff);
                terms
            }
            None => Terms::default(),
        };
        self.reads_successes = terms.reads_successes;
        let now = clock::now();
        let is_retry = self.attempt.is_retry();
        match self.gate.enter(self.config, now, is_retry, terms) {
            Ok(GateEntry::Admitted(grant, snapshot)) => {
                self.position = GatePosition::InFlight(grant);
                if let Some(handoff) = &self.handoff {
                    handoff.mark_sent(now);
                }
                self.notify_snapshot(snapshot);
                Ok(None)
            }
            Ok(GateEntry::Queued(id)) => {
                self.position = GatePosition::Waiting(id);
                let insert = || Handoff::insert(extensions, Terms::default());
                let handoff = self.handoff.get_or_insert_with(insert).clone();
                Ok(Some(Queued {
                    id,
                    since: now,
                    handoff,
                }))
            }
            Err(refusal) => Err(self.refuse(refusal, request)),
        }
    }

    /// Waits in the queue until the request has a slot.
    ///
    /// # Errors
    ///
    /// If the gate refuses the request after all.
    pub(crate) async fn wait(
        &mut self,
        queued: Queued,
        request: &Request,
        extensions: &mut Extensions,
    ) -> Result<(), Error> {
        self.wait_in_queue(queued).await.map_err(|refusal| {
            (extensions.get_or_insert_default::<Handoff>()).leave_visit(Pacing::None);
            self.refuse(refusal, request)
        })
    }

    fn refuse(&self, refusal: Refusal, request: &Request) -> Error {
        if let Some(handoff) = &self.handoff {
            handoff.mark_refused();
        }
        self.notify_gate_changes();
        self.notify_refusal(&refusal);
        Error::middleware(SteadyError::throttled(refusal, request.url(), self.waited))
    }

    /// Waits in the queue until the request may go, or until its limit.
    async fn wait_in_queue(&mut self, queued: Queued) -> Result<(), Refusal> {
        let Queued { id, since, handoff } = queued;
        // The timeout of the attempt stands still in the queue.
        let stay = handoff.enter_queue(since);
        self.notify_load(LoadChange::Queued);
        // Any time will do: the first poll resets it.
        let mut sleep = pin!(sleep_until(self.gate.born));
        let outcome = poll_fn(|context| {
            loop {
                let until = match self.progress(id, context.waker()) {
                    ControlFlow::Continue(until) => until,
                    ControlFlow::Break(outcome) => return Poll::Ready(outcome),
                };
                // A worker of a fleet may have passed on a pause.
                self.notify_gate_changes();
                if sleep.deadline() != until {
                    sleep.as_mut().reset(until);
                }
                if sleep.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        });
        let outcome = outcome.await;
        let now = clock::now();
        self.waited = now.saturating_duration_since(since);
        drop(stay);
        self.notify_load(LoadChange::Left);
        outcome?;
        handoff.mark_sent(now);
        let wait = self.waited;
        self.notify(EventKind::ThrottleWaited(ThrottleWaited { wait }));
        self.notify_load(LoadChange::Sent);
        self.notify_gate_changes();
        Ok(())
    }

    /// Looks whether the request may go. If it is the next in the queue, its timer wakes the queue.
    ///
    /// If it has to wait, it looks again at the returned time, or when woken.
    fn progress(
        &mut self,
        id: WaiterId,
        waker: &Waker,
    ) -> ControlFlow<Result<(), Refusal>, Instant> {
        let gate = self.gate;
        gate.update(|state, now| {
            state.admit_waiters(now);
            state.stop_waiting_for_store(id, now);
            let waiter = state.queue.get(id);
            let limit = waiter.limit;
            let outcome = match waiter.state {
                WaiterState::Waiting if now < limit.at => {
                    match &mut waiter.waker {
                        Some(known) if known.will_wake(waker) => {}
                        known => {
                            let old = known.replace(waker.clone());
                            state.after_unlock.to_drop.extend(old);
                        }
                    }
                    let until = state.wake_at(id, limit.at, now);
                    return ControlFlow::Continue(clock::after(gate.born, until));
                }
                WaiterState::Waiting => Err(limit.reason),
                WaiterState::Refused(reason) => Err(reason),
                WaiterState::Admitted(grant) => Ok(grant),
            };
            state.remove_waiter(id);
            self.position = outcome.map_or(GatePosition::Outside, GatePosition::InFlight);
            let refusal = |reason| gate.refusal(state, reason, now);
            ControlFlow::Break(outcome.map(drop).map_err(refusal))
        })
    }

    /// Whether this is one of the requests by which the middleware chain is checked.
    pub(crate) fn is_sample(&self) -> bool {
        match self.position {
            GatePosition::InFlight(grant) => grant.record.is_none_or(|record| record.is_sample()),
            _ => false,
        }
    }

    /// Gives the slot back, and lets the controller learn from the signal. Returns whether the response is a 503 of a
    /// server that is likely to limit its rate.
    pub(crate) fn on_response(&mut self, signal: &Signal) -> bool {
        let GatePosition::InFlight(grant) = self.position else {
            return false;
        };
        self.position = GatePosition::Outside;
        let spread = match signal.kind {
            SignalKind::Accepted => 1.0,
            _ => self.spread(),
        };
        let now = self.gate.now();
        let mut state = lock(&self.gate.state);
        let has_waiters = !state.queue.is_empty();
        let in_flight = state.in_flight - 1;
        let mut is_limit = false;
        if let Some((controller, record)) = state.end(grant) {
            controller.on_response(now, record, signal, in_flight, has_waiters, spread);
            is_limit = signal.kind == SignalKind::Unavailable && controller.refuses_with_503(now);
        }
        state.after_unlock.pause = state.pause_to_share(now, signal.hint);
        if has_waiters {
            state.refuse_hopeless(now);
            state.admit_waiters(now);
        }
        let snapshot = (self.gate).snapshot(self.config, &mut state, now, LoadChange::Ended);
        self.gate.unlock(state, now);
        self.notify_snapshot(snapshot);
        is_limit
    }

    /// Draws by how much a hold is longer, at most a quarter: clients that were refused together do not
    /// come back together.
    fn spread(&self) -> f64 {
        (self.gate.entropy).with(|rng| rng.random_range(1.0..1.25))
    }

    /// Notifies observers and the log.
    fn notify(&self, kind: EventKind) {
        self.with_event(kind, |event| {
            self.config.observers.notify(event);
            self.config.log(event);
        });
    }

    /// Notifies observers of every refusal, and the log of some of them.
    fn notify_refusal(&self, refusal: &Refusal) {
        if self.watched.is_none() {
            return;
        }
        let now = self.gate.now();
        let (refusals, is_logged) = lock(&self.gate.state).reported.refusal(now);
        let kind = EventKind::ThrottleRefused(ThrottleRefused {
            reason: refusal.reason,
            waited: self.waited,
            depth: refusal.depth,
            retry_after: refusal.retry_after,
            refusals,
        });
        self.with_event(kind, |event| {
            self.config.observers.notify(event);
            if is_logged {
                self.config.log(event);
            }
        });
    }

    fn with_event(&self, kind: EventKind, notify: impl FnOnce(&Event<'_>)) {
        if let Some(watched) = &self.watched {
            let call = CallInfo {
                method: &watched.method,
                host: &watched.host,
                attempt: self.attempt.number(),
                host_hash: watched.host_hash,
            };
            notify(&Event { call, kind });
        }
    }

    fn notify_snapshot(&self, snapshot: Option<GateSnapshot>) {
        if let Some(GateSnapshot { load, changes }) = snapshot {
            if let Some(load) = load {
                self.notify(EventKind::ThrottleLoad(load));
            }
            self.notify_changes(changes);
        }
    }

    fn notify_load(&self, change: LoadChange) {
        if !self.config.observers.is_empty() {
            let load = lock(&self.gate.state).load(self.gate.now(), change);
            self.notify(EventKind::ThrottleLoad(load));
        }
    }

    fn notify_gate_changes(&self) {
        if self.watched.is_some() {
            let changes = lock(&self.gate.state).unreported_changes(self.gate.now());
            self.notify_changes(changes);
        }
    }

    fn notify_changes(&self, changes: Option<Box<GateChanges>>) {
        let Some(changes) = changes else {
            return;
        };
        if let Some(paused) = changes.paused {
            self.notify(EventKind::ThrottlePaused(paused));
        }
        if changes.is_released {
            self.notify(EventKind::ThrottleReleased);
        }
        if let Some(paced) = changes.paced {
            self.notify(EventKind::ThrottlePaced(paced));
        }
    }
}

impl Drop for GateRequest<'_> {
    fn drop(&mut self) {
        let change = match self.position {
            GatePosition::Outside => return,
            GatePosition::Waiting(id) => {
                self.gate.update(|state, _| {
                    if let WaiterState::Admitted(grant) = state.remove_waiter(id) {
                        state.undo_send(grant);
                    }
                });
                LoadChange::Left
            }
            GatePosition::InFlight(grant) => {
                let spread = self.spread();
                let timed_out = (self.handoff.as_ref()).is_some_and(Handoff::has_timed_out);
                self.gate.update(|state, now| {
                    if let Some((controller, record)) = state.end(grant) {
                        controller.on_abandoned(now, record, timed_out, spread);
                    }
                });
                LoadChange::Ended
            }
        };
        self.notify_load(change);
        self.notify_gate_changes();
    }
}
