//! What a worker asks a store, and what it is answered.

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::admit::Budget;
use crate::config::ConfigError;

/// A store that is given a key of any length would keep it, for each of its workers.
const MAX_KEY: usize = 1024;
/// One a day.
const MIN_RATE: f64 = 1.0 / 86_400.0;
const MAX_RATE: f64 = 1e6;
const MIN_PERIOD: Duration = Duration::from_millis(1);
const MAX_PERIOD: Duration = Duration::from_secs(60 * 60);
/// More calls than any worker makes between two questions.
const MAX_DEPOSITS: u64 = 1_000_000_000;

/// Tells the workers of a fleet apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkerId(Uuid);

impl WorkerId {
    /// A new one, by chance.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerId({})", self.0)
    }
}

/// The rate that all workers share: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedRate {
    /// How many tokens come in a second.
    pub per_second: f64,
    /// How many there can be.
    pub burst: u32,
}

/// How the adaptive rate of one worker has changed since it last told of it, in requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaceChange {
    /// What it was.
    pub before: f64,
    /// What it is.
    pub now: f64,
}

/// A question about sending.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::fleet::{LeaseAsk, WorkerId};
///
/// let ask = LeaseAsk::new(WorkerId::random(), Duration::from_millis(100))
///     .rate(50.0, 10)
///     .want(5)
///     .unused(2);
/// assert_eq!(ask.want, 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LeaseAsk {
    /// Who asks.
    pub worker: WorkerId,
    /// How often it asks. A worker that is silent for three periods, and for three seconds, is gone.
    pub period: Duration,
    /// The rate to keep. Without one, tokens are not counted, and all that are wanted are granted.
    pub rate: Option<SharedRate>,
    /// How many tokens it would like.
    pub want: u32,
    /// How many of those that it has got it hands back.
    pub unused: u32,
    /// What became of its adaptive rate.
    pub pace: Option<PaceChange>,
}

impl LeaseAsk {
    /// Asks for nothing, and says only that the worker is there.
    pub fn new(worker: WorkerId, period: Duration) -> Self {
        Self {
            worker,
            period,
            rate: None,
            want: 0,
            unused: 0,
            pace: None,
        }
    }

    /// The rate to keep, and how many may go at once after a silence.
    pub fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = Some(SharedRate { per_second, burst });
        self
    }

    /// How many tokens it would like.
    pub fn want(mut self, tokens: u32) -> Self {
        self.want = tokens;
        self
    }

    /// How many of those that it has got it hands back.
    pub fn unused(mut self, tokens: u32) -> Self {
        self.unused = tokens;
        self
    }

    /// What became of its adaptive rate.
    pub fn pace(mut self, before: f64, now: f64) -> Self {
        self.pace = Some(PaceChange { before, now });
        self
    }

    /// What no store should be bothered with, for it could not be undone there.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.period < MIN_PERIOD || self.period > MAX_PERIOD {
            return Err(ConfigError::new(
                "period",
                format_args!("{:?}", self.period),
                "should be from a millisecond to an hour",
            ));
        }
        self.rate.as_ref().map_or(Ok(()), SharedRate::check)?;
        self.pace.as_ref().map_or(Ok(()), PaceChange::check)
    }
}

impl SharedRate {
    fn check(&self) -> Result<(), ConfigError> {
        // NaN is in no range.
        if !(MIN_RATE..=MAX_RATE).contains(&self.per_second) {
            return Err(ConfigError::new(
                "rate",
                format_args!("{:?} a second", self.per_second),
                "should be between one a day and a million a second",
            ));
        }
        if self.burst == 0 {
            return Err(ConfigError::new(
                "burst of the rate",
                self.burst,
                "should be at least 1",
            ));
        }
        Ok(())
    }
}

impl PaceChange {
    fn check(&self) -> Result<(), ConfigError> {
        for (name, value) in [("pace before", self.before), ("pace now", self.now)] {
            if !(0.0..=MAX_RATE).contains(&value) {
                return Err(ConfigError::new(
                    name,
                    format_args!("{value:?}"),
                    "should be from 0 to a million a second",
                ));
            }
        }
        Ok(())
    }
}

/// What a worker may do until it asks again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Lease {
    /// How many requests it may send.
    pub tokens: u32,
    /// If there were none: when it is worth asking again. Else zero.
    pub retry_after: Duration,
    /// For how long nobody may send.
    pub pause: Duration,
    /// How many workers there are, the one that asks among them.
    pub workers: u32,
    /// The adaptive rate of all workers together, if any has told of its own within a minute.
    pub pace: Option<f64>,
}

/// The settings of a retry budget. They mean what those of a [`Budget`] mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryTerms {
    /// How long deposits and withdrawals count.
    pub ttl: Duration,
    /// How many retries a deposit pays for.
    pub ratio: f64,
    /// So many retries a second are allowed in any case.
    pub min_per_sec: f64,
}

