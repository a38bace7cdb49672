//! What is counted for one host.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::catalogue::{
    BACKOFF_DELAY, BUDGET_BALANCE, BUDGET_EXHAUSTED, DEAD_LETTERS, IN_FLIGHT, LIMIT_HEADERS,
    LIMITER_WAIT, QUEUE_AGE, QUEUE_DEPTH, REQUESTS, RETRIES,
};
use crate::observe::{LimitHeader, LimitHeaders, LoadChange, ThrottleLoad};
use crate::outcome::{AttemptOutcome, DeadLetterOutcome, StopReason};

/// The handles are kept, so that counting needs neither an allocation nor a search in the recorder.
pub(super) struct HostMetrics {
    host: Arc<str>,
    /// By why they ended. Made when they first count, as those that were abandoned.
    requests: [OnceLock<Counter>; StopReason::ALL.len()],
    abandoned: OnceLock<Counter>,
    retries: ByLabel<AttemptOutcome>,
    /// Made when there is a balance: a gauge that nobody sets would say 0, and so that it is empty.
    budget_balance: OnceLock<Gauge>,
    budget_exhausted: Counter,
    backoff_delay: Histogram,
    limit_headers: [Counter; LimitHeader::ALL.len()],
    dead_letters: [Counter; DEAD_LETTER_OUTCOMES.len()],
    load: Mutex<Load>,
    in_flight: Gauge,
    /// Made when a throttle tells of itself.
    throttle: OnceLock<ThrottleMetrics>,
}

const DEAD_LETTER_OUTCOMES: [DeadLetterOutcome; 4] = [
    DeadLetterOutcome::Delivered,
    DeadLetterOutcome::Failed,
    DeadLetterOutcome::TimedOut,
    DeadLetterOutcome::Panicked,
];

struct ThrottleMetrics {
    queue_depth: Gauge,
    queue_age: Gauge,
    limiter_wait: Histogram,
}

impl HostMetrics {
    pub(super) fn new(host: &str) -> Self {
        let host: Arc<str> = host.into();
        let from_zero = |counter: Counter| {
            counter.increment(0);
            counter
        };
        Self {
            requests: [const { OnceLock::new() }; StopReason::ALL.len()],
            abandoned: OnceLock::new(),
            retries: ByLabel::default(),
            budget_balance: OnceLock::new(),
            budget_exhausted: from_zero(counter!(BUDGET_EXHAUSTED, "host" => host.clone())),
            backoff_delay: histogram!(BACKOFF_DELAY, "host" => host.clone()),
            limit_headers: LimitHeader::EACH.map(|header| {
                from_zero(counter!(LIMIT_HEADERS, "host" => host.clone(), "kind" => header.label()))
            }),
            dead_letters: DEAD_LETTER_OUTCOMES.map(|outcome| {
                let outcome = outcome.label();
                from_zero(counter!(DEAD_LETTERS, "host" => host.clone(), "outcome" => outcome))
            }),
            load: Mutex::default(),
            in_flight: gauge!(IN_FLIGHT, "host" => host.clone()),
            throttle: OnceLock::new(),
            host,
        }
    }

    pub(super) fn request(&self, reason: StopReason) {
        self.count_request(&self.requests[reason as usize], reason.label());
    }

    pub(super) fn abandoned(&self) {
        self.count_request(&self.abandoned, "abandoned");
    }

    fn count_request(&self, counter: &OnceLock<Counter>, outcome: &'static str) {
        let make = || counter!(REQUESTS, "host" => self.host.clone(), "outcome" => outcome);
        counter.get_or_init(make).increment(1);
    }

    pub(super) fn retry(&self, cause: AttemptOutcome) {
        let make = || counter!(RETRIES, "host" => self.host.clone(), "reason" => cause.to_string());
        self.retries.get(cause, make).increment(1);
    }

    pub(super) fn backoff(&self, wait: Duration) {
        self.backoff_delay.record(wait);
    }

    /// Infinite where there is no budget.
    pub(super) fn balance(&self, balance: f64) {
        if balance.is_finite() {
            let make = || gauge!(BUDGET_BALANCE, "host" => self.host.clone());
            self.budget_balance.get_or_init(make).set(balance);
        }
    }

    pub(super) fn budget_exhausted(&self) {
        self.budget_exhausted.increment(1);
    }

    pub(super) fn limit_headers(&self, headers: LimitHeaders) {
        if headers == LimitHeaders::default() {
            return;
        }
        for (header, counter) in LimitHeader::ALL.iter().zip(&self.limit_headers) {
            if headers.contains(*header) {
                counter.increment(1);
            }
        }
    }

