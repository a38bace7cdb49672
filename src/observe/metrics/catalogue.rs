//! The names, kinds, units and descriptions of all metrics.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(super) const REQUESTS: &str = "steady_requests_total";
pub(super) const RETRIES: &str = "steady_retries_total";
pub(super) const BUDGET_BALANCE: &str = "steady_retry_budget_balance";
pub(super) const BUDGET_EXHAUSTED: &str = "steady_retry_budget_exhausted_total";
pub(super) const BACKOFF_DELAY: &str = "steady_backoff_delay_seconds";
pub(super) const LIMIT_HEADERS: &str = "steady_rate_limit_header_present_total";
pub(super) const IN_FLIGHT: &str = "steady_inflight_requests";
pub(super) const QUEUE_DEPTH: &str = "steady_queue_depth";
pub(super) const QUEUE_AGE: &str = "steady_queue_age_seconds";
pub(super) const LIMITER_WAIT: &str = "steady_rate_limiter_wait_seconds";
pub(super) const DEAD_LETTERS: &str = "steady_dead_letters_total";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) unit: Unit,
    pub(super) description: &'static str,
}

const fn metric(
    name: &'static str,
    kind: MetricKind,
    unit: Unit,
    description: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        unit,
        description,
    }
}

pub(super) const ALL: [Metric; 11] = [
    metric(
        REQUESTS,
        MetricKind::Counter,
        Unit::Count,
        "Ended calls, by the reason why they ended.",
    ),
    metric(
        RETRIES,
        MetricKind::Counter,
        Unit::Count,
        "Retries that were sent, by the status or failure that caused them.",
    ),
    metric(
        BUDGET_BALANCE,
        MetricKind::Gauge,
        Unit::Count,
        "Retries that the budget allows now.",
    ),
    metric(
        BUDGET_EXHAUSTED,
        MetricKind::Counter,
        Unit::Count,
        "Retries that were not sent because the budget was empty.",
    ),
    metric(
        BACKOFF_DELAY,
        MetricKind::Histogram,
        Unit::Seconds,
        "Waits before a retry.",
    ),
    metric(
        LIMIT_HEADERS,
        MetricKind::Counter,
        Unit::Count,
        "Responses with rate limit headers, by the family of the headers.",
    ),
    metric(
        IN_FLIGHT,
        MetricKind::Gauge,
        Unit::Count,
        "Requests that wait for response headers.",
    ),
    metric(
        QUEUE_DEPTH,
        MetricKind::Gauge,
        Unit::Count,
        "Attempts in the queue of a throttle.",
    ),
    metric(
        QUEUE_AGE,
        MetricKind::Gauge,
        Unit::Seconds,
        "Age of the oldest queued attempt, when the queue last changed.",
    ),
    metric(
        LIMITER_WAIT,
        MetricKind::Histogram,
        Unit::Seconds,
        "Waits in the queue of a throttle, including waits that ended with a refusal.",
    ),
    metric(
        DEAD_LETTERS,
        MetricKind::Counter,
        Unit::Count,
        "Dead letters, by the outcome of their delivery.",
    ),
];

/// Describes all metrics to the installed recorder.
pub(super) fn describe_all() {
    for metric in ALL {
        match metric.kind {
            MetricKind::Counter => describe_counter!(metric.name, metric.unit, metric.description),
            MetricKind::Gauge => describe_gauge!(metric.name, metric.unit, metric.description),
            MetricKind::Histogram => {
                describe_histogram!(metric.name, metric.unit, metric.description)
            }
        }
    }
}
