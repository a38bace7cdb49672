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

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use self::host::HostMetrics;
use super::{
    Abandoned, AttemptFinished, BudgetRefused, CallInfo, Observer, RetryScheduled, Stopped,
    ThrottleLoad, ThrottleRefused, ThrottleWaited,
};
use crate::lock::lock;
use crate::outcome::{AttemptOutcome, DeadLetterOutcome, FailureKind};

/// Enough hosts for one process, and few enough for Prometheus. Each host has about 20 series.
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
/// use reqwest_steady::{Metrics, RetryMiddleware, ThrottleMiddleware};
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
/// | `steady_retries_total` | counter | `reason` | retries by their cause: a status, or the label of a [`FailureKind`](crate::FailureKind) |
/// | `steady_retry_budget_balance` | gauge | | retries that the budget allows now |
/// | `steady_retry_budget_exhausted_total` | counter | | retries that the budget refused |
/// | `steady_backoff_delay_seconds` | histogram | | waits before a retry |
/// | `steady_rate_limit_header_present_total` | counter | `kind` | responses with rate limit headers: the label of a [`LimitHeader`](crate::LimitHeader) |
/// | `steady_inflight_requests` | gauge | | requests that wait for response headers |
/// | `steady_queue_depth` | gauge | | attempts in a throttle's queue |
/// | `steady_queue_age_seconds` | gauge | | age of the oldest queued attempt, when the queue last changed |
/// | `steady_rate_limiter_wait_seconds` | histogram | | waits in a throttle's queue, including waits that ended with a refusal |
/// | `steady_dead_letters_total` | counter | `outcome` | dead letters: the label of a [`DeadLetterOutcome`](crate::DeadLetterOutcome) |
///
/// - A dry run sends no retries, so it counts no retries and no waits.
/// - Without a budget there is no balance. Hosts that share a budget each show the balance at their last event.
/// - Counters with few known labels start at 0 with the first event of a host, so that a rate sees their first
///   step: the exhausted budget, rate limit headers and dead letters. Other counters start at their first count.
/// - `Metrics` keeps the handles of the recorder. Do not use a recorder that forgets idle metrics (`idle_timeout` of
///   the Prometheus exporter), because a forgotten metric does not come back.
#[derive(Clone)]
pub struct Metrics(Arc<Hosts>);

/// The hosts that have their own label.
struct Hosts {
    /// At most `max` entries, which are never removed.
    named: Mutex<BTreeMap<Box<str>, Arc<HostMetrics>>>,
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
            named: Mutex::default(),
            other: OnceLock::new(),
            max,
        }))
    }

    fn host(&self, call: &CallInfo<'_>) -> Arc<HostMetrics> {
        self.0.find_or_add(call.host)
    }
}

impl Hosts {
    fn find_or_add(&self, name: &str) -> Arc<HostMetrics> {
        let mut named = lock(&self.named);
        if let Some(host) = named.get(name) {
            return Arc::clone(host);
        }
        if named.len() >= self.max || name == OTHER {
            return self.other();
        }
        let host = Arc::new(HostMetrics::new(name));
        named.insert(name.into(), Arc::clone(&host));
        host
    }

    fn count(&self) -> usize {
        lock(&self.named).len()
    }

    fn other(&self) -> Arc<HostMetrics> {
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
            .field("hosts", &self.0.count())
            .field("max_hosts", &self.0.max)
            .finish()
    }
}

impl Observer for Metrics {
    fn attempt_started(&self, call: &CallInfo<'_>) {
        self.host(call).attempt_started();
    }

    fn attempt_finished(&self, call: &CallInfo<'_>, attempt: &AttemptFinished) {
        let host = self.host(call);
        host.attempt_ended();
        host.limit_headers(attempt.limit_headers);
        let was_sent = attempt.outcome != AttemptOutcome::Failure(FailureKind::Throttled);
        if let Some(cause) = attempt.retry_of.filter(|_| was_sent) {
            host.retry(cause);
        }
    }

    fn retry_scheduled(&self, call: &CallInfo<'_>, retry: &RetryScheduled) {
        let host = self.host(call);
        host.balance(retry.budget);
        if !retry.dry_run {
            host.backoff_delay.record(retry.wait);
        }
    }

    fn budget_refused(&self, call: &CallInfo<'_>, refused: &BudgetRefused) {
        let host = self.host(call);
        host.balance(refused.budget);
        host.budget_exhausted.increment(1);
    }

    fn stopped(&self, call: &CallInfo<'_>, stop: &Stopped) {
        let host = self.host(call);
        host.request(stop.reason.label());
        if let Some(balance) = stop.budget {
            host.balance(balance);
        }
    }

    fn abandoned(&self, call: &CallInfo<'_>, abandoned: &Abandoned) {
        let host = self.host(call);
        if abandoned.in_attempt {
            host.attempt_ended();
            if let Some(cause) = abandoned.retry_of {
                host.retry(cause);
            }
        }
        host.request("abandoned");
    }

    fn dead_lettered(&self, call: &CallInfo<'_>, outcome: DeadLetterOutcome) {
        self.host(call).dead_letters[outcome as usize].increment(1);
    }

    fn throttle_load(&self, call: &CallInfo<'_>, load: &ThrottleLoad) {
        self.host(call).throttle_load(load);
    }

    fn throttle_waited(&self, call: &CallInfo<'_>, waited: &ThrottleWaited) {
        self.host(call).throttle_wait(waited.wait);
    }

    fn throttle_refused(&self, call: &CallInfo<'_>, refused: &ThrottleRefused) {
        // These are the longest waits, so they must count. An attempt that is refused at once did not wait.
        if !refused.waited.is_zero() {
            self.host(call).throttle_wait(refused.waited);
        }
    }
}
