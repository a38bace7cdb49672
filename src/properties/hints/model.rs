//! A model of hints, written from the documentation, in whole nanoseconds.

use std::cmp::Reverse;
use std::time::Duration;

use super::values::{Meaning, ModelValue};

/// The headers that give a wait directly, in order of precedence.
pub(super) const FIRST_THAT_PARSES: &[&str] =
    &["retry-after-ms", "x-ms-retry-after-ms", "retry-after"];

/// Pairs of headers for remaining quota and refill time, in groups that belong together.
pub(super) const QUOTAS: &[&[(&str, &str)]] = &[
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

const SECOND: i128 = 1_000_000_000;
/// Longer than any wait that makes a difference.
const FOR_EVER: i128 = (1 << 60) * SECOND;

#[derive(Debug)]
pub(super) struct ModelResponse {
    pub(super) status: u16,
    /// Nanoseconds since 1970.
    pub(super) received: i128,
    pub(super) lines: Vec<Line>,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) value: ModelValue,
}

/// Nanoseconds, and the rounding error of a floating-point number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    length: i128,
    give: i128,
}

impl Wait {
    pub(super) fn is(self, hint: Duration) -> bool {
        let hint = hint.as_nanos() as i128;
        (hint - self.length).abs() <= self.give || (hint > FOR_EVER && self.length > FOR_EVER)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    Nothing,
    Wait(Wait),
    /// So close to now that rounding decides whether it has passed.
    Unsure,
}

impl Reading {
    fn exactly(length: i128) -> Self {
        Self::Wait(Wait { length, give: 0 })
    }

    /// Returns the time until then. A time in the past is no hint.
    fn until(moment: Wait, now: i128) -> Self {
        let length = moment.length - now;
        match moment.give {
            give if give > 0 && length.abs() <= give => Self::Unsure,
            _ if length < 0 => Self::Nothing,
            give => Self::Wait(Wait { length, give }),
        }
    }

    fn later(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unsure, _) | (_, Self::Unsure) => Self::Unsure,
            (Self::Nothing, other) => other,
            (this, Self::Nothing) => this,
            (Self::Wait(this), Self::Wait(other)) => Self::Wait(Wait {
                length: this.length.max(other.length),
                give: this.give.max(other.give),
            }),
        }
    }

    fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Wait(this), Self::Wait(other)) => Self::Wait(Wait {
                length: this.length.min(other.length),
                give: this.give.max(other.give),
            }),
            (this, other) => this.later(other),
        }
    }

    fn is_something(self) -> bool {
        !matches!(self, Self::Nothing)
    }
}

/// Whether a window has quota left.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    Nothing,
    Some,
    Unknown,
}

impl ModelResponse {
    pub(super) fn hint(&self) -> Reading {
        let now = self.now();
        for name in FIRST_THAT_PARSES {
            let asked = self.latest(name, |value| match (*name, &value.means) {
                ("retry-after-ms" | "x-ms-retry-after-ms", Meaning::Number(whole, fraction)) => {
                    Reading::Wait(number(whole, fraction, 1000))
                }
                ("retry-after", Meaning::HttpDate(date)) => until(*date, now),
                (_, Meaning::Number(whole, fraction)) => Reading::Wait(number(whole, fraction, 1)),
                _ => Reading::Nothing,
            });
            if asked.is_something() {
                return asked;
            }
        }
        let field = self.windows_of_the_field();
        let groups = QUOTAS.iter().map(|names| self.windows(names, now));
        let mut waits = std::iter::once(field).chain(groups);
        waits
            .find_map(|windows| Some(self.wait(&windows)).filter(|wait| wait.is_something()))
            .unwrap_or(Reading::Nothing)
    }

    /// Returns the `Date` of the response, or the time it was received.
    fn now(&self) -> i128 {
        let dates = self.lines.iter().filter(|line| line.name == "date");
        let dates = dates.filter_map(|line| match line.value.means {
            Meaning::HttpDate(date) => Some(date),
            _ => None,
        });
        dates.max().unwrap_or(self.received)
    }

    fn latest(&self, name: &str, read: impl Fn(&ModelValue) -> Reading) -> Reading {
        let lines = self.lines.iter().filter(|line| line.name == name);
        lines
            .map(|line| read(&line.value))
            .fold(Reading::Nothing, Reading::later)
    }