    pub(super) fn dead_letter(&self, outcome: DeadLetterOutcome) {
        // Written out, so that a new one cannot be forgotten here.
        let place = match outcome {
            DeadLetterOutcome::Delivered => 0,
            DeadLetterOutcome::Failed => 1,
            DeadLetterOutcome::TimedOut => 2,
            DeadLetterOutcome::Panicked => 3,
        };
        self.dead_letters[place].increment(1);
    }

    pub(super) fn attempt_started(&self) {
        self.change_load(|load| load.attempts += 1);
    }

    pub(super) fn attempt_ended(&self) {
        self.change_load(|load| load.attempts -= 1);
    }

    pub(super) fn throttle_load(&self, told: &ThrottleLoad) {
        let throttle = self.throttle();
        self.change_load(|load| {
            match told.change {
                LoadChange::Sent => load.sent += 1,
                LoadChange::Ended => load.sent -= 1,
                LoadChange::Queued => throttle.change_queue(load, 1),
                LoadChange::Left => throttle.change_queue(load, -1),
            }
            // Most have no queue, and had none.
            if load.waiting != 0 || load.aged {
                throttle.tell_age(load, told);
            }
        });
    }

    pub(super) fn throttle_wait(&self, wait: Duration) {
        self.throttle().limiter_wait.record(wait);
    }

    fn throttle(&self) -> &ThrottleMetrics {
        self.throttle.get_or_init(|| ThrottleMetrics {
            queue_depth: gauge!(QUEUE_DEPTH, "host" => self.host.clone()),
            queue_age: gauge!(QUEUE_AGE, "host" => self.host.clone()),
            limiter_wait: histogram!(LIMITER_WAIT, "host" => self.host.clone()),
        })
    }

    /// Gauges move while the counts are locked, so that no thread overtakes another; and in steps, so that
    /// several `Metrics` at one recorder add up.
    fn change_load(&self, change: impl FnOnce(&mut Load)) {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        let before = load.in_flight();
        change(&mut load);
        match load.in_flight() - before {
            0 => {}
            step => self.move_in_flight(step),
        }
    }

    #[inline(never)] // Half of all changes make no difference.
    fn move_in_flight(&self, step: i64) {
        match step {
            1.. => self.in_flight.increment(step as f64),
            _ => self.in_flight.decrement(-step as f64),
        }
    }
}

impl ThrottleMetrics {
    #[cold]
    fn change_queue(&self, load: &mut Load, step: i64) {
        load.waiting += step;
        match step {
            1.. => self.queue_depth.increment(step as f64),
            _ => self.queue_depth.decrement(-step as f64),
        }
    }

    /// What another thread saw before must not outlive the last who waited. And a host may have several
    /// gates: an empty one says nothing of the others.
    #[cold]
    fn tell_age(&self, load: &mut Load, told: &ThrottleLoad) {
        if load.waiting == 0 {
            load.aged = false;
            self.queue_age.set(0);
        } else if told.waiting > 0 {
            self.queue_age.set(told.oldest);
            load.aged = true;
        }
    }
}

/// What the middlewares have under way.
#[derive(Default)]
struct Load {
    /// Of the retry: with those that wait in a throttle inside of it.
    attempts: i64,
    /// In throttles' queues.
    waiting: i64,
    /// By throttles.
    sent: i64,
    /// The age of the queue was told, and is not 0.
    aged: bool,
}

impl Load {
    /// What the retry has under way and no throttle holds back. Where only a throttle is observed, or
    /// it is outside of the retry, what the throttle has sent.
    fn in_flight(&self) -> i64 {
        self.sent.max(self.attempts - self.waiting)
    }
}

/// A counter for each value of a label, made when it is first needed.
struct ByLabel<L>(RwLock<Vec<(L, Counter)>>);

impl<L: Copy + PartialEq> ByLabel<L> {
    fn get(&self, label: L, make: impl FnOnce() -> Counter) -> Counter {
        let find = |counters: &[(L, Counter)]| {
            let mut counters = counters.iter();
            counters
                .find(|(known, _)| *known == label)
                .map(|(_, counter)| counter.clone())
        };
        let known = find(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        known.unwrap_or_else(|| {
            let mut counters = self.0.write().unwrap_or_else(PoisonError::into_inner);
            find(&counters).unwrap_or_else(|| {
                let counter = make();
                counters.push((label, counter.clone()));
                counter
            })
        })
    }
}

impl<L> Default for ByLabel<L> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}
