//! What there is to count, and what it is called.

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
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) description: &'static str,
}

const fn entry(name: &'static str, kind: Kind, unit: Unit, description: &'static str) -> Entry {
    Entry {
        name,
        kind,
        unit,
        description,
    }
}

pub(super) const ALL: [Entry; 11] = [
    entry(
        REQUESTS,
        Kind::Counter,
        Unit::Count,
        "Calls that ended, by why they ended.",
    ),
    entry(
        RETRIES,
        Kind::Counter,
        Unit::Count,
        "Retries that were sent, by the status or failure that they repeat.",
    ),
    entry(
        BUDGET_BALANCE,
        Kind::Gauge,
        Unit::Count,
        "Retries that the budget would pay for now.",
    ),
    entry(
        BUDGET_EXHAUSTED,
        Kind::Counter,
        Unit::Count,
        "Retries that were not made because the budget was empty.",
    ),
    entry(
        BACKOFF_DELAY,
        Kind::Histogram,
        Unit::Seconds,
        "Waits before a retry.",
    ),
    entry(
        LIMIT_HEADERS,
        Kind::Counter,
        Unit::Count,
        "Answers with headers that tell of a limit, by the family of the headers.",
    ),
    entry(
        IN_FLIGHT,
        Kind::Gauge,
        Unit::Count,
        "Requests that wait for the head of their answer.",
    ),
    entry(
        QUEUE_DEPTH,
        Kind::Gauge,
        Unit::Count,
        "Attempts that wait for their turn in a throttle.",
    ),
    entry(
        QUEUE_AGE,
        Kind::Gauge,
        Unit::Seconds,
        "How long the attempt has waited that waits longest, when the queue last changed.",
    ),
    entry(
        LIMITER_WAIT,
        Kind::Histogram,
        Unit::Seconds,
        "Waits for a turn in a throttle, also those that ended with a refusal.",
    ),
    entry(
        DEAD_LETTERS,
        Kind::Counter,
        Unit::Count,
        "Letters about calls that were given up, by what became of them.",
    ),
];

/// Tells the recorder that is there now.
pub(super) fn describe_all() {
    for entry in ALL {
        match entry.kind {
            Kind::Counter => describe_counter!(entry.name, entry.unit, entry.description),
            Kind::Gauge => describe_gauge!(entry.name, entry.unit, entry.description),
            Kind::Histogram => describe_histogram!(entry.name, entry.unit, entry.description),
        }
    }
}
