//! The metrics of one host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::catalogue::{
    ATTEMPT_DURATION, BACKOFF_DELAY, BUDGET_BALANCE, BUDGET_EXHAUSTED, BUDGET_WAIT, CALL_DURATION,
    DEAD_LETTERS, IN_FLIGHT, LIMIT_HEADERS, LIMITER_WAIT, PACE, PAUSE, QUEUE_AGE, QUEUE_DEPTH,
    REQUESTS, RETRIES,
};
use crate::clock;
use crate::lock::lock;
use crate::observe::{LimitHeader, LimitHeaders, LoadChange, ThrottleLoad};
use crate::outcome::{AttemptOutcome, DeadLetterOutcome, StopReason};

/// The recorder's handles for one host. They are kept, so that counting needs no lookup in the recorder.
pub(super) struct HostMetrics {
    host: Arc<str>,
    /// Indexed by [`StopReason`]. Each is registered with its first count.
    stopped: [OnceLock<Counter>; StopReason::ALL.len()],
    abandoned: OnceLock<Counter>,
    retries: Mutex<HashMap<AttemptOutcome, Counter>>,
    /// Registered with the first balance. Without a budget, a gauge at 0 would look like an empty budget.
    budget_balance: OnceLock<Gauge>,
    pub(super) budget_exhausted: Counter,
    /// Registered with the first wait, because few hosts have any.
    budget_wait: OnceLock<Histogram>,
    pub(super) call_duration: Histogram,
    pub(super) attempt_duration: Histogram,
    pub(super) backoff_delay: Histogram,
    /// Indexed by [`LimitHeader`].
    limit_headers: [Counter; LimitHeader::ALL.len()],
    /// Indexed by [`DeadLetterOutcome`].
    pub(super) dead_letters: [Counter; DeadLetterOutcome::ALL.len()],
    load: Mutex<HostLoad>,
    in_flight: Gauge,
    /// Registered with the first event of a throttle.
    throttle: OnceLock<ThrottleMetrics>,
}

struct ThrottleMetrics {
    queue_depth: Gauge,
    queue_age: Gauge,
    limiter_wait: Histogram,
    pause: Gauge,
    shown_pause: Mutex<ShownPause>,
    /// Registered with the first pace. At 0, it would look like a throttle that lets nothing through.
    pace: OnceLock<Gauge>,
}

/// The pause that the gauge shows.
#[derive(Default)]
struct ShownPause {
    /// `None` if the gauge is 0.
    until: Option<Instant>,
    /// The task that resets the gauge. A host has at most one.
    timer: Option<AbortHandle>,
}

impl HostMetrics {
    pub(super) fn new(host: &str) -> Self {
        let host: Arc<str> = host.into();
        let from_zero = |counter: Counter| {
            counter.increment(0);
            counter
        };
        Self {
            stopped: Default::default(),
            abandoned: OnceLock::new(),
            retries: Mutex::default(),
            budget_balance: OnceLock::new(),
            budget_exhausted: from_zero(counter!(BUDGET_EXHAUSTED, "host" => host.clone())),
            budget_wait: OnceLock::new(),
            call_duration: histogram!(CALL_DURATION, "host" => host.clone()),
            attempt_duration: histogram!(ATTEMPT_DURATION, "host" => host.clone()),
            backoff_delay: histogram!(BACKOFF_DELAY, "host" => host.clone()),
            limit_headers: LimitHeader::EACH.map(|header| {
                from_zero(
                    counter!(LIMIT_HEADERS, "host" => host.clone(), "kind" => header.as_str()),
                )
            }),
            dead_letters: DeadLetterOutcome::ALL.map(|outcome| {
                let outcome = outcome.as_str();
                from_zero(counter!(DEAD_LETTERS, "host" => host.clone(), "outcome" => outcome))
            }),
            load: Mutex::default(),
            in_flight: gauge!(IN_FLIGHT, "host" => host.clone()),
            throttle: OnceLock::new(),
            host,
        }
    }

    /// Counts a call that ended.
    pub(super) fn stopped(&self, reason: StopReason) {
        let counter = &self.stopped[reason as usize];
        self.count_request(counter, reason.as_str());
    }

    /// Records a wait in line for an empty budget.
    pub(super) fn budget_wait(&self, wait: Duration) {
        let make = || histogram!(BUDGET_WAIT, "host" => self.host.clone());
        self.budget_wait.get_or_init(make).record(wait);
    }

    /// Counts a call that its caller dropped.
    pub(super) fn abandoned(&self) {
        self.count_request(&self.abandoned, "abandoned");
    }

    fn count_request(&self, counter: &OnceLock<Counter>, outcome: &'static str) {
        let make = || counter!(REQUESTS, "host" => self.host.clone(), "outcome" => outcome);
        counter.get_or_init(make).increment(1);
    }

    pub(super) fn retry(&self, cause: AttemptOutcome) {
        let make = || counter!(RETRIES, "host" => self.host.clone(), "reason" => cause.to_string());
        let mut counters = lock(&self.retries);
        counters.entry(cause).or_insert_with(make).increment(1);
    }

    /// Sets the balance. It is infinite without a budget, and then there is no gauge.
    pub(super) fn balance(&self, balance: f64) {
        if balance.is_finite() {
            let make = || gauge!(BUDGET_BALANCE, "host" => self.host.clone());
            self.budget_balance.get_or_init(make).set(balance);
        }
    }

