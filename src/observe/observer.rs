//! Whoever wants to know, told in a way that can do no harm.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::event::{
    Abandoned, AttemptFinished, BudgetRefused, CallInfo, Event, EventKind, RetryScheduled, Stopped,
    ThrottleLoad, ThrottlePaused, ThrottleRefused, ThrottleWaited,
};
use crate::log;
use crate::outcome::DeadLetterOutcome;

/// Gets to know what happens to calls.
///
/// Every method does nothing unless you write it. They are called where the thing happens, in the
/// task of the call: be quick, and hand longer work to a channel. One that panics does not break the
/// call.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = wiremock::MockServer::start().await;
/// # let once = wiremock::Mock::given(wiremock::matchers::any()).respond_with(wiremock::ResponseTemplate::new(503));
/// # once.up_to_n_times(1).mount(&server).await;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::{CallInfo, Observer, RetryMiddleware, RetryScheduled};
///
/// #[derive(Default)]
/// struct CountRetries(AtomicU64);
///
/// impl Observer for CountRetries {
///     fn retry_scheduled(&self, call: &CallInfo<'_>, retry: &RetryScheduled) {
///         println!("{} to {} again in {:?}: {}", call.method, call.host, retry.wait, retry.cause);
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let count = Arc::new(CountRetries::default());
/// let retry = RetryMiddleware::builder().observer(Arc::clone(&count)).build()?;
/// let client = ClientBuilder::new(reqwest::Client::new()).with(retry).build();
/// client.get(server.uri()).send().await?; // 503, and then 404
/// assert_eq!(count.0.load(Ordering::Relaxed), 1);
/// # Ok(()) }
/// ```
///
/// A [`RetryMiddleware`](crate::RetryMiddleware) tells of calls, a
/// [`ThrottleMiddleware`](crate::ThrottleMiddleware) of what happens at its gates; give the same
/// observer to both. For a closure, see [`observe_fn`](crate::RetryMiddlewareBuilder::observe_fn). A
/// request that is refused before anything is sent, for its key is [none](crate::InvalidKey), is no call,
/// and nothing is told of it.
pub trait Observer: Send + Sync + 'static {
    /// A call has begun. It ends with [`stopped`](Self::stopped) or [`abandoned`](Self::abandoned).
    fn call_started(&self, _call: &CallInfo<'_>) {}

    /// An attempt is sent, or goes to a throttle inside. It ends with
    /// [`attempt_finished`](Self::attempt_finished) or [`abandoned`](Self::abandoned).
    fn attempt_started(&self, _call: &CallInfo<'_>) {}

    /// An attempt has ended, with an answer or without.
    fn attempt_finished(&self, _call: &CallInfo<'_>, _attempt: &AttemptFinished) {}

    /// The call is sent again after a wait.
    fn retry_scheduled(&self, _call: &CallInfo<'_>, _retry: &RetryScheduled) {}

    /// The call would have been sent again, but the budget is empty.
    fn budget_refused(&self, _call: &CallInfo<'_>, _refused: &BudgetRefused) {}

    /// The call is over, and its answer or error goes to the caller.
    fn stopped(&self, _call: &CallInfo<'_>, _stop: &Stopped) {}

    /// The caller has dropped the call.
    fn abandoned(&self, _call: &CallInfo<'_>, _abandoned: &Abandoned) {}

    /// What became of the letter about a call that was given up. This may come after the call is over.
    fn dead_lettered(&self, _call: &CallInfo<'_>, _outcome: DeadLetterOutcome) {}

    /// A throttle has more or less to do than before.
    fn throttle_load(&self, _call: &CallInfo<'_>, _load: &ThrottleLoad) {}

    /// An attempt has waited for its turn in a throttle, and goes on.
    fn throttle_waited(&self, _call: &CallInfo<'_>, _waited: &ThrottleWaited) {}

    /// A throttle did not let an attempt through.
    fn throttle_refused(&self, _call: &CallInfo<'_>, _refused: &ThrottleRefused) {}

    /// A throttle has closed for all requests of this one's key: the server asked for a pause in its
    /// answer to this one, or is in trouble.
    fn throttle_paused(&self, _call: &CallInfo<'_>, _paused: &ThrottlePaused) {}

    /// A throttle that was closed is open again, as this request shows.
    fn throttle_released(&self, _call: &CallInfo<'_>) {}
}

/// Those who want to know.
///
/// In boxes of their own: where in an `Arc` a value of unknown alignment is would be reckoned for each event.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<Box<Tell>>>);

type Tell = dyn Fn(&Event<'_>) + Send + Sync;

impl Observers {
    pub(crate) fn add<O: Observer + ?Sized>(&mut self, observer: Arc<O>) {
        self.add_fn(move |event| tell(&*observer, event));
    }

    pub(crate) fn add_fn(&mut self, observe: impl Fn(&Event<'_>) + Send + Sync + 'static) {
        self.0.push(Arc::new(Box::new(observe)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        let mut next = self.0.iter();
        // One that panics leaves the rest untold, who are told then. Whatever state it leaves behind is its own.
        while !next.as_slice().is_empty() {
            let rest = AssertUnwindSafe(|| {
                for tell in next.by_ref() {
                    tell(event);
                }
            });
            if let Err(payload) = catch_unwind(rest) {
                observer_panicked(payload);
            }
        }
    }
}

#[cold]
fn observer_panicked(payload: Box<dyn Any + Send>) {
    // What it panicked with may panic when it is dropped; and then one has to stop.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    dropped.unwrap_or_else(std::mem::forget);
    log::observer_panicked();
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}

fn tell<O: Observer + ?Sized>(observer: &O, event: &Event<'_>) {
    let call = &event.call;
    match &event.kind {
        EventKind::CallStarted => observer.call_started(call),
        EventKind::AttemptStarted => observer.attempt_started(call),
        EventKind::AttemptFinished(attempt) => observer.attempt_finished(call, attempt),
        EventKind::RetryScheduled(retry) => observer.retry_scheduled(call, retry),
        EventKind::BudgetRefused(refused) => observer.budget_refused(call, refused),
        EventKind::Stopped(stop) => observer.stopped(call, stop),
        EventKind::Abandoned(abandoned) => observer.abandoned(call, abandoned),
        EventKind::DeadLettered(outcome) => observer.dead_lettered(call, *outcome),
        EventKind::ThrottleLoad(load) => observer.throttle_load(call, load),
        EventKind::ThrottleWaited(waited) => observer.throttle_waited(call, waited),
        EventKind::ThrottleRefused(refused) => observer.throttle_refused(call, refused),
        EventKind::ThrottlePaused(paused) => observer.throttle_paused(call, paused),
        EventKind::ThrottleReleased => observer.throttle_released(call),
    }
}
