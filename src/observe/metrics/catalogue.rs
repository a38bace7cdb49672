//! The names, kinds, units and descriptions of all metrics.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

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

macro_rules! catalogue {
    ($($constant:ident = $name:literal, $kind:ident, $unit:ident, $description:literal;)+) => {
        $(pub(super) const $constant: &str = $name;)+

        pub(super) const ALL: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind,
            unit: Unit::$unit,
            description: $description,
        }),+];
    };
}

catalogue! {
    REQUESTS = "steady_requests_total", Counter, Count,
        "Ended calls, by the reason why they ended.";
    RETRIES = "steady_retries_total", Counter, Count,
        "Retries that were sent, by the status or failure that caused them.";
    BUDGET_BALANCE = "steady_retry_budget_balance", Gauge, Count,
        "Retries that the budget allows now.";
    BUDGET_EXHAUSTED = "steady_retry_budget_exhausted_total", Counter, Count,
        "Retries that were not sent because the budget was empty.";
    BUDGET_WAIT = "steady_retry_budget_wait_seconds", Histogram, Seconds,
        "Waits in line while the budget was empty, including waits that ended without a retry.";
    CALL_DURATION = "steady_call_duration_seconds", Histogram, Seconds,
        "Time from the start of a call to its response headers or error, with retries and waits.";
    ATTEMPT_DURATION = "steady_attempt_duration_seconds", Histogram, Seconds,
        "Time from sending an attempt to its response headers or error, without the queue.";
    BACKOFF_DELAY = "steady_backoff_delay_seconds", Histogram, Seconds,
        "Waits before a retry.";
    LIMIT_HEADERS = "steady_rate_limit_header_present_total", Counter, Count,
        "Responses with rate limit headers, by the family of the headers.";
    IN_FLIGHT = "steady_inflight_requests", Gauge, Count,
        "Requests that wait for response headers.";
    QUEUE_DEPTH = "steady_queue_depth", Gauge, Count,
        "Attempts in the queue of a throttle.";
    QUEUE_AGE = "steady_queue_age_seconds", Gauge, Seconds,
        "Age of the oldest queued attempt, when the queue last changed.";
    LIMITER_WAIT = "steady_rate_limiter_wait_seconds", Histogram, Seconds,
        "Waits in the queue of a throttle, including waits that ended with a refusal.";
    PACE = "steady_throttle_pace_requests_per_second", Gauge, CountPerSecond,
        "Requests per second that a throttle allows, NaN while it does not limit them.";
    PAUSE = "steady_throttle_pause_seconds", Gauge, Seconds,
        "Length of the current pause of a throttle, 0 while there is none.";
    DEAD_LETTERS = "steady_dead_letters_total", Counter, Count,
        "Dead letters, by the outcome of their delivery.";
}

/// Describes all metrics to the installed recorder.
pub(super) fn describe_all() {
    for metric in ALL {
        let (name, unit, description) = (metric.name, metric.unit, metric.description);
        match metric.kind {
            MetricKind::Counter => describe_counter!(name, unit, description),
            MetricKind::Gauge => describe_gauge!(name, unit, description),
            MetricKind::Histogram => describe_histogram!(name, unit, description),
        }
    }
}
