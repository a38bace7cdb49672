//! The events of a call, as observers receive them.
//!
//! Events carry the host and no other part of the URL, no header values and no error texts. So nothing in them
//! needs to be redacted.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, Method};

use crate::outcome::{
    AttemptOutcome, DeadLetterOutcome, Effect, PauseSource, RefusalReason, StopReason, WaitReason,
};

/// Identifies the call that an event belongs to.
///
/// It holds the host and no other part of the URL, because paths and queries can contain private data.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct CallInfo<'a> {
    /// The method of the request.
    pub method: &'a Method,
    /// The host of the URL, with the port if it is not the default port of the scheme.
    pub host: &'a str,
    /// The number of the attempt: 1 for the first, 2 for the first retry, and so on.
    pub attempt: u32,
    /// Finds the host in tables, without hashing its name for each event. Only metrics have such tables.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    pub(crate) host_hash: u64,
}

impl fmt::Debug for CallInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallInfo")
            .field("method", self.method)
            .field("host", &self.host)
            .field("attempt", &self.attempt)
            .finish()
    }
}

/// Describes one step of a call, for [`observe_fn`](crate::RetryMiddlewareBuilder::observe_fn).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The call.
    pub call: CallInfo<'a>,
    /// What happened to the call.
    pub kind: EventKind,
}

/// Lists what can happen to a call, with one variant for each method of [`Observer`](crate::observe::Observer).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// The call started.
    CallStarted,
    /// An attempt started. It is sent, or it enters a throttle inside the retry.
    AttemptStarted,
    /// The attempt ended, with or without a response.
    AttemptFinished(AttemptFinished),
    /// The call will be retried after a wait.
    RetryScheduled(RetryScheduled),
    /// The call waited in line, because the budget was empty, and the wait is over.
    BudgetWaited(BudgetWaited),
    /// The call was not retried because the budget is empty.
    BudgetRefused(BudgetRefused),
    /// The call ended. Its caller gets the response or error.
    Stopped(Stopped),
    /// The caller dropped the call.
    Abandoned(Abandoned),
    /// The delivery of the dead letter of a call ended.
    DeadLettered(DeadLetterOutcome),
    /// The load of a throttle changed.
    ThrottleLoad(ThrottleLoad),
    /// An attempt waited in a throttle's queue and is sent now.
    ThrottleWaited(ThrottleWaited),
    /// A throttle refused an attempt.
    ThrottleRefused(ThrottleRefused),
    /// A throttle closed, because the server asked for a pause or is failing.
    ThrottlePaused(ThrottlePaused),
    /// A closed throttle opened again.
    ThrottleReleased,
    /// The pace of a throttle changed.
    ThrottlePaced(ThrottlePaced),
}

/// Describes how an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttemptFinished {
    /// The status or the kind of error.
    pub outcome: AttemptOutcome,
    /// The outcome of the previous attempt, if this attempt is a retry.
    pub retry_of: Option<AttemptOutcome>,
    /// The time since the attempt started, including the time in a throttle's queue.
    pub took: Duration,
    /// The part of `took` that the attempt spent in a throttle's queue.
    pub queued: Duration,
    /// The families of rate limit headers in the response.
    pub limit_headers: LimitHeaders,
}

/// Describes why and when a call is retried.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetryScheduled {
    /// The outcome of the attempt that is retried.
    pub cause: AttemptOutcome,
    /// The wait before the retry.
    pub wait: Duration,
    /// The wait that the server asked for, if any.
    pub hint: Option<Duration>,
    /// What made the wait as long as it is.
    pub reason: WaitReason,
    /// Whether the call waits in line after its wait, because the budget is empty or others wait already: see
    /// [`BudgetWaited`](EventKind::BudgetWaited).
    pub in_line: bool,
    /// The most attempts that the call may make, including the first.
    pub max_attempts: u32,
    /// The balance of the retry budget.
    pub budget: f64,
    /// Whether this is a dry run, which sends no retry: see [`dry_run`](crate::RetryMiddlewareBuilder::dry_run).
    pub dry_run: bool,
}

/// Describes a wait in line for an empty budget that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BudgetWaited {
    /// The time in line, which begins after the wait of the retry itself.
    pub wait: Duration,
    /// Whether the retry is sent now. If not, the call ends.
    pub is_released: bool,
}

/// Describes a retry that the budget refused.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BudgetRefused {
    /// The outcome of the attempt that is not retried.
    pub cause: AttemptOutcome,
    /// The balance of the retry budget. It is less than one retry.
    pub budget: f64,
}

/// Describes how a call ended.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stopped {
    /// The reason why the call ended.
    pub stop_reason: StopReason,
    /// The outcome that the caller gets: that of the last attempt that no throttle refused.
    pub outcome: AttemptOutcome,
    /// Whether the request took effect, over all attempts of the call.
    pub effect: Effect,
    /// The most attempts that the call could make, including the first.
    pub max_attempts: u32,
    /// The total wait before and between attempts.
    pub waited: Duration,
    /// The time since the call started.
    pub took: Duration,
    /// The wait that the server asked for in its last response, if any.
    pub hint: Option<Duration>,
    /// The balance of the retry budget. `None` for a call that cannot be retried, because it needs no budget.
    pub budget: Option<f64>,
}

/// Describes the state of a call when its caller dropped it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Abandoned {
    /// Whether an attempt was in progress. If not, the call was waiting for its next attempt.
    pub in_attempt: bool,
    /// The outcome of the previous attempt, if this attempt is a retry.
    pub retry_of: Option<AttemptOutcome>,
    /// The time since the call started.
    pub took: Duration,
}