    /// Returns the smallest number in the lines of a header.
    fn least(&self, name: &str) -> Option<Wait> {
        let lines = self.lines.iter().filter(|line| line.name == name);
        let numbers = lines.filter_map(|line| match &line.value.means {
            Meaning::Number(whole, fraction) => Some(number(whole, fraction, 1)),
            _ => None,
        });
        numbers.min_by_key(|number| (number.length, Reverse(number.give)))
    }

    /// Returns what is left of each window, and when it refills.
    fn windows(&self, names: &[(&str, &str)], now: i128) -> Vec<(Left, Reading)> {
        let windows = names.iter().map(|(remaining, reset)| {
            let number = self.least(remaining);
            let left = match number {
                // A fraction of a request is none.
                Some(left) if left.length < SECOND => Left::Nothing,
                Some(_) => Left::Some,
                None => Left::Unknown,
            };
            let is_almost_one = number
                .is_some_and(|left| left.give > 0 && (left.length - SECOND).abs() <= left.give);
            let reset = self.latest(reset, |value| reset_time(value, now));
            match is_almost_one && reset.is_something() {
                // Its reset is not known.
                true => (Left::Nothing, Reading::Unsure),
                false => (left, reset),
            }
        });
        windows.filter(|(_, reset)| reset.is_something()).collect()
    }

    fn windows_of_the_field(&self) -> Vec<(Left, Reading)> {
        let windows = self.lines.iter().filter_map(|line| match line.value.means {
            Meaning::Window(left, reset) => {
                let reset = Reading::exactly(i128::from(reset) * SECOND);
                let left = match left {
                    None => Left::Unknown,
                    Some(0) => Left::Nothing,
                    Some(_) => Left::Some,
                };
                Some((left, reset))
            }
            _ => None,
        });
        windows.collect()
    }

    /// Returns the time until all spent windows have refilled.
    ///
    /// If none is spent, a 429 counts the windows without a remainder: the first refill. Windows with quota left say
    /// nothing.
    fn wait(&self, windows: &[(Left, Reading)]) -> Reading {
        let of = |which: Left| {
            let windows = windows.iter().filter(move |(left, _)| *left == which);
            windows.map(|(_, reset)| *reset)
        };
        let last = of(Left::Nothing).reduce(Reading::later);
        let first = of(Left::Unknown).reduce(Reading::sooner);
        last.or(first.filter(|_| self.status == 429))
            .unwrap_or(Reading::Nothing)
    }
}

fn until(date: i128, now: i128) -> Reading {
    let moment = Wait {
        length: date,
        give: 0,
    };
    Reading::until(moment, now)
}

/// Reads a number below 10⁹ as seconds from now, below 10¹¹ as seconds since 1970, others as milliseconds.
fn reset_time(value: &ModelValue, now: i128) -> Reading {
    match &value.means {
        Meaning::Number(whole, fraction) => {
            let seconds = number(whole, fraction, 1);
            let is_about = |limit: i128| {
                seconds.give > 0 && (seconds.length - limit * SECOND).abs() <= seconds.give
            };
            if is_about(1_000_000_000) || is_about(100_000_000_000) {
                Reading::Unsure
            } else if seconds.length < 1_000_000_000 * SECOND {
                Reading::Wait(seconds)
            } else if seconds.length < 100_000_000_000 * SECOND {
                Reading::until(seconds, now)
            } else {
                Reading::until(number(whole, fraction, 1000), now)
            }
        }
        Meaning::HttpDate(date) | Meaning::OtherDate(date) => until(*date, now),
        Meaning::Span(length) => Reading::exactly(*length),
        Meaning::Nothing | Meaning::Window(..) => Reading::Nothing,
    }
}

/// Reads a number as a wait, with the rounding error of floating point.
fn number(whole: &str, fraction: &str, parts_of_a_second: i128) -> Wait {
    let digits: i128 = format!("{whole}{fraction:0<12}")
        .parse()
        .unwrap_or(i128::MAX);
    let length = digits / 1000 / parts_of_a_second;
    let is_exact = match parts_of_a_second {
        1 if fraction.is_empty() => length < (1 << 53) * SECOND,
        1 => false,
        _ => fraction.is_empty() && length < (1 << 21) * SECOND,
    };
    let give = if is_exact { 0 } else { 2 + (length >> 51) };
    Wait { length, give }
}
