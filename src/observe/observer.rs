//! The [`Observer`] trait, and the list of observers of a middleware.
//!
//! A panic in an observer must not break a call, so [`Observers`] catches it and logs an error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::event::{
    Abandoned, AttemptFinished, BudgetRefused, BudgetWaited, CallInfo, Event, EventKind,
    RetryScheduled, Stopped, ThrottleLoad, ThrottlePaced, ThrottlePaused, ThrottleRefused,
    ThrottleWaited,
};
use crate::log;
use crate::outcome::DeadLetterOutcome;

/// Receives the events of calls.
///
/// By default, every method does nothing. The middlewares call the methods in the task of the call, so they
/// must be fast: send longer work to a channel. A method that panics does not break the call.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = wiremock::MockServer::start().await;
/// # let once = wiremock::Mock::given(wiremock::matchers::any()).respond_with(wiremock::ResponseTemplate::new(503));
/// # once.up_to_n_times(1).mount(&server).await;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::observe::{CallInfo, Observer, RetryScheduled};
/// use reqwest_steady::RetryMiddleware;
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
/// A [`RetryMiddleware`](crate::RetryMiddleware) reports calls and attempts, and a
/// [`ThrottleMiddleware`](crate::ThrottleMiddleware) reports its queue and its pauses. Give the same observer to
/// both. To use a closure, see [`observe_fn`](crate::RetryMiddlewareBuilder::observe_fn).
///
/// A request with an [invalid key](crate::InvalidKeyError) is refused before it becomes a call. It makes no event.
pub trait Observer: Send + Sync + 'static {
    /// A call started. It ends with [`stopped`](Self::stopped) or [`abandoned`](Self::abandoned).
    fn call_started(&self, _call: &CallInfo<'_>) {}

    /// An attempt is sent, or enters a throttle inside the retry. It ends with
    /// [`attempt_finished`](Self::attempt_finished) or [`abandoned`](Self::abandoned).
    fn attempt_started(&self, _call: &CallInfo<'_>) {}

    /// An attempt ended, with or without a response.
    fn attempt_finished(&self, _call: &CallInfo<'_>, _attempt: &AttemptFinished) {}

    /// The call will be retried after a wait.
    fn retry_scheduled(&self, _call: &CallInfo<'_>, _retry: &RetryScheduled) {}

    /// The call waited in line, because the budget was empty, and the wait is over.
    fn budget_waited(&self, _call: &CallInfo<'_>, _waited: &BudgetWaited) {}

    /// The call was not retried because the budget is empty.
    fn budget_refused(&self, _call: &CallInfo<'_>, _refused: &BudgetRefused) {}

    /// The call ended. Its caller gets the response or error.
    fn stopped(&self, _call: &CallInfo<'_>, _stop: &Stopped) {}

    /// The caller dropped the call.
    fn abandoned(&self, _call: &CallInfo<'_>, _abandoned: &Abandoned) {}

    /// The delivery of a dead letter ended. This can happen after the end of the call.
    fn dead_lettered(&self, _call: &CallInfo<'_>, _outcome: DeadLetterOutcome) {}

    /// The load of a throttle changed.
    fn throttle_load(&self, _call: &CallInfo<'_>, _load: &ThrottleLoad) {}

    /// An attempt waited in a throttle's queue and is sent now.
    fn throttle_waited(&self, _call: &CallInfo<'_>, _waited: &ThrottleWaited) {}

    /// A throttle refused an attempt.
    fn throttle_refused(&self, _call: &CallInfo<'_>, _refused: &ThrottleRefused) {}

    /// A throttle closed for all requests with the same key as this one.
    ///
    /// [`asked_by`](ThrottlePaused::asked_by) tells why. A pause within a second after another one is reported only if
    /// it is at least ten times as long.
    fn throttle_paused(&self, _call: &CallInfo<'_>, _paused: &ThrottlePaused) {}

    /// A closed throttle opened again, and this request noticed it.
    fn throttle_released(&self, _call: &CallInfo<'_>) {}

    /// The pace of a throttle changed, for all requests with the same key as this one.
    ///
    /// A first pace and the end of a pace are reported at once. Rises and cuts are reported if they are 10 % or more,
    /// each at most once per second.
    fn throttle_paced(&self, _call: &CallInfo<'_>, _pace: &ThrottlePaced) {}
}

/// Several middlewares can share one observer.
impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn call_started(&self, call: &CallInfo<'_>) {
        O::call_started(self, call);
    }

    fn attempt_started(&self, call: &CallInfo<'_>) {
        O::attempt_started(self, call);
    }

    fn attempt_finished(&self, call: &CallInfo<'_>, attempt: &AttemptFinished) {
        O::attempt_finished(self, call, attempt);
    }

    fn retry_scheduled(&self, call: &CallInfo<'_>, retry: &RetryScheduled) {
        O::retry_scheduled(self, call, retry);
    }

    fn budget_waited(&self, call: &CallInfo<'_>, waited: &BudgetWaited) {
        O::budget_waited(self, call, waited);
    }

    fn budget_refused(&self, call: &CallInfo<'_>, refused: &BudgetRefused) {
        O::budget_refused(self, call, refused);
    }

    fn stopped(&self, call: &CallInfo<'_>, stop: &Stopped) {
        O::stopped(self, call, stop);
    }

    fn abandoned(&self, call: &CallInfo<'_>, abandoned: &Abandoned) {
        O::abandoned(self, call, abandoned);
    }

    fn dead_lettered(&self, call: &CallInfo<'_>, outcome: DeadLetterOutcome) {
        O::dead_lettered(self, call, outcome);
    }

    fn throttle_load(&self, call: &CallInfo<'_>, load: &ThrottleLoad) {
        O::throttle_load(self, call, load);
    }

    fn throttle_waited(&self, call: &CallInfo<'_>, waited: &ThrottleWaited) {
        O::throttle_waited(self, call, waited);
    }

    fn throttle_refused(&self, call: &CallInfo<'_>, refused: &ThrottleRefused) {
        O::throttle_refused(self, call, refused);
    }

    fn throttle_paused(&self, call: &CallInfo<'_>, paused: &ThrottlePaused) {
        O::throttle_paused(self, call, paused);
    }

    fn throttle_released(&self, call: &CallInfo<'_>) {
        O::throttle_released(self, call);
    }

    fn throttle_paced(&self, call: &CallInfo<'_>, pace: &ThrottlePaced) {
        O::throttle_paced(self, call, pace);
    }
}

/// The observers of a middleware, in the order in which they were added.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<ObserveFn>>);

type ObserveFn = dyn Fn(&Event<'_>) + Send + Sync;

impl Observers {
    pub(crate) fn add(&mut self, observer: impl Observer) {
        self.add_fn(move |event| dispatch(&observer, event));
    }

    pub(crate) fn add_fn(&mut self, observe: impl Fn(&Event<'_>) + Send + Sync + 'static) {
        self.0.push(Arc::new(observe));
    }

    pub(crate) fn add_all(&mut self, others: &Self) {
        self.0.extend(others.0.iter().cloned());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Passes the event to every observer, even if some of them panic.
    pub(crate) fn notify(&self, event: &Event<'_>) {
        for observe in &self.0 {
            // An observer that panics can break only its own state. The others follow.
            let result = catch_unwind(AssertUnwindSafe(|| observe(event)));
            if let Err(payload) = result {
                discard(payload);
                log::observer_panicked();
            }
        }
    }
}

/// Drops the payload of a panic. The drop can panic too; that second payload is leaked.
fn discard(payload: Box<dyn Any + Send>) {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    dropped.unwrap_or_else(std::mem::forget);
}

/// Calls the method of the observer that belongs to the event.
fn dispatch(observer: &impl Observer, event: &Event<'_>) {
    let call = &event.call;
    match &event.kind {
        EventKind::CallStarted => observer.call_started(call),
        EventKind::AttemptStarted => observer.attempt_started(call),
        EventKind::AttemptFinished(attempt) => observer.attempt_finished(call, attempt),
        EventKind::RetryScheduled(retry) => observer.retry_scheduled(call, retry),
        EventKind::BudgetWaited(waited) => observer.budget_waited(call, waited),
        EventKind::BudgetRefused(refused) => observer.budget_refused(call, refused),
        EventKind::Stopped(stop) => observer.stopped(call, stop),
        EventKind::Abandoned(abandoned) => observer.abandoned(call, abandoned),
        EventKind::DeadLettered(outcome) => observer.dead_lettered(call, *outcome),
        EventKind::ThrottleLoad(load) => observer.throttle_load(call, load),
        EventKind::ThrottleWaited(waited) => observer.throttle_waited(call, waited),
        EventKind::ThrottleRefused(refused) => observer.throttle_refused(call, refused),
        EventKind::ThrottlePaused(paused) => observer.throttle_paused(call, paused),
        EventKind::ThrottleReleased => observer.throttle_released(call),
        EventKind::ThrottlePaced(pace) => observer.throttle_paced(call, pace),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use http::{Method, StatusCode};

    use super::*;
    use crate::observe::{LimitHeaders, LoadChange};
    use crate::outcome::{AttemptOutcome, PauseSource, RefusalReason, StopReason, WaitReason};

    /// Notes which methods are called.
    #[derive(Default)]
    struct Notes(Mutex<Vec<&'static str>>);

    macro_rules! note {
        ($($method:ident($($argument:ty)?);)+) => {
            impl Observer for Notes {
                $(fn $method(&self, _: &CallInfo<'_>, $(_: $argument)?) {
                    self.0.lock().unwrap().push(stringify!($method));
                })+
            }
        };
    }

    note! {
        call_started();
        attempt_started();
        attempt_finished(&AttemptFinished);
        retry_scheduled(&RetryScheduled);
        budget_waited(&BudgetWaited);
        budget_refused(&BudgetRefused);
        stopped(&Stopped);
        abandoned(&Abandoned);
        dead_lettered(DeadLetterOutcome);
        throttle_load(&ThrottleLoad);
        throttle_waited(&ThrottleWaited);
        throttle_refused(&ThrottleRefused);
        throttle_paused(&ThrottlePaused);
        throttle_released();
        throttle_paced(&ThrottlePaced);
    }

    /// The method for an event. A new kind of event needs a new line here and in `one_of_each`.
    fn method(kind: &EventKind) -> &'static str {
        match kind {
            EventKind::CallStarted => "call_started",
            EventKind::AttemptStarted => "attempt_started",
            EventKind::AttemptFinished(_) => "attempt_finished",
            EventKind::RetryScheduled(_) => "retry_scheduled",
            EventKind::BudgetWaited(_) => "budget_waited",
            EventKind::BudgetRefused(_) => "budget_refused",
            EventKind::Stopped(_) => "stopped",
            EventKind::Abandoned(_) => "abandoned",
            EventKind::DeadLettered(_) => "dead_lettered",
            EventKind::ThrottleLoad(_) => "throttle_load",
            EventKind::ThrottleWaited(_) => "throttle_waited",
            EventKind::ThrottleRefused(_) => "throttle_refused",
            EventKind::ThrottlePaused(_) => "throttle_paused",
            EventKind::ThrottleReleased => "throttle_released",
            EventKind::ThrottlePaced(_) => "throttle_paced",
        }
    }

    fn one_of_each() -> [EventKind; 15] {
        let (time, budget) = (Duration::ZERO, 1.0);
        let outcome = AttemptOutcome::Status(StatusCode::OK);
        [
            EventKind::CallStarted,
            EventKind::AttemptStarted,
            EventKind::AttemptFinished(AttemptFinished {
                outcome,
                retry_of: None,
                took: time,
                queued: time,
                limit_headers: LimitHeaders::default(),
            }),
            EventKind::RetryScheduled(RetryScheduled {
                cause: outcome,
                wait: time,
                hint: None,
                reason: WaitReason::Backoff,
                in_line: false,
                max_attempts: 6,
                budget,
                dry_run: false,
            }),
            EventKind::BudgetWaited(BudgetWaited {
                wait: time,
                is_released: true,
            }),
            EventKind::BudgetRefused(BudgetRefused {
                cause: outcome,
                budget,
            }),
            EventKind::Stopped(Stopped {
                effect: crate::outcome::Effect::Happened,
                stop_reason: StopReason::Succeeded,
                outcome,
                max_attempts: 6,
                waited: time,
                took: time,
                hint: None,
                budget: None,
            }),
            EventKind::Abandoned(Abandoned {
                in_attempt: true,
                retry_of: None,
                took: time,
            }),
            EventKind::DeadLettered(DeadLetterOutcome::Delivered),
            EventKind::ThrottleLoad(ThrottleLoad {
                change: LoadChange::Sent,
                in_flight: 1,
                waiting: 0,
                oldest: time,
            }),
            EventKind::ThrottleWaited(ThrottleWaited { wait: time }),
            EventKind::ThrottleRefused(ThrottleRefused {
                reason: RefusalReason::QueueFull,
                waited: time,
                depth: 1,
                retry_after: time,
                refusals: 1,
            }),
            EventKind::ThrottlePaused(ThrottlePaused {
                pause: time,
                asked_by: PauseSource::Server,
            }),
            EventKind::ThrottleReleased,
            EventKind::ThrottlePaced(ThrottlePaced {
                per_second: None,
                before: None,
            }),
        ]
    }

    #[test]
    fn a_shared_observer_gets_every_event() {
        let notes = Arc::new(Notes::default());
        let mut observers = Observers::default();
        observers.add(Arc::clone(&notes));
        let call = CallInfo {
            method: &Method::GET,
            host: "api.example.com",
            attempt: 1,
            host_hash: 0,
        };
        for kind in one_of_each() {
            observers.notify(&Event { call, kind });
        }
        let expected: Vec<_> = one_of_each().iter().map(method).collect();
        assert_eq!(*notes.0.lock().unwrap(), expected);
    }
}
