//! Reads from response headers how long to wait and how much quota is left.
//!
//! `Retry-After` comes from RFC 9110 §10.2.3, the other headers are what servers send in practice. Values are not
//! trusted: an unreadable value is no hint, and a number that is too large is a very long wait. Dates are compared with
//! the `Date` of the response, so that a wrong clock on either side does no harm. Without a `Date`, the reset of a quota
//! that is a date delays only the call that got it.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, StatusCode};
use jiff::{SignedDuration, Timestamp};
use sfv::{BareItem, Dictionary, List, ListEntry, Parameters, Parser};

/// Headers that say how long to wait, and how to read them. The first that can be read counts.
const WAIT_HEADERS: [(&str, ReadWait); 3] = [
    ("retry-after-ms", |text, _| milliseconds(text)),
    ("x-ms-retry-after-ms", |text, _| milliseconds(text)),
    ("retry-after", |text, now| {
        seconds(text).or_else(|| time_until(httpdate::parse_http_date(text).ok()?, now))
    }),
];

/// Whole seconds below this are too coarse to pause all calls.
const MIN_EXACT_RESET: Duration = Duration::from_secs(3);

/// Reads a wait from the value of a header, counted from the given time.
type ReadWait = fn(&str, SystemTime) -> Option<Duration>;

/// Pairs of headers: what remains of a quota, and when it refills. Pairs in one list belong to one response.
///
/// In this order: IETF drafts up to 6, Discord, two common forms, OpenAI, Anthropic.
const QUOTA_HEADERS: &[&[(&str, &str)]] = &[
    &[("ratelimit-remaining", "ratelimit-reset")],
    &[("x-ratelimit-remaining", "x-ratelimit-reset-after")],
    &[("x-ratelimit-remaining", "x-ratelimit-reset")],
    &[("x-rate-limit-remaining", "x-rate-limit-reset")],
    &[
        (
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
        ),
        ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ],
    &[
        (
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ),
        (
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ),
        (
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
        ),
        (
            "anthropic-ratelimit-output-tokens-remaining",
            "anthropic-ratelimit-output-tokens-reset",
        ),
    ],
];

/// Returns how long the server asks to wait, counted from the `Date` of the response.
///
/// `received` replaces a missing `Date`.
pub(crate) fn server_hint(
    status: StatusCode,
    headers: &HeaderMap,
    received: SystemTime,
) -> Option<Duration> {
    if !has_hint(headers) {
        return None;
    }
    let now = response_date(headers).unwrap_or(received);
    asked_wait(headers, now).or_else(|| quota_wait(status, headers, Some(now)))
}

/// Returns how long all calls to the host should pause.
///
/// The same as [`server_hint`], except for the reset of a quota that is too near to be exact (see
/// [`is_exact_reset`]), or that is a date without a `Date` beside it: if the clocks differ, it may be off by any time.
pub(crate) fn pause_hint(
    status: StatusCode,
    headers: &HeaderMap,
    received: SystemTime,
) -> Option<Duration> {
    if !has_hint(headers) {
        return None;
    }
    let date = response_date(headers);
    asked_wait(headers, date.unwrap_or(received))
        .or_else(|| quota_wait(status, headers, date).filter(|reset| is_exact_reset(*reset)))
}

/// Returns whether a reset says when a quota refills, and not only in which second.
///
/// Most servers round to whole seconds, and so does the `Date` that a timestamp is compared with. A reset in 1 s may
/// mean in a millisecond. Trusted on limits per 100 ms, it left most of the limit unused.
pub(crate) fn is_exact_reset(reset: Duration) -> bool {
    reset >= MIN_EXACT_RESET || reset.subsec_nanos() > 0
}

/// Most responses have none of these headers. One pass is ten times faster than a lookup of each.
fn has_hint(headers: &HeaderMap) -> bool {
    let mut names = headers.keys().map(HeaderName::as_str);
    names.any(|name| is_wait_header(name) || is_rate_limit_header(name))
}

/// Returns the wait that the server asks for in so many words.
fn asked_wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let mut waits = WAIT_HEADERS.iter();
    waits.find_map(|(name, read)| parsed_lines(headers, name, |text| read(text, now)).max())
}

