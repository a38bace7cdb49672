//! Counts events for dashboards and alerts, behind the feature `metrics`.
//!
//! [`Metrics`] is an observer like any other. `catalogue` has the names, and a test keeps `docs/` in step with
//! them. `host` holds the handles that the recorder gave for one host.

mod catalogue;
#[cfg(test)]
mod docs_tests;
mod host;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use self::host::HostMetrics;
use super::{
    Abandoned, AttemptFinished, BudgetRefused, BudgetWaited, CallInfo, Observer, RetryScheduled,
    Stopped, ThrottleLoad, ThrottlePaced, ThrottlePaused, ThrottleRefused, ThrottleWaited,
};
use crate::hashed::HashedMap;
use crate::outcome::{AttemptOutcome, DeadLetterOutcome, FailureKind};

/// Enough hosts for one process, and few enough for Prometheus. Each host has about 20 series and four histograms.
const MAX_HOSTS: usize = 100;

/// The label of all hosts beyond the limit.
const OTHER: &str = "other";

/// Counts calls, retries and waits through the [`metrics`](https://docs.rs/metrics) facade.
///
/// Install your recorder first. Then create one `Metrics` and give it to both middlewares. A host uses the
/// recorder that is installed at its first event. Without a recorder, its counts are lost.
///
/// ```
/// use std::sync::Arc;
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::observe::Metrics;
/// use reqwest_steady::{RetryMiddleware, ThrottleMiddleware};
///
/// // metrics_exporter_prometheus::PrometheusBuilder::new().install()?;
/// let metrics = Arc::new(Metrics::new());
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::builder().observer(Arc::clone(&metrics)).build()?)
///     .with(ThrottleMiddleware::builder().observer(metrics).build()?)
///     .build();
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// Every metric has the label `host`, with the port if it is not the default port of the scheme. Only the first
/// 100 hosts get their own label, because unlimited host names could fill a database. All later hosts share
/// the label `other`.
///
/// | metric | kind | more labels | |
/// |---|---|---|---|
/// | `steady_requests_total` | counter | `outcome` | ended calls: the label of a [`StopReason`](crate::StopReason), or `abandoned` |
/// | `steady_retries_total` | counter | `reason` | retries by their cause: a status, or the label of a [`FailureKind`](crate::observe::FailureKind) |
/// | `steady_retry_budget_balance` | gauge | | retries that the budget allows now |
/// | `steady_retry_budget_exhausted_total` | counter | | retries that the budget refused |
/// | `steady_retry_budget_wait_seconds` | histogram | | waits in line while the budget was empty |
/// | `steady_call_duration_seconds` | histogram | | time from the start of a call to its response headers or error, with retries and waits |
/// | `steady_attempt_duration_seconds` | histogram | | time from sending an attempt to its response headers or error, without the queue |
/// | `steady_backoff_delay_seconds` | histogram | | waits before a retry |
/// | `steady_rate_limit_header_present_total` | counter | `kind` | responses with rate limit headers: the label of a [`LimitHeader`](crate::observe::LimitHeader) |
/// | `steady_inflight_requests` | gauge | | requests that wait for response headers |
/// | `steady_queue_depth` | gauge | | attempts in a throttle's queue |
/// | `steady_queue_age_seconds` | gauge | | age of the oldest queued attempt, when the queue last changed |
/// | `steady_rate_limiter_wait_seconds` | histogram | | waits in a throttle's queue, including waits that ended with a refusal |
/// | `steady_throttle_pace_requests_per_second` | gauge | | requests per second that a throttle allows; `NaN` while it does not limit them |
/// | `steady_throttle_pause_seconds` | gauge | | length of the current pause of a throttle; 0 while there is none |
/// | `steady_dead_letters_total` | counter | `outcome` | dead letters: the label of a [`DeadLetterOutcome`](crate::dead_letter::DeadLetterOutcome) |
///
/// - A dry run sends no retries, so it counts no retries and no waits.
/// - Without a budget there is no balance. Hosts that share a budget each show the balance at their last event.
/// - Pace and pause are those of a host. With several keys per host ([`KeyBy`](crate::KeyBy)), the pace is the one
///   that changed last, and the pause is the one that ends last.
/// - A background task resets the pause when it is over, so it needs no further request.
/// - Counters with few known labels start at 0 with the first event of a host, so that a rate sees their first
///   step: the exhausted budget, rate limit headers and dead letters. Other counters start at their first count.
/// - `Metrics` keeps the handles of the recorder. Do not use a recorder that forgets idle metrics (`idle_timeout` of
///   the Prometheus exporter), because a forgotten metric does not come back.
#[derive(Clone)]
pub struct Metrics(Arc<Hosts>);

/// The hosts that have their own label.
struct Hosts {
    /// By the hash of their names. At most `max` entries, which are never removed.
    named: RwLock<HashedMap<u64, Arc<HostMetrics>>>,
    /// Shared by all hosts that are not in `named`.
    other: OnceLock<Arc<HostMetrics>>,
    max: usize,
}

impl Metrics {
    /// Creates the metrics and describes them to the installed recorder.
    ///
    /// Clones share their counts.
    pub fn new() -> Self {
        Self::with_max_hosts(MAX_HOSTS)
    }

    /// Creates the metrics with another limit on the hosts that get their own label.
    ///
    /// Default: 100 hosts.
    pub fn with_max_hosts(max: usize) -> Self {
        catalogue::describe_all();
        Self(Arc::new(Hosts {
            named: RwLock::default(),
            other: OnceLock::new(),
            max,
        }))
    }