/// Describes the load of a throttle for the key of this request, after a change.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThrottleLoad {
    /// The change.
    pub change: LoadChange,
    /// The number of requests that wait for response headers.
    pub in_flight: u32,
    /// The number of queued attempts.
    pub waiting: usize,
    /// The age of the oldest queued attempt.
    pub oldest: Duration,
}

/// Lists how an attempt changes the load of a throttle.
///
/// Every `Queued` is followed by one `Left`, and every `Sent` by one `Ended`, even if the call is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoadChange {
    /// The attempt entered the queue.
    Queued,
    /// The attempt left the queue, for any reason.
    Left,
    /// The attempt was sent.
    Sent,
    /// The response headers arrived, or the attempt failed.
    Ended,
}

/// Describes a wait in a throttle's queue that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThrottleWaited {
    /// The time in the queue.
    pub wait: Duration,
}

/// Describes an attempt that a throttle refused.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThrottleRefused {
    /// The reason for the refusal.
    pub reason: RefusalReason,
    /// The time that the attempt spent in the queue. Zero if it was refused at once.
    pub waited: Duration,
    /// The number of queued attempts at that time.
    pub depth: usize,
    /// The estimated wait until the throttle may accept an attempt.
    pub retry_after: Duration,
    /// The number of attempts with the same key that were refused so far, including this one.
    pub refusals: u64,
}

/// Describes a pause of a throttle.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThrottlePaused {
    /// The expected length of the pause, from now on.
    pub pause: Duration,
    /// Who asked for the pause.
    pub asked_by: PauseSource,
}

/// Describes a new pace of a throttle, for the key of this request.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThrottlePaced {
    /// The most requests per second. `None` if the throttle no longer limits them.
    pub per_second: Option<f64>,
    /// The pace before: the highest since the last event if the pace fell. `None` if there was none.
    pub before: Option<f64>,
}

/// Lists the families of headers that announce rate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitHeader {
    /// `Retry-After`, `retry-after-ms`, `x-ms-retry-after-ms`.
    RetryAfter,
    /// `RateLimit`, `RateLimit-Policy` and `RateLimit-…` of the IETF draft.
    RateLimit,
    /// `X-RateLimit-…` and `X-Rate-Limit-…`.
    XRateLimit,
    /// `Anthropic-RateLimit-…`.
    Anthropic,
}

impl LimitHeader {
    /// All families. A later version may add more.
    pub const ALL: &'static [Self] = &Self::EACH;

    pub(crate) const EACH: [Self; 4] = [
        Self::RetryAfter,
        Self::RateLimit,
        Self::XRateLimit,
        Self::Anthropic,
    ];

    /// Returns a stable name in snake_case, for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryAfter => "retry_after",
            Self::RateLimit => "ratelimit",
            Self::XRateLimit => "x_ratelimit",
            Self::Anthropic => "anthropic_ratelimit",
        }
    }

    fn of(name: &str) -> Option<Self> {
        const PREFIXES: [(&str, LimitHeader); 6] = [
            ("retry-after", LimitHeader::RetryAfter),
            ("x-ms-retry-after", LimitHeader::RetryAfter),
            ("ratelimit", LimitHeader::RateLimit),
            ("x-ratelimit", LimitHeader::XRateLimit),
            ("x-rate-limit", LimitHeader::XRateLimit),
            ("anthropic-ratelimit", LimitHeader::Anthropic),
        ];
        let mut known = PREFIXES.iter();
        known
            .find(|(prefix, _)| name.starts_with(prefix))
            .map(|(_, header)| *header)
    }
}

/// Holds which [`LimitHeader`]s a response has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitHeaders {
    present: [bool; LimitHeader::ALL.len()],
}

impl LimitHeaders {
    pub(crate) fn in_response(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for header in headers
            .keys()
            .filter_map(|name| LimitHeader::of(name.as_str()))
        {
            found.present[header as usize] = true;
        }
        found
    }

    /// Returns whether the response has a header of this family.
    pub fn contains(self, header: LimitHeader) -> bool {
        self.present[header as usize]
    }

    /// Returns the families that the response has.
    pub fn iter(self) -> impl Iterator<Item = LimitHeader> {
        let all = LimitHeader::EACH.into_iter();
        all.filter(move |header| self.contains(*header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_families_of_limit_headers_are_told_apart_by_their_names() {
        let mut headers = HeaderMap::new();
        for name in [
            "retry-after-ms",
            "x-ratelimit-reset-tokens",
            "x-rate-limit-limit",
            "date",
        ] {
            headers.insert(name, http::HeaderValue::from_static("1"));
        }
        let found = LimitHeaders::in_response(&headers);
        assert_eq!(
            found.iter().map(LimitHeader::as_str).collect::<Vec<_>>(),
            ["retry_after", "x_ratelimit"]
        );
        for (name, expected) in [
            ("retry-after", Some(LimitHeader::RetryAfter)),
            ("x-ms-retry-after-ms", Some(LimitHeader::RetryAfter)),
            ("ratelimit", Some(LimitHeader::RateLimit)),
            ("ratelimit-policy", Some(LimitHeader::RateLimit)),
            (
                "anthropic-ratelimit-requests-reset",
                Some(LimitHeader::Anthropic),
            ),
            ("x-request-id", None),
        ] {
            assert_eq!(LimitHeader::of(name), expected, "{name}");
        }
    }

    #[test]
    fn every_family_has_its_own_place() {
        for (place, header) in LimitHeader::EACH.into_iter().enumerate() {
            assert_eq!(header as usize, place);
        }
    }
}
