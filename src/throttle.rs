//! The throttle middleware: one answer teaches all requests to the same server.

mod builder;
mod controller;
mod gate;
mod key;
mod meter;
mod passage;
mod queue;
mod rate;
mod sharing;
mod signal;
mod watch;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tokio::time::Instant;

use builder::Settings;
pub use builder::ThrottleMiddlewareBuilder;
use gate::{Entry, Gate, Pass, Waiting};
pub use key::{KeyBy, KeyFn};
pub(crate) use passage::{Passage, Passed, QueuedBefore, Stage};
use signal::SignalKind;
use watch::Watch;

use crate::admit::with_passage;
use crate::clock;
use crate::config::Timers;
use crate::host::BoundedTable;
use crate::log::throttle_outside_retry;
use crate::outcome::{Attempt, Refusal, RetryReport};
use crate::request::RequestOptions;

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
                gates: BoundedTable::new(|gate: &Arc<Gate>, now| gate.matters(now)),
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
        extensions: &Extensions,
        watch: &mut Option<Watch<'a>>,
    ) -> std::result::Result<(Pass<'a>, Option<Box<Queued<'a>>>), Refusal> {
        let settings = &*self.settings;
        let (attempt, queued) = match extensions.is_empty() {
            true => (Attempt::FIRST, Duration::ZERO),
            false => (Attempt::of(extensions), QueuedBefore::of(extensions)),
        };
        if settings.is_watched() {
            *watch = Some(Watch::new(settings, gate, request, attempt));
        }
        let now = clock::now();
        let is_own = |passage: &Passage| passage.is_of(extensions, request.url());
        let has_passage = || with_passage(|passage| is_own(passage)) == Some(true);
        match gate.enter(now, settings, attempt.is_retry(), queued, has_passage)? {
            Entry::Passed(mut pass, sight) => {
                let passed = with_passage(|passage| {
                    let is_own = is_own(passage);
                    if is_own {
                        passage.pass(now);
                    }
                    is_own
                });
                pass.has_passage = passed == Some(true);
                if let (Some(watch), Some(sight)) = (watch, sight) {
                    watch.sent(sight);
                }
                Ok((pass, None))
            }
            Entry::Waits(waiting) => {
                let queued = Queued {
                    waiting,
                    since: now,
                };
                Ok((Pass::none(gate, settings), Some(Box::new(queued))))
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
}

impl<'a> Queued<'a> {
    /// Waits for the turn, and says for how long.
    async fn turn(
        self: Box<Self>,
        watch: &mut Option<Watch<'a>>,
    ) -> (std::result::Result<Pass<'a>, Refusal>, Duration) {
        let Self { waiting, since } = *self;
        let has_passage = waiting.has_passage;
        let stay = Stay::begin(has_passage, since);
        if let Some(watch) = watch {
            watch.queued();
        }
        let turn = waiting.turn().await;
        let now = clock::now();
        let waited = now.saturating_duration_since(since);
        drop(stay);
        match turn.is_ok() {
            true if has_passage => drop(with_passage(|passage| passage.pass(now))),
            false if has_passage => drop(with_passage(Passage::refuse)),
            _ => {}
        }
        if turn.is_ok() {
            if let Some(watch) = watch {
                watch.waited(waited);
            }
        }
        (turn, waited)
    }
}

/// While it lasts, the clock of the attempt stands still.
struct Stay {
    /// `None` where no retry wants to know.
    before: Option<Stage>,
    since: Instant,
}

impl Stay {
    fn begin(has_passage: bool, since: Instant) -> Self {
        let before = has_passage.then(|| with_passage(Passage::wait)).flatten();
        Self { before, since }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let waited = clock::now().saturating_duration_since(self.since);
            with_passage(|passage| passage.leave(before, waited));
        }
    }
}

impl Middleware for ThrottleMiddleware {
    // Written out as in the retry, and for the same reason: a small future.
    fn handle<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        request: Request,
        extensions: &'life1 mut Extensions,
        next: Next<'life2>,
    ) -> Pin<Box<dyn Future<Output = Result<Response>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let shared = &*self.shared;
            shared.timers.check().map_err(Error::middleware)?;
            let gate = shared.gate_of(&request);
            let own = RequestOptions::of(extensions);
            // Its body is read after this, and may break off.
            let buffered = own.is_some_and(|own| own.buffer.is_some());
            // Declared before the place that it tells of, so that it is dropped after it.
            let mut watch = None;
            let mut waited = Duration::ZERO;
            let (mut pass, queued) = match shared.enter(&gate, &request, extensions, &mut watch) {
                Ok(entered) => entered,
                Err(refusal) => return Err(refuse(refusal, &request, watch, waited)),
            };
            if let Some(queued) = queued {
                let turn;
                (turn, waited) = Box::pin(queued.turn(&mut watch)).await;
                pass = match turn {
                    Ok(pass) => pass,
                    Err(refusal) => {
                        Passed::leave(extensions, waited, false);
                        return Err(refuse(refusal, &request, watch, waited));
                    }
                };
            }
            let result = next.run(request, extensions).await;
            let signal = signal::read(&result);
            if let (true, Ok(response)) = (pass.is_sample(), &result) {
                shared.check_order(response);
            }
            let sight = pass.answered(&signal);
            if let (Some(watch), Some(sight)) = (&mut watch, sight) {
                watch.answered(sight);
            }
            let failed = result
                .as_ref()
                .map_or(true, |it| it.status().as_u16() >= 400);
            if failed || buffered || !waited.is_zero() {
                let paced = shared.settings.adaptive && signal.kind == SignalKind::Refused;
                Passed::leave(extensions, waited, paced);
            }
            result
        })
    }
}

#[cold]
fn refuse(
    refusal: Refusal,
    request: &Request,
    watch: Option<Watch<'_>>,
    waited: Duration,
) -> Error {
    let refusal = refusal.of_request(request);
    if let Some(mut watch) = watch {
        watch.refused(&refusal, waited);
    }
    Error::middleware(refusal)
}