/// Parses each line of a header, and skips what it cannot parse.
fn parsed_lines<T>(
    headers: &HeaderMap,
    name: &str,
    read: impl Fn(&str) -> Option<T>,
) -> impl Iterator<Item = T> {
    let values = headers.get_all(name).into_iter();
    values.filter_map(move |value| read(value.to_str().ok()?.trim()))
}

/// One quota of a rate limit.
#[derive(Clone, Copy)]
struct QuotaWindow {
    /// What remains, if the server says so.
    left: Option<u64>,
    /// It counts tokens of a language model. A request takes an unknown number of them.
    counts_tokens: bool,
    /// The time until the quota is full again.
    reset: Duration,
}

impl QuotaWindow {
    fn is_spent(self) -> bool {
        self.left == Some(0)
    }

    /// Returns how many requests remain, if that is known.
    fn requests_left(self) -> Option<u64> {
        self.left.filter(|_| self.is_spent() || !self.counts_tokens)
    }
}

/// Returns how many requests the server will still accept, and for how long that holds.
///
/// Servers send this with successful responses, too. Of several windows, the one with the fewest requests counts. A
/// reset that is a date counts only with a `Date` beside it.
pub(crate) fn quota_left(headers: &HeaderMap) -> Option<(u64, Duration)> {
    if !headers
        .keys()
        .any(|name| is_rate_limit_header(name.as_str()))
    {
        return None;
    }
    let windows = quotas(headers, response_date(headers)).find(|windows| !windows.is_empty())?;
    let left = |window: QuotaWindow| Some((window.requests_left()?, window.reset));
    let windows = windows.into_iter().filter_map(left);
    windows.min_by_key(|(left, reset)| (*left, Reverse(*reset)))
}

fn is_wait_header(name: &str) -> bool {
    WAIT_HEADERS.iter().any(|(known, _)| *known == name)
}

/// Runs for every header of every response, so the first letter excludes most names.
fn is_rate_limit_header(name: &str) -> bool {
    match name.as_bytes().first() {
        Some(b'r') => name.starts_with("ratelimit"),
        Some(b'x') => name.starts_with("x-ratelimit") || name.starts_with("x-rate-limit"),
        Some(b'a') => name.starts_with("anthropic-ratelimit"),
        _ => false,
    }
}

fn response_date(headers: &HeaderMap) -> Option<SystemTime> {
    parsed_lines(headers, "date", |date| httpdate::parse_http_date(date).ok()).max()
}

/// Returns the time until the quota that refused the request is full again.
///
/// Many servers send their quota with every response. A reset says when a quota refills, not when a server recovers. So
/// it counts only if its window is spent, or may be spent: after a 429, if the server does not say what remains. A
/// window with quota left did not refuse the request. Without `now`, resets that are dates do not count.
fn quota_wait(
    status: StatusCode,
    headers: &HeaderMap,
    now: Option<SystemTime>,
) -> Option<Duration> {
    quotas(headers, now).find_map(|windows| {
        let spent = windows.iter().filter(|window| window.is_spent());
        // All spent windows must refill before the next request.
        let last_spent = spent.map(|window| window.reset).max();
        last_spent.or_else(|| {
            let unknown = windows.iter().filter(|window| window.left.is_none());
            // Any of these may have refused the request. After the first refill a retry may succeed.
            let first = unknown.map(|window| window.reset).min();
            first.filter(|_| status == StatusCode::TOO_MANY_REQUESTS)
        })
    })
}

/// Reads the windows of each form of quota headers, one form after the other.
fn quotas(headers: &HeaderMap, now: Option<SystemTime>) -> impl Iterator<Item = Vec<QuotaWindow>> {
    let named = QUOTA_HEADERS.iter();
    let named = named.map(move |names| named_windows(headers, names, now));
    structured_windows(headers).into_iter().chain(named)
}