    pub(super) fn limit_headers(&self, headers: LimitHeaders) {
        for header in headers.iter() {
            self.limit_headers[header as usize].increment(1);
        }
    }

    /// Adds to the attempts in progress.
    pub(super) fn add_attempts(&self, step: i64) {
        self.change_load(|load| load.attempts += step);
    }

    pub(super) fn throttle_load(&self, event: &ThrottleLoad) {
        let throttle = self.throttle();
        self.change_load(|load| {
            match event.change {
                LoadChange::Sent => load.sent += 1,
                LoadChange::Ended => load.sent -= 1,
                LoadChange::Queued => throttle.change_queue(load, 1),
                LoadChange::Left => throttle.change_queue(load, -1),
            }
            throttle.update_age(load, event);
        });
    }

    pub(super) fn throttle_wait(&self, wait: Duration) {
        self.throttle().limiter_wait.record(wait);
    }

    /// Shows a pause until it is over, even if no request comes that would notice its end.
    pub(super) fn throttle_pause(self: Arc<Self>, pause: Duration) {
        let end = clock::after(clock::now(), pause);
        let throttle = self.throttle();
        let mut shown = lock(&throttle.shown_pause);
        // Another gate of the host may be closed for longer.
        if shown.until.is_some_and(|until| end <= until) {
            return;
        }
        // Under the lock, so that the end of an earlier pause does not overtake it.
        shown.until = Some(end);
        throttle.pause.set(pause);
        // A request can be dropped outside a runtime. Then the next pause or release resets the gauge.
        let host = Arc::clone(&self);
        let timer = Handle::try_current().map(|runtime| {
            let timer = runtime.spawn(async move {
                sleep_until(end).await;
                host.end_throttle_pause();
            });
            timer.abort_handle()
        });
        if let Some(earlier) = std::mem::replace(&mut shown.timer, timer.ok()) {
            earlier.abort();
        }
    }

    /// Resets the gauge if no gate of the host is closed for longer.
    pub(super) fn end_throttle_pause(&self) {
        let throttle = self.throttle();
        let mut shown = lock(&throttle.shown_pause);
        let is_over = |until: &mut Instant| *until <= clock::now();
        if shown.until.take_if(is_over).is_some() {
            throttle.pause.set(0);
        }
    }

    pub(super) fn throttle_pace(&self, per_second: Option<f64>) {
        let make = || gauge!(PACE, "host" => self.host.clone());
        let pace = self.throttle().pace.get_or_init(make);
        pace.set(per_second.unwrap_or(f64::NAN));
    }

    fn throttle(&self) -> &ThrottleMetrics {
        self.throttle.get_or_init(|| ThrottleMetrics {
            queue_depth: gauge!(QUEUE_DEPTH, "host" => self.host.clone()),
            queue_age: gauge!(QUEUE_AGE, "host" => self.host.clone()),
            limiter_wait: histogram!(LIMITER_WAIT, "host" => self.host.clone()),
            pause: gauge!(PAUSE, "host" => self.host.clone()),
            shown_pause: Mutex::default(),
            pace: OnceLock::new(),
        })
    }

    /// Changes the load and moves the gauge of requests in flight.
    ///
    /// The gauge moves while the load is locked, so that threads cannot overtake each other. It moves in steps,
    /// so that several `Metrics` on one recorder add up.
    fn change_load(&self, change: impl FnOnce(&mut HostLoad)) {
        let mut load = lock(&self.load);
        let before = load.in_flight();
        change(&mut load);
        move_gauge(&self.in_flight, load.in_flight() - before);
    }
}

fn move_gauge(gauge: &Gauge, step: i64) {
    match step {
        0 => {}
        1.. => gauge.increment(step as f64),
        _ => gauge.decrement(-step as f64),
    }
}

impl ThrottleMetrics {
    fn change_queue(&self, load: &mut HostLoad, step: i64) {
        load.waiting += step;
        move_gauge(&self.queue_depth, step);
    }

    /// Sets the age of the queue, and resets it to 0 when the last attempt leaves.
    ///
    /// A host can have several gates, and an empty gate does not know the queues of the others. So the age comes
    /// only from a gate that has a queue.
    fn update_age(&self, load: &mut HostLoad, event: &ThrottleLoad) {
        if load.waiting == 0 {
            if load.has_age {
                load.has_age = false;
                self.queue_age.set(0);
            }
        } else if event.waiting > 0 {
            self.queue_age.set(event.oldest);
            load.has_age = true;
        }
    }
}

/// The work in progress for one host, over all middlewares.
#[derive(Default)]
struct HostLoad {
    /// Attempts of the retry, including those in the queue of a throttle inside it.
    attempts: i64,
    /// Attempts in queues of throttles.
    waiting: i64,
    /// Attempts that throttles sent.
    sent: i64,
    /// Whether the gauge of the queue's age may be above 0.
    has_age: bool,
}

impl HostLoad {
    /// Returns the attempts that no queue holds back.
    ///
    /// The retry's count is right if the retry is observed and the throttle is inside it. Otherwise the
    /// throttle's count is larger and right.
    fn in_flight(&self) -> i64 {
        self.sent.max(self.attempts - self.waiting)
    }
}