    /// Returns how many hosts get their own label.
    pub fn max_hosts(&self) -> usize {
        self.0.max
    }

    /// Counts something for the host of a call. No lock is held meanwhile, because a recorder may run any code.
    fn count(&self, call: &CallInfo<'_>, count: impl FnOnce(&HostMetrics)) {
        count(&self.host(call));
    }

    fn host(&self, call: &CallInfo<'_>) -> Arc<HostMetrics> {
        let known = self.0.find(call.host_hash);
        known.unwrap_or_else(|| self.0.add(call))
    }
}

impl Hosts {
    /// Returns the metrics of a host: its own, or those of all others if there are too many hosts.
    fn find(&self, hash: u64) -> Option<Arc<HostMetrics>> {
        let hosts = self.named.read().unwrap_or_else(PoisonError::into_inner);
        let own = hosts.get(&hash);
        // Hosts are never removed, so a full table stays full.
        let host = if own.is_none() && hosts.len() >= self.max {
            self.other.get()
        } else {
            own
        };
        host.cloned()
    }

    /// Gives a host its own label, or that of all others if there are too many.
    // A host is added once and found five times per call: 40 instructions of a GET with everything on.
    #[cold]
    fn add(&self, call: &CallInfo<'_>) -> Arc<HostMetrics> {
        if call.host != OTHER {
            let mut hosts = self.named.write().unwrap_or_else(PoisonError::into_inner);
            if hosts.len() < self.max || hosts.contains_key(&call.host_hash) {
                let new = || Arc::new(HostMetrics::new(call.host));
                return Arc::clone(hosts.entry(call.host_hash).or_insert_with(new));
            }
        }
        let other = self.other.get_or_init(|| Arc::new(HostMetrics::new(OTHER)));
        Arc::clone(other)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("hosts", &self.0.named.read().map_or(0, |hosts| hosts.len()))
            .field("max_hosts", &self.0.max)
            .finish()
    }
}

impl Observer for Metrics {
    fn attempt_started(&self, call: &CallInfo<'_>) {
        self.count(call, |host| host.add_attempts(1));
    }

    fn attempt_finished(&self, call: &CallInfo<'_>, attempt: &AttemptFinished) {
        self.count(call, |host| {
            host.add_attempts(-1);
            host.limit_headers(attempt.limit_headers);
            if attempt.outcome == AttemptOutcome::Failure(FailureKind::Throttled) {
                // It was not sent.
                return;
            }
            let in_flight = attempt.took.saturating_sub(attempt.queued);
            host.attempt_duration.record(in_flight);
            if let Some(cause) = attempt.retry_of {
                host.retry(cause);
            }
        });
    }

    fn retry_scheduled(&self, call: &CallInfo<'_>, retry: &RetryScheduled) {
        self.count(call, |host| {
            host.balance(retry.budget);
            if !retry.dry_run {
                host.backoff_delay.record(retry.wait);
            }
        });
    }

    fn budget_waited(&self, call: &CallInfo<'_>, waited: &BudgetWaited) {
        self.count(call, |host| host.budget_wait(waited.wait));
    }

    fn budget_refused(&self, call: &CallInfo<'_>, refused: &BudgetRefused) {
        self.count(call, |host| {
            host.balance(refused.budget);
            host.budget_exhausted.increment(1);
        });
    }

    fn stopped(&self, call: &CallInfo<'_>, stop: &Stopped) {
        self.count(call, |host| {
            host.stopped(stop.stop_reason);
            host.call_duration.record(stop.took);
            if let Some(balance) = stop.budget {
                host.balance(balance);
            }
        });
    }

    fn abandoned(&self, call: &CallInfo<'_>, abandoned: &Abandoned) {
        self.count(call, |host| {
            if abandoned.in_attempt {
                host.add_attempts(-1);
                if let Some(cause) = abandoned.retry_of {
                    host.retry(cause);
                }
            }
            host.abandoned();
        });
    }

    fn dead_lettered(&self, call: &CallInfo<'_>, outcome: DeadLetterOutcome) {
        self.count(call, |host| {
            host.dead_letters[outcome as usize].increment(1)
        });
    }

    fn throttle_load(&self, call: &CallInfo<'_>, load: &ThrottleLoad) {
        self.count(call, |host| host.throttle_load(load));
    }

    fn throttle_waited(&self, call: &CallInfo<'_>, waited: &ThrottleWaited) {
        self.count(call, |host| host.throttle_wait(waited.wait));
    }

    fn throttle_refused(&self, call: &CallInfo<'_>, refused: &ThrottleRefused) {
        // These are the longest waits, so they must count. An attempt that is refused at once did not wait.
        if !refused.waited.is_zero() {
            self.count(call, |host| host.throttle_wait(refused.waited));
        }
    }

    fn throttle_paused(&self, call: &CallInfo<'_>, paused: &ThrottlePaused) {
        self.host(call).throttle_pause(paused.pause);
    }

    fn throttle_released(&self, call: &CallInfo<'_>) {
        self.count(call, HostMetrics::end_throttle_pause);
    }

    fn throttle_paced(&self, call: &CallInfo<'_>, pace: &ThrottlePaced) {
        self.count(call, |host| host.throttle_pace(pace.per_second));
    }
}
