//! When the server itself asks to be called again.
//!
//! RFC 9110 §10.2.3 has `Retry-After`; the rest is what servers really send. Every value is hostile
//! until read: what cannot be understood is no hint, and digits too many to count are a very long
//! wait. Dates are measured against the answer's own `Date`, so that a wrong clock on either side
//! does no harm.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, StatusCode};
use jiff::{SignedDuration, Timestamp};
use sfv::{BareItem, Dictionary, List, ListEntry, Parameters, Parser};

use crate::clock;

/// Headers that count what is left of a quota, beside the one that says when it is full again.
/// The names of the IETF drafts up to 6, Discord's, the common ones, OpenAI's and Anthropic's.
const QUOTAS: &[&[(&str, &str)]] = &[
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

/// How long the server asks to be left alone, counted from when its answer was made.
///
/// `received` stands in for an answer without a `Date`.
pub(crate) fn server_hint(
    status: StatusCode,
    headers: &HeaderMap,
    received: SystemTime,
) -> Option<Duration> {
    let mut names = headers.keys().map(HeaderName::as_str);
    if !names.any(|name| is_of_a_pause(name) || is_of_a_limit(name)) {
        // Most answers have none. To look for each by its name takes ten times as long.
        return None;
    }
    let now = date(headers).unwrap_or(received);
    longest(headers, "retry-after-ms", milliseconds)
        .or_else(|| longest(headers, "x-ms-retry-after-ms", milliseconds))
        .or_else(|| {
            longest(headers, "retry-after", |text| {
                seconds(text).or_else(|| until(httpdate::parse_http_date(text).ok()?, now))
            })
        })
        .or_else(|| quota(status, headers, now))
}

/// Where a header stands more than once, the longest wait holds.
fn longest<T: Ord>(headers: &HeaderMap, name: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    readings(headers, name, read).max()
}

/// What each line of a header says, as far as it can be read.
fn readings<T>(
    headers: &HeaderMap,
    name: &str,
    read: impl Fn(&str) -> Option<T>,
) -> impl Iterator<Item = T> {
    let values = headers.get_all(name).into_iter();
    values.filter_map(move |value| read(value.to_str().ok()?.trim()))
}

/// One window of a rate limit.
#[derive(Clone, Copy)]
struct Window {
    /// What is left of it, if the server says so.
    left: Option<u64>,
    counts: Unit,
    /// How long until it is full again.
    reset: Duration,
}

/// What a window counts.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Requests,
    /// A request takes an unknown number of them.
    Tokens,
}

impl Window {
    fn is_spent(self) -> bool {
        self.left == Some(0)
    }

    /// How many requests are left of it, as far as that can be told.
    fn requests_left(self) -> Option<u64> {
        self.left
            .filter(|_| self.is_spent() || self.counts == Unit::Requests)
    }
}

/// How many requests the server will still take, and for how long that holds. Servers say so with
/// successes, too; where there are several windows, the one with the least left counts.
pub(crate) fn quota_left(headers: &HeaderMap) -> Option<(u64, Duration)> {
    if !headers.keys().any(|name| is_of_a_limit(name.as_str())) {
        return None;
    }
    let now = date(headers).unwrap_or_else(clock::wall);
    let windows = structured_windows(headers)
        .filter(|windows| !windows.is_empty())
        .or_else(|| {
            let mut windows = QUOTAS
                .iter()
                .map(|names| named_windows(headers, names, now));
            windows.find(|windows| !windows.is_empty())
        });
    let left = |window: Window| Some((window.requests_left()?, window.reset));
    let windows = windows?.into_iter().filter_map(left);
    windows.min_by_key(|(left, reset)| (*left, Reverse(*reset)))
}

fn is_of_a_pause(name: &str) -> bool {
    name.starts_with("retry-after") || name.starts_with("x-ms-retry-after")
}

/// Every answer is looked at, so this is quick: the first letter rules out most names.
fn is_of_a_limit(name: &str) -> bool {
    match name.as_bytes().first() {
        Some(b'r') => name.starts_with("ratelimit"),
        Some(b'x') => name.starts_with("x-ratelimit") || name.starts_with("x-rate-limit"),
        Some(b'a') => name.starts_with("anthropic-ratelimit"),
        _ => false,
    }
}

fn date(headers: &HeaderMap) -> Option<SystemTime> {
    longest(headers, "date", |date| httpdate::parse_http_date(date).ok())
}

