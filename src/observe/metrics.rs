//! Numbers for a dashboard, behind the feature `metrics`.

mod catalogue;
#[cfg(test)]
mod docs_tests;
mod host;
mod known;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use self::host::HostMetrics;
use self::known::Known;
use super::{
    Abandoned, AttemptFinished, BudgetRefused, CallInfo, Observer, RetryScheduled, Stopped,
    ThrottleLoad, ThrottleRefused, ThrottleWaited,
};
use crate::outcome::{AttemptOutcome, DeadLetterOutcome, FailureKind};

/// Enough for the services that one process talks to, and few enough for Prometheus: each has some
/// twenty series.
const MAX_HOSTS: usize = 100;

/// The label of all hosts that came too late for one of their own.
const OTHER: &str = "other";

/// Counts what happens to calls, through the [`metrics`](https://docs.rs/metrics) facade.
///
/// Install your recorder first, then make one of these and give it to both middlewares. What is counted
/// goes to the recorder that is there when a host is seen for the first time; without any, it goes
/// nowhere.
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
/// Every metric has the label `host`, with the port if it is not the scheme's own. Names that callers
/// make up must not fill a database, so only the first hundred hosts get a label of their own; all later
/// ones are `other`.
///
/// | metric | kind | more labels | |
/// |---|---|---|---|
/// | `steady_requests_total` | counter | `outcome` | calls that ended: the label of a [`StopReason`](crate::StopReason), or `abandoned` |
/// | `steady_retries_total` | counter | `reason` | retries, by what they repeat: a status, or the label of a [`FailureKind`](crate::FailureKind) |
/// | `steady_retry_budget_balance` | gauge | | retries that the budget would pay for now |
/// | `steady_retry_budget_exhausted_total` | counter | | retries that it did not pay for |
/// | `steady_backoff_delay_seconds` | histogram | | waits before a retry |
/// | `steady_rate_limit_header_present_total` | counter | `kind` | answers that told of a limit: the label of a [`LimitHeader`](crate::LimitHeader) |
/// | `steady_inflight_requests` | gauge | | requests that wait for the head of their answer |
/// | `steady_queue_depth` | gauge | | attempts that wait for their turn in a throttle |
/// | `steady_queue_age_seconds` | gauge | | how long the one has waited that waits longest, when the queue last changed |
/// | `steady_rate_limiter_wait_seconds` | histogram | | waits in a throttle, also those that ended with a refusal |
/// | `steady_dead_letters_total` | counter | `outcome` | letters about calls that were given up: the label of a [`DeadLetterOutcome`](crate::DeadLetterOutcome) |
///
/// - A dry run sends nothing again, so it counts no retry and no wait before one.
/// - The balance is missing where there is no budget. Hosts that share one show what each of them saw last.
/// - Counters whose labels are few and known start with 0 when the host is first seen, so that their first
///   step is not missed: the exhausted budget, limit headers and dead letters. The others appear when they
///   first count.
/// - What the recorder hands out is kept: one that forgets metrics after a time (`idle_timeout` of the
///   Prometheus exporter) would not see a forgotten one again.
#[derive(Clone)]
pub struct Metrics(Arc<Hosts>);

struct Hosts {
    known: Known,
    other: OnceLock<Box<HostMetrics>>,
    max: usize,
}

impl Metrics {
    /// Tells the recorder what there is to count. Clones share what they count.
    pub fn new() -> Self {
        Self::with_max_hosts(MAX_HOSTS)
    }

    /// The same with another number of hosts that get a label of their own.
    pub fn with_max_hosts(max: usize) -> Self {
        catalogue::describe_all();
        Self(Arc::new(Hosts {
            known: Known::default(),
            other: OnceLock::new(),
            max,
        }))
    }

    #[inline] // Most hosts are those of the event before.
    fn of(&self, call: &CallInfo<'_>) -> &HostMetrics {
        let hosts = &*self.0;
        match hosts.known.last(call.host) {
            Some(host) => host,
            None => hosts.find(call.host),
        }
    }
}

impl Hosts {
    #[inline(never)]
    fn find(&self, host: &str) -> &HostMetrics {
        let full = self.known.is_full();
        match self.known.search(host) {
            Some(host) => host,
            None if full => self.other(),
            None => self.add(host),
        }
    }

    fn add(&self, host: &str) -> &HostMetrics {
        // One that bears the name of the others shares it.
        let own = (host != OTHER).then(|| self.known.add(host, self.max));
        own.flatten().unwrap_or_else(|| self.other())
    }

    fn other(&self) -> &HostMetrics {
        (self.other).get_or_init(|| Box::new(HostMetrics::new(OTHER)))
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
            .field("hosts", &self.0.known.len())
            .field("max_hosts", &self.0.max)
            .finish()
    }
}

impl Observer for Metrics {
    fn attempt_started(&self, call: &CallInfo<'_>) {
        self.of(call).attempt_started();
    }

    fn attempt_finished(&self, call: &CallInfo<'_>, attempt: &AttemptFinished) {
        let host = self.of(call);
        host.attempt_ended();
        host.limit_headers(attempt.limit_headers);
        let was_sent = attempt.outcome != AttemptOutcome::Failure(FailureKind::Throttled);
        if let Some(cause) = attempt.retry_of.filter(|_| was_sent) {
            host.retry(cause);
        }
    }

    fn retry_scheduled(&self, call: &CallInfo<'_>, retry: &RetryScheduled) {
        let host = self.of(call);
        host.balance(retry.budget);
        if !retry.dry_run {
            host.backoff(retry.wait);
        }
    }

    fn budget_refused(&self, call: &CallInfo<'_>, refused: &BudgetRefused) {
        let host = self.of(call);
        host.balance(refused.budget);
        host.budget_exhausted();
    }

    fn stopped(&self, call: &CallInfo<'_>, stop: &Stopped) {
        let host = self.of(call);
        host.request(stop.reason);
        if let Some(balance) = stop.budget {
            host.balance(balance);
        }
    }

    fn abandoned(&self, call: &CallInfo<'_>, abandoned: &Abandoned) {
        let host = self.of(call);
        if abandoned.in_attempt {
            host.attempt_ended();
            if let Some(cause) = abandoned.retry_of {
                host.retry(cause);
            }
        }
        host.abandoned();
    }

    fn dead_lettered(&self, call: &CallInfo<'_>, outcome: DeadLetterOutcome) {
        self.of(call).dead_letter(outcome);
    }

    fn throttle_load(&self, call: &CallInfo<'_>, load: &ThrottleLoad) {
        self.of(call).throttle_load(load);
    }

    fn throttle_waited(&self, call: &CallInfo<'_>, waited: &ThrottleWaited) {
        self.of(call).throttle_wait(waited.wait);
    }

    fn throttle_refused(&self, call: &CallInfo<'_>, refused: &ThrottleRefused) {
        // Left out, the longest waits of all would be missing. Who is refused at once has not waited.
        if !refused.waited.is_zero() {
            self.of(call).throttle_wait(refused.waited);
        }
    }
}
