//! What can happen to a call, as its observers are told.

use std::time::Duration;

use http::{HeaderMap, Method};

use crate::outcome::{AttemptOutcome, DeadLetterOutcome, RefusalReason, StopReason};

/// The call that something happened to.
///
/// It names the host and nothing more of the URL: paths tell too much of users, and queries of
/// secrets.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallInfo<'a> {
    /// The method of the request.
    pub method: &'a Method,
    /// The host that the request goes to, and the port if it is not the scheme's own.
    pub host: &'a str,
    /// 1 for the first attempt of the call, 2 for its first retry …
    pub attempt: u32,
}

/// Something that happened to a call, for an [`observe_fn`](crate::RetryMiddlewareBuilder::observe_fn).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The call.
    pub call: CallInfo<'a>,
    /// What happened to it.
    pub kind: EventKind,
}

/// What happened: one for each method of [`Observer`](crate::Observer).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A call has begun.
    CallStarted,
    /// One of its attempts is sent, or goes to a throttle inside.
    AttemptStarted,
    /// The attempt has ended, with an answer or without.
    AttemptFinished(AttemptFinished),
    /// The call is sent again after a wait.
    RetryScheduled(RetryScheduled),
    /// The call would have been sent again, but the budget is empty.
    BudgetRefused(BudgetRefused),
    /// The call is over, and its answer or error goes to the caller.
    Stopped(Stopped),
    /// The caller has dropped the call.
    Abandoned(Abandoned),
    /// What became of the letter about a call that was given up.
    DeadLettered(DeadLetterOutcome),
    /// A throttle has more or less to do than before.
    ThrottleLoad(ThrottleLoad),
    /// An attempt has waited for its turn in a throttle, and goes on.
    ThrottleWaited(ThrottleWaited),
    /// A throttle did not let an attempt through.
    ThrottleRefused(ThrottleRefused),
    /// A throttle has closed: the server asked for a pause, or is in trouble.
    ThrottlePaused(ThrottlePaused),
    /// A throttle that was closed is open again.
    ThrottleReleased,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttemptFinished {
    /// The status, or the kind of the error.
    pub outcome: AttemptOutcome,
    /// How the attempt before it ended, if this is a retry.
    pub retry_of: Option<AttemptOutcome>,
    /// The time since it began, that in a throttle's queue included.
    pub took: Duration,
    /// What the server said of its limits.
    pub limit_headers: LimitHeaders,
}

/// Why and when a call is sent again.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetryScheduled {
    /// How the attempt ended that is repeated.
    pub cause: AttemptOutcome,
    /// How long the call waits now.
    pub wait: Duration,
    /// How long the server asked to wait, if it did.
    pub hint: Option<Duration>,
    /// How many attempts the call may make in all.
    pub max_attempts: u32,
    /// What is left in the retry budget.
    pub budget: f64,
    /// Nothing is sent: see [`dry_run`](crate::RetryMiddlewareBuilder::dry_run).
    pub dry_run: bool,
}

/// What would have been sent again.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BudgetRefused {
    /// How the attempt ended that is not repeated.
    pub cause: AttemptOutcome,
    /// What is left in the retry budget: less than one retry.
    pub budget: f64,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stopped {
    /// Why it ended.
    pub reason: StopReason,
    /// What the caller gets: how its last attempt ended that no throttle kept from being sent.
    pub outcome: AttemptOutcome,
    /// How many attempts it might have made in all.
    pub max_attempts: u32,
    /// How long it waited, before and between its attempts.
    pub waited: Duration,
    /// The time since it began.
    pub took: Duration,
    /// What is left in the retry budget. `None` for a call that could not be retried: it needs none.
    pub budget: Option<f64>,
}

/// How far a call was when its caller dropped it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Abandoned {
    /// An attempt had begun and not ended. If not, the call was waiting for the next one.
    pub in_attempt: bool,
    /// How the attempt before this one ended, if this is a retry.
    pub retry_of: Option<AttemptOutcome>,
    /// The time since it began.
    pub took: Duration,
}

/// What a throttle has to do for the key of this request, after a change.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThrottleLoad {
    /// What has changed it.
    pub change: LoadChange,
    /// How many requests wait for the head of their answer.
    pub in_flight: u32,
    /// How many calls wait for their turn.
    pub waiting: usize,
    /// How long the one has waited that waits longest.
    pub oldest: Duration,
}

/// What an attempt does in a throttle. Every `Queued` is followed by one `Left`, and every `Sent` by one
/// `Ended`, also if the call is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoadChange {
    /// It has to wait.
    Queued,
    /// It waits no longer, for whatever reason.
    Left,
    /// It goes to the server.
    Sent,
    /// The head of its answer is there, or none will come.
    Ended,
}

/// A wait that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThrottleWaited {
    /// How long.
    pub wait: Duration,
}

/// An attempt that was not let through.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThrottleRefused {
    /// Why.
    pub reason: RefusalReason,
    /// How long it had waited. Zero if it was refused at once.
    pub waited: Duration,
    /// How many calls were waiting.
    pub depth: usize,
    /// Trying again earlier is of no use, as far as can be told.
    pub retry_after: Duration,
}

/// A throttle that lets nobody through for a time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThrottlePaused {
    /// For how long, as far as is known now.
    pub pause: Duration,
}

/// A family of headers by which servers tell of their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitHeader {
    /// `Retry-After`, `retry-after-ms`, `x-ms-retry-after-ms`.
    RetryAfter,
    /// The IETF's `RateLimit`, `RateLimit-Policy` and `RateLimit-…`.
    RateLimit,
    /// `X-RateLimit-…` and `X-Rate-Limit-…`.
    XRateLimit,
    /// `Anthropic-RateLimit-…`.
    Anthropic,
}

impl LimitHeader {
    /// All of them. There may be more in a later version.
    pub const ALL: &'static [Self] = &Self::EACH;

    pub(crate) const EACH: [Self; 4] = [
        Self::RetryAfter,
        Self::RateLimit,
        Self::XRateLimit,
        Self::Anthropic,
    ];

    /// A stable name in snake_case, for logs and metrics.
    pub fn label(self) -> &'static str {
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

/// The [`LimitHeader`]s of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitHeaders {
    present: [bool; LimitHeader::ALL.len()],
}

impl LimitHeaders {
    pub(crate) fn in_answer(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for header in headers
            .keys()
            .filter_map(|name| LimitHeader::of(name.as_str()))
        {
            found.present[header as usize] = true;
        }
        found
    }

    /// Whether there was a header of this family.
    pub fn contains(self, header: LimitHeader) -> bool {
        self.present[header as usize]
    }

    /// Those that there were.
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
        let found = LimitHeaders::in_answer(&headers);
        assert_eq!(
            found.iter().map(LimitHeader::label).collect::<Vec<_>>(),
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