/// How long until a quota that refused the request is full again.
///
/// Many servers send their quota with every response. A reset says when a quota refills, not when a
/// server recovers. So it counts only if its window is spent, or may be: after a 429, if the server
/// does not say what is left. A window with quota left refused nothing.
fn quota(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let wait = |windows: Vec<Window>| {
        let spent = windows.iter().filter(|window| window.is_spent());
        // All that are spent must have opened again.
        let last_spent = spent.map(|window| window.reset).max();
        last_spent.or_else(|| {
            let unknown = windows.iter().filter(|window| window.left.is_none());
            // Any of these may have refused; the first to open may let us through.
            let first = unknown.map(|window| window.reset).min();
            first.filter(|_| status == StatusCode::TOO_MANY_REQUESTS)
        })
    };
    structured_windows(headers).and_then(wait).or_else(|| {
        let mut quotas = QUOTAS.iter();
        quotas.find_map(|names| wait(named_windows(headers, names, now)))
    })
}

fn named_windows(headers: &HeaderMap, names: &[(&str, &str)], now: SystemTime) -> Vec<Window> {
    let windows = names.iter().filter_map(|(remaining, reset)| {
        // Two gateways may count. A request has to pass both, so the smaller number holds.
        let left = readings(headers, remaining, seconds).min();
        let left = left.map(|left| left.as_secs());
        let counts = match remaining.contains("tokens") {
            true => Unit::Tokens,
            false => Unit::Requests,
        };
        Some(Window {
            left,
            counts,
            reset: longest(headers, reset, |text| moment(text, now))?,
        })
    });
    windows.collect()
}

/// The IETF `RateLimit` field: `"name";r=50;t=30, …` since draft 8,
/// `limit=100, remaining=50, reset=30` in draft 7. Lines of one field count as one list.
fn structured_windows(headers: &HeaderMap) -> Option<Vec<Window>> {
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
        Some(ListEntry::Item(item)) => whole(&item.bare_item),
        _ => None,
    };
    match number("reset") {
        Some(reset) => Some(vec![Window {
            left: number("remaining"),
            counts: Unit::Requests,
            reset: Duration::from_secs(reset),
        }]),
        None => Some(dictionary.values().filter_map(window_of_member).collect()),
    }
}

fn window_of_member(member: &ListEntry) -> Option<Window> {
    let parameters: &Parameters = match member {
        ListEntry::Item(item) => &item.params,
        ListEntry::InnerList(list) => &list.params,
    };
    Some(Window {
        left: parameters.get("r").and_then(whole),
        counts: Unit::Requests,
        reset: Duration::from_secs(parameters.get("t").and_then(whole)?),
    })
}

fn whole(item: &BareItem) -> Option<u64> {
    item.as_integer()
        .and_then(|number| u64::try_from(i64::from(number)).ok())
}

/// A reset time in any of the forms that are in use.
fn moment(text: &str, now: SystemTime) -> Option<Duration> {
    if let Some(number) = decimal(text) {
        return if number < 1e9 {
            Some(from_secs(number))
        } else if number < 1e11 {
            since_epoch(from_secs(number), now)
        } else {
            since_epoch(from_secs(number / 1e3), now)
        };
    }
    if text.starts_with(['+', '-']) {
        return None;
    }
    if let Ok(date) = httpdate::parse_http_date(text) {
        return until(date, now);
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return until(timestamp.into(), now);
    }
    // `6m0s`, `12ms`.
    match text.parse::<SignedDuration>() {
        Ok(duration) => Duration::try_from(duration).ok(),
        Err(_) => is_too_long_to_count(text).then_some(Duration::MAX),
    }
}

/// `99999999999999999999s`: a duration in form, with more digits than any clock counts.
fn is_too_long_to_count(text: &str) -> bool {
    let unit = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
    text.len() - unit.len() > 15 && ["ns", "us", "ms", "s", "m", "h", "d"].contains(&unit)
}

fn since_epoch(time: Duration, now: SystemTime) -> Option<Duration> {
    match UNIX_EPOCH.checked_add(time) {
        Some(date) => until(date, now),
        None => Some(Duration::MAX),
    }
}

/// A moment in the past says nothing about the future.
fn until(date: SystemTime, now: SystemTime) -> Option<Duration> {
    date.duration_since(now).ok()
}

fn seconds(text: &str) -> Option<Duration> {
    decimal(text).map(from_secs)
}

fn milliseconds(text: &str) -> Option<Duration> {
    decimal(text).map(|number| from_secs(number / 1e3))
}

/// Not negative and not NaN: what does not fit is too long.
fn from_secs(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Digits, and perhaps a fraction. Rust would also read `+1`, `1e9`, `inf` and `NaN`.
fn decimal(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
#[path = "hint_tests.rs"]
mod tests;
