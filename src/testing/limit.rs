//! A rule that limits the rate of requests.

use std::ops::Range;
use std::time::Duration;

use reqwest::Request;

use super::reply::{Reply, assert_status};
use super::rules::{Chance, Hints, Rule};

/// Holds a value that changes in steps over time.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::testing::{Limit, Steps};
///
/// // 500 per second, and 250 per second after 10 s.
/// let rate = Steps::from(500.0).then(Duration::from_secs(10), 250.0);
/// assert_eq!(rate.at(Duration::from_secs(11)), 250.0);
/// let limit = Limit::bucket(rate, 5.0);
/// # let _ = limit;
/// ```
#[derive(Clone, Debug)]
pub struct Steps(Vec<(Duration, f64)>);

#[track_caller]
fn assert_amount(value: f64) {
    let valid = value.is_finite() && value >= 0.0;
    assert!(valid, "a value of {value}: it must be 0 or more");
}

impl From<f64> for Steps {
    /// Creates a value that never changes.
    ///
    /// # Panics
    ///
    /// Panics if the value is negative or not a number.
    fn from(always: f64) -> Self {
        assert_amount(always);
        Self(vec![(Duration::ZERO, always)])
    }
}

impl Steps {
    /// Changes the value from `time` on.
    ///
    /// # Panics
    ///
    /// Panics if `time` is not after the last step, or if the value is negative or not a number.
    #[must_use]
    pub fn then(mut self, time: Duration, value: f64) -> Self {
        let after_all = self.0.last().is_some_and(|(last, _)| *last < time);
        assert!(after_all, "a step at {time:?}: it must be after the last");
        assert_amount(value);
        self.0.push((time, value));
        self
    }

    /// Returns the value at this time.
    pub fn at(&self, time: Duration) -> f64 {
        let step = self.0.iter().rev().find(|(from, _)| *from <= time);
        step.map_or(0.0, |(_, value)| *value)
    }

    /// Integrates the value, as a rate per second, over a period.
    pub fn sum(&self, over: Range<Duration>) -> f64 {
        let ends = self.0.iter().skip(1).map(|(from, _)| *from);
        let ends = ends.chain([Duration::MAX]);
        let parts = self.0.iter().zip(ends).map(|((from, value), end)| {
            let time = over.end.min(end).saturating_sub(over.start.max(*from));
            time.as_secs_f64() * value
        });
        parts.sum()
    }
}

#[derive(Debug)]
enum LimitShape {
    /// Fixed windows of this width, from the start of the service. Refused requests do not count.
    Window {
        width: Duration,
        start: Duration,
        taken: f64,
    },
    /// A token bucket that is full at the start. GCRA with the same burst refuses the same requests.
    Bucket {
        burst: f64,
        tokens: f64,
        filled: Duration,
    },
}

/// Accepts requests up to a rate, and refuses the rest with 429.
#[derive(Debug)]
#[must_use]
pub struct Limit {
    rate: Steps,
    shape: LimitShape,
    status: u16,
    on_refusal: Hints,
    hints: bool,
}

impl Limit {
    /// Accepts `rate` × `width` requests in each fixed window.
    ///
    /// # Panics
    ///
    /// Panics if the width is zero.
    pub fn window(rate: impl Into<Steps>, width: Duration) -> Self {
        assert!(!width.is_zero(), "a window of no width");
        let (start, taken) = (Duration::ZERO, 0.0);
        Self::new(
            rate,
            LimitShape::Window {
                width,
                start,
                taken,
            },
        )
    }

    /// Accepts requests by a token bucket that holds `burst` tokens and is full at the start.
    ///
    /// # Panics
    ///
    /// Panics if `burst` is less than 1.
    pub fn bucket(rate: impl Into<Steps>, burst: f64) -> Self {
        let valid = burst.is_finite() && burst >= 1.0;
        assert!(valid, "a burst of {burst}: it must be 1 or more");
        let (tokens, filled) = (burst, Duration::ZERO);
        Self::new(
            rate,
            LimitShape::Bucket {
                burst,
                tokens,
                filled,
            },
        )
    }

    fn new(rate: impl Into<Steps>, shape: LimitShape) -> Self {
        Self {
            rate: rate.into(),
            shape,
            status: 429,
            on_refusal: Hints::new(),
            hints: false,
        }
    }

    /// Sets the status of refusals.
    ///
    /// Default: 429.
    ///
    /// # Panics
    ///
    /// Panics if the status is invalid.
    pub fn status(mut self, status: u16) -> Self {
        assert_status(status);
        self.status = status;
        self
    }

    /// Adds a header to every refusal.
    pub fn on_refusal(mut self, name: &'static str, value: &str) -> Self {
        self.on_refusal.push((name, value.to_owned()));
        self
    }

    /// Adds `ratelimit-remaining` and `ratelimit-reset` to every response.
    pub fn with_hints(mut self) -> Self {
        self.hints = true;
        self
    }

    /// Returns how many requests it accepts at this time, and the time until that number grows.
    ///
    /// `at` must not decrease from call to call.
    pub fn remaining(&mut self, at: Duration) -> (usize, Duration) {
        self.refill(at);
        let (left, grows_in) = self.left(at);
        (left.max(0.0) as usize, grows_in)
    }

    /// Starts the window or fills the bucket of this time.
    fn refill(&mut self, at: Duration) {
        match &mut self.shape {
            LimitShape::Window {
                width,
                start,
                taken,
            } => {
                if at >= *start + *width {
                    let index = at.as_nanos() / width.as_nanos();
                    *start = *width * index as u32;
                    *taken = 0.0;
                }
            }
            LimitShape::Bucket {
                burst,
                tokens,
                filled,
            } => {
                *tokens = burst.min(*tokens + self.rate.sum(*filled..at));
                *filled = at;
            }
        }
    }

    /// Returns how many requests it would accept now, and the time until that number grows.
    fn left(&self, at: Duration) -> (f64, Duration) {
        // Sums of fractions can be slightly below a whole number.
        const TOLERANCE: f64 = 1e-6;
        match &self.shape {
            LimitShape::Window {
                width,
                start,
                taken,
            } => {
                let limit = (self.rate.at(*start) * width.as_secs_f64()).round();
                (limit - taken, (*start + *width).saturating_sub(at))
            }
            LimitShape::Bucket { tokens, .. } => {
                let whole = (tokens + TOLERANCE).floor();
                let missing = (whole + 1.0 - tokens) / self.rate.at(at);
                (
                    whole,
                    Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX),
                )
            }
        }
    }
}

impl Rule for Limit {
    fn decide(&mut self, _: &Request, at: Duration, _: &mut Chance) -> Option<Reply> {
        self.refill(at);
        if self.left(at).0 < 1.0 {
            let refusal = Reply::status(self.status);
            let headers = self.on_refusal.iter();
            return Some(headers.fold(refusal, |reply, (name, value)| reply.header(name, value)));
        }
        match &mut self.shape {
            LimitShape::Window { taken, .. } => *taken += 1.0,
            LimitShape::Bucket { tokens, .. } => *tokens -= 1.0,
        }
        None
    }

    fn hints(&self, at: Duration) -> Hints {
        if !self.hints {
            return Hints::new();
        }
        let (remaining, reset) = self.left(at);
        vec![
            ("ratelimit-remaining", remaining.to_string()),
            // The header has whole seconds.
            ("ratelimit-reset", reset.as_secs_f64().ceil().to_string()),
        ]
    }
}