impl RetryTerms {
    /// How many retries there are with no deposit at all.
    pub(super) fn reserve(&self) -> f64 {
        self.min_per_sec * self.ttl.as_secs_f64()
    }

    /// How long one slot of the window is, in microseconds: entries live for fifteen at least.
    pub(super) fn slot(&self) -> f64 {
        self.ttl.as_micros().div_ceil(15) as f64
    }

    fn check(&self) -> Result<(), ConfigError> {
        Budget::builder()
            .ttl(self.ttl)
            .retry_ratio(self.ratio)
            .min_retries_per_sec(self.min_per_sec)
            .check()
    }
}

/// A question about retrying.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::fleet::{RetriesAsk, RetryTerms};
///
/// let terms = RetryTerms { ttl: Duration::from_secs(10), ratio: 0.2, min_per_sec: 2.0 };
/// let ask = RetriesAsk::new(terms).deposits(100).want(3);
/// assert_eq!(ask.deposits, 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetriesAsk {
    /// The settings of the budget.
    pub terms: RetryTerms,
    /// How many calls to credit.
    pub deposits: u64,
    /// How many retries it would like.
    pub want: u32,
    /// How many of those that it has got it hands back.
    pub unused: u32,
}

impl RetriesAsk {
    /// Asks for nothing but the balance.
    pub fn new(terms: RetryTerms) -> Self {
        Self {
            terms,
            deposits: 0,
            want: 0,
            unused: 0,
        }
    }

    /// How many calls to credit.
    pub fn deposits(mut self, calls: u64) -> Self {
        self.deposits = calls;
        self
    }

    /// How many retries it would like.
    pub fn want(mut self, retries: u32) -> Self {
        self.want = retries;
        self
    }

    /// How many of those that it has got it hands back.
    pub fn unused(mut self, retries: u32) -> Self {
        self.unused = retries;
        self
    }

    /// What no store should be bothered with, for it could not be undone there.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.deposits > MAX_DEPOSITS {
            return Err(ConfigError::new(
                "deposits",
                self.deposits,
                format_args!("should be at most {MAX_DEPOSITS}"),
            ));
        }
        self.terms.check()
    }
}

/// How many retries a worker may send.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Retries {
    /// How many it has got.
    pub granted: u32,
    /// How many are left for all.
    pub balance: f64,
}

/// Shows no more than the length: a key may be a user's secret.
pub(super) fn check_key(key: &str) -> Result<(), ConfigError> {
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(ConfigError::new(
            "key",
            format_args!("of {} bytes", key.len()),
            format_args!("should have from 1 to {MAX_KEY}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> LeaseAsk {
        LeaseAsk::new(WorkerId::random(), Duration::from_millis(100))
    }

    fn refusal(checked: Result<(), ConfigError>) -> String {
        checked.unwrap_err().to_string()
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_value() {
        for (checked, text) in [
            (ask().rate(f64::NAN, 1).check(), "rate (NaN a second)"),
            (ask().rate(f64::INFINITY, 1).check(), "rate (inf a second)"),
            (ask().rate(-1.0, 1).check(), "rate (-1.0 a second)"),
            (ask().rate(0.0, 1).check(), "rate (0.0 a second)"),
            (ask().rate(1e7, 1).check(), "rate (10000000.0 a second)"),
            (ask().rate(1.0, 0).check(), "burst of the rate (0)"),
            (ask().pace(f64::NAN, 1.0).check(), "pace before (NaN)"),
            (ask().pace(1.0, -1.0).check(), "pace now (-1.0)"),
            (ask().pace(1.0, 1e300).check(), "pace now (1e300)"),
            (
                LeaseAsk::new(WorkerId::random(), Duration::ZERO).check(),
                "period (0ns)",
            ),
            (
                LeaseAsk::new(WorkerId::random(), Duration::MAX).check(),
                "period (18446744073709551615.999999999s)",
            ),
            (check_key(""), "key (of 0 bytes)"),
            (check_key(&"k".repeat(2000)), "key (of 2000 bytes)"),
        ] {
            assert!(refusal(checked).starts_with(text), "{text}");
        }
        assert_eq!(ask().rate(1e6, u32::MAX).pace(0.0, 1e6).check(), Ok(()));
    }

    #[test]
    fn the_terms_of_a_budget_are_held_to_the_rules_of_a_budget() {
        let terms = RetryTerms {
            ttl: Duration::from_secs(10),
            ratio: 0.2,
            min_per_sec: 2.0,
        };
        assert_eq!(RetriesAsk::new(terms).check(), Ok(()));
        let ratio = f64::NAN;
        let refused = RetriesAsk::new(RetryTerms { ratio, ..terms }).check();
        assert_eq!(
            refusal(refused),
            "retry_ratio (NaN) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)"
        );
        let refused = RetriesAsk::new(terms).deposits(u64::MAX).check();
        assert!(refusal(refused).starts_with("deposits (18446744073709551615)"));
    }
}