fn named_windows(
    headers: &HeaderMap,
    names: &[(&str, &str)],
    now: Option<SystemTime>,
) -> Vec<QuotaWindow> {
    let windows = names.iter().filter_map(|(remaining, reset)| {
        // Two gateways may each add a line. A request has to pass both, so the smaller number counts.
        let left = parsed_lines(headers, remaining, seconds).min();
        Some(QuotaWindow {
            left: left.map(|left| left.as_secs()),
            counts_tokens: remaining.contains("tokens"),
            reset: parsed_lines(headers, reset, |text| parse_reset(text, now)).max()?,
        })
    });
    windows.collect()
}

/// Parses the IETF `RateLimit` field: `"name";r=50;t=30, …` since draft 8, and
/// `limit=100, remaining=50, reset=30` in draft 7. Several lines are one list.
fn structured_windows(headers: &HeaderMap) -> Option<Vec<QuotaWindow>> {
    let lines = headers.get_all("ratelimit").iter();
    let field = lines.map(|line| line.as_bytes()).collect::<Vec<_>>();
    if field.is_empty() {
        return None;
    }
    let field = field.join(&b", "[..]);

    if let Ok(list) = Parser::new(&field).parse::<List>() {
        return Some(list.iter().filter_map(window_of_member).collect());
    }
    let dictionary = Parser::new(&field).parse::<Dictionary>().ok()?;
    let number = |key: &str| match dictionary.get(key) {
        Some(ListEntry::Item(item)) => as_u64(&item.bare_item),
        _ => None,
    };
    match number("reset") {
        Some(reset) => Some(vec![QuotaWindow {
            left: number("remaining"),
            counts_tokens: false,
            reset: Duration::from_secs(reset),
        }]),
        None => Some(dictionary.values().filter_map(window_of_member).collect()),
    }
}

fn window_of_member(member: &ListEntry) -> Option<QuotaWindow> {
    let parameters: &Parameters = match member {
        ListEntry::Item(item) => &item.params,
        ListEntry::InnerList(list) => &list.params,
    };
    Some(QuotaWindow {
        left: parameters.get("r").and_then(as_u64),
        counts_tokens: false,
        reset: Duration::from_secs(parameters.get("t").and_then(as_u64)?),
    })
}

fn as_u64(item: &BareItem) -> Option<u64> {
    item.as_integer()
        .and_then(|number| u64::try_from(i64::from(number)).ok())
}

/// Parses a reset time: seconds, Unix time in seconds or milliseconds, date, timestamp or duration.
///
/// `None` for a date without `now`.
fn parse_reset(text: &str, now: Option<SystemTime>) -> Option<Duration> {
    if let Some(number) = decimal(text) {
        if number < 1e9 {
            return Some(from_secs(number));
        }
        let now = now?;
        let unix_time = from_secs(if number < 1e11 { number } else { number / 1e3 });
        let date = UNIX_EPOCH.checked_add(unix_time);
        return date.map_or(Some(Duration::MAX), |date| time_until(date, now));
    }
    if text.starts_with(['+', '-']) {
        return None;
    }
    if let Ok(date) = httpdate::parse_http_date(text) {
        return time_until(date, now?);
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return time_until(timestamp.into(), now?);
    }
    // `6m0s`, `12ms`.
    match text.parse::<SignedDuration>() {
        Ok(duration) => Duration::try_from(duration).ok(),
        Err(_) => is_huge_duration(text).then_some(Duration::MAX),
    }
}

/// Whether this is a duration with too many digits to parse, such as `99999999999999999999s`.
fn is_huge_duration(text: &str) -> bool {
    let unit = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
    text.len() - unit.len() > 15 && ["ns", "us", "ms", "s", "m", "h", "d"].contains(&unit)
}

/// Returns the time from `now` until `date`. `None`: the date has passed, so it is no hint.
fn time_until(date: SystemTime, now: SystemTime) -> Option<Duration> {
    date.duration_since(now).ok()
}

fn seconds(text: &str) -> Option<Duration> {
    decimal(text).map(from_secs)
}

fn milliseconds(text: &str) -> Option<Duration> {
    decimal(text).map(|number| from_secs(number / 1e3))
}

/// Converts seconds that are neither negative nor NaN. What does not fit becomes the longest duration.
fn from_secs(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Parses digits with an optional fraction. `str::parse` also accepts `+1`, `1e9`, `inf` and `NaN`.
fn decimal(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
#[path = "hint_tests.rs"]
mod tests;
