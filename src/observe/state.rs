//! What a client knows of each host at one moment, as plain data.
//!
//! [`Steady::state`](crate::Steady::state) fills these types. Events tell what changes; a state tells what is.

use std::time::Duration;

use crate::outcome::{GateLimit, PauseSource};

/// Shows what a client knows of all hosts at one moment.
///
/// [`Steady::state`](crate::Steady::state) returns it. It is bounded: a client remembers at most 4,096 hosts and 4,096
/// gates.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SteadyState {
    /// The hosts, sorted by name.
    pub hosts: Vec<HostState>,
    /// The gates whose keys a function of [`KeyBy::from_fn`](crate::KeyBy::from_fn) made, the longest queue first.
    ///
    /// A gate like this has requests to any host. Its key may be secret, so nothing shows it.
    pub private_gates: Vec<GateView>,
}

/// Shows what a client knows of one host at one moment.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HostState {
    /// The host, with the port if it is not the default port of the scheme.
    pub host: String,
    /// How many retries the [`Budget`](crate::Budget) would pay for now. `None` if it is unlimited.
    ///
    /// If [`budget`](crate::RetryMiddlewareBuilder::budget) replaces the budgets of all hosts, all hosts show that one. Of a
    /// budget that a fleet shares, this is the part that the worker has on its own.
    pub budget_balance: Option<f64>,
    /// How many attempts in a row have failed: the most that a gate has counted.
    ///
    /// Without gates, the retry counts: attempts that were sent together once, and only those of calls that could be
    /// retried.
    pub failures_in_a_row: u32,
    /// How many calls [wait in line](crate::guide::admit#waiting-in-line) for an empty budget.
    pub in_line: usize,
    /// The gates of the throttle for this host, sorted by key.
    ///
    /// By default there is one. [`KeyBy::HostAndPath`](crate::KeyBy::HostAndPath) makes several,
    /// [`KeyBy::from_fn`](crate::KeyBy::from_fn) none.
    pub gates: Vec<GateView>,
}

/// Shows one gate of a throttle at one moment: its circuit breaker, limits and queue.
///
/// A gate limits the requests of one key: see [`KeyBy`](crate::KeyBy).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GateView {
    /// The host, or the host and the beginning of the path, as [`KeyBy`](crate::KeyBy) selects.
    ///
    /// `None` if a function of yours made it.
    pub key: Option<String>,
    /// The state of the circuit breaker.
    pub breaker: BreakerState,
    /// The limit that the first call in the queue waits for. `None` if no call waits.
    pub limited_by: Option<GateLimit>,
    /// How many attempts in a row have failed, by a 5xx or without a response. `None` if the throttle does not learn.
    ///
    /// Attempts that were in flight when a pause began do not count.
    pub failures_in_a_row: Option<u32>,
    /// The rate that the throttle has learned, in requests per second. `None` if it does not limit the rate.
    #[cfg_attr(feature = "serde", serde(rename = "pace_per_second"))]
    pub pace: Option<f64>,
    /// How many requests may be in flight at once, as the throttle has learned. `None` if it does not learn.
    ///
    /// While the circuit breaker probes, only the probe may go.
    pub window: Option<u32>,
    /// The setting [`max_in_flight`](crate::ThrottleMiddlewareBuilder::max_in_flight).
    pub max_in_flight: u32,
    /// The setting [`rate`](crate::ThrottleMiddlewareBuilder::rate), in requests per second. `None` if there is none.
    #[cfg_attr(feature = "serde", serde(rename = "rate_per_second"))]
    pub rate: Option<f64>,
    /// Whether a [fleet](crate::fleet) shares the limits.
    pub has_fleet: bool,
    /// The number of requests that wait for response headers.
    pub in_flight: u32,
    /// The number of queued attempts.
    pub queued: usize,
    /// The age of the oldest queued attempt. Zero if the queue is empty.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "oldest_wait_ms", serialize_with = "as_millis")
    )]
    pub oldest_wait: Duration,
}

/// Tells whether a circuit breaker lets requests pass.
///
/// Nothing opens or closes it by hand: the throttle reads the server's responses. Electricians and this crate use the
/// same two words for opposite things, so the variants use neither:
///
/// | variant | circuit breaker | gate of the throttle |
/// |---|---|---|
/// | `Passing` | closed | open |
/// | `Paused` | open | closed |
/// | `Probing` | half-open | half-open |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "state", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum BreakerState {
    /// Requests go, as fast as the limits of the gate allow.
    Passing,
    /// No request goes. Calls wait in the queue.
    ///
    /// After a failure or a refusal, a probe follows the pause. If it succeeds, the other calls follow.
    #[non_exhaustive]
    Paused {
        /// How long the pause still lasts.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "remaining_ms", serialize_with = "as_millis")
        )]
        remaining: Duration,
        /// Who asked for the pause.
        asked_by: PauseSource,
    },
    /// One request goes at a time, as a probe. The first that succeeds lets the others follow.
    Probing,
}

impl BreakerState {
    /// Returns a stable name in snake_case, for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Paused { .. } => "paused",
            Self::Probing => "probing",
        }
    }
}

#[cfg(feature = "serde")]
fn as_millis<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Shows the label.
impl std::fmt::Display for BreakerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
