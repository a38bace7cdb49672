//! What a worker asks a store about retries, and what the store grants.

use std::time::Duration;

use crate::config::{ConfigError, Written, ensure};

const MAX_TTL: Duration = Duration::from_secs(60 * 60);
/// A ratio above 1 bounds nothing, and is most likely meant as a percentage.
const MAX_RATIO: f64 = 1.0;
/// The smallest ratio that a [`Budget`](crate::Budget) can count with.
const MIN_RATIO: f64 = 0.000_001;
const MAX_RESERVE: f64 = 1_000_000.0;
/// More calls than any worker makes between two asks.
pub(super) const MAX_DEPOSITS: u64 = 1_000_000_000;

/// Holds the settings of a retry budget, as [`BudgetBuilder`](crate::BudgetBuilder) describes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryTerms {
    /// How long deposits and withdrawals count.
    pub ttl: Duration,
    /// Retries that one deposit pays for.
    pub ratio: f64,
    /// Retries per second by which successes refill the pool. A full pool holds what this makes in a `ttl`.
    pub min_per_sec: f64,
}

impl RetryTerms {
    /// Number of retries in a full pool.
    pub(crate) fn reserve(&self) -> f64 {
        self.min_per_sec * self.ttl.as_secs_f64()
    }

    /// Length of one slot in microseconds. Entries live for at least 15 slots.
    pub(super) fn slot(&self) -> f64 {
        self.ttl.as_micros().div_ceil(15) as f64
    }

    /// Checks the values. The errors use the setting names of `BudgetBuilder`.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let is_valid = !self.ttl.is_zero() && self.ttl <= MAX_TTL;
        let rule = "should be longer than zero and at most an hour";
        ensure(is_valid, "ttl", Written(self.ttl), rule)?;
        in_range("min_retries_per_sec", self.min_per_sec, MAX_RESERVE, "")?;
        let advice = ": 0.1 allows one retry for ten calls (10 %)";
        in_range("retry_ratio", self.ratio, MAX_RATIO, advice)?;
        let makes_one = self.reserve() <= 0.0 || self.reserve() >= 1.0;
        let (ttl, least) = (Written(self.ttl), 1.0 / self.ttl.as_secs_f64());
        let rule = format!("should be 0, or at least {least} (one retry within the ttl of {ttl})");
        let refill = Written(self.min_per_sec);
        ensure(makes_one, "min_retries_per_sec", refill, rule)?;
        let counts = self.ratio <= 0.0 || self.ratio >= MIN_RATIO;
        let rule = "should be 0, or at least 0.000001";
        ensure(counts, "retry_ratio", Written(self.ratio), rule)
    }
}

fn in_range(setting: &'static str, value: f64, most: f64, advice: &str) -> Result<(), ConfigError> {
    let rule = format!("should be from 0 to {most}{advice}");
    // NaN is in no range.
    ensure((0.0..=most).contains(&value), setting, Written(value), rule)
}

/// Asks a store for retries.
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
    /// Settings of the budget.
    pub terms: RetryTerms,
    /// Calls to credit.
    pub deposits: u64,
    /// Retries that the worker wants.
    pub want: u32,
    /// Retries granted earlier that the worker hands back.
    pub unused: u32,
    /// Calls that succeeded since the last ask. Each refills the pool by up to one retry.
    pub successes: u64,
    /// Attempts that failed since the last ask, without a paid retry. Each takes half a retry from the pool.
    pub failures: u64,
}

impl RetriesAsk {
    /// Creates an ask for the balance only.
    pub fn new(terms: RetryTerms) -> Self {
        Self {
            terms,
            deposits: 0,
            want: 0,
            unused: 0,
            successes: 0,
            failures: 0,
        }
    }

    /// Sets how many calls to credit.
    pub fn deposits(mut self, calls: u64) -> Self {
        self.deposits = calls;
        self
    }

    /// Sets how many retries the worker wants.
    pub fn want(mut self, retries: u32) -> Self {
        self.want = retries;
        self
    }

    /// Sets how many retries granted earlier the worker hands back.
    pub fn unused(mut self, retries: u32) -> Self {
        self.unused = retries;
        self
    }

    /// Sets how many calls succeeded since the last ask.
    pub fn successes(mut self, calls: u64) -> Self {
        self.successes = calls;
        self
    }

    /// Sets how many attempts failed since the last ask.
    pub fn failures(mut self, attempts: u64) -> Self {
        self.failures = attempts;
        self
    }

    /// Checks the values. A store calls this first, because it could not undo a bad value.
    ///
    /// # Errors
    ///
    /// Refuses terms that a [`BudgetBuilder`](crate::BudgetBuilder) refuses, and too many deposits.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (setting, count) in [
            ("deposits", self.deposits),
            ("successes", self.successes),
            ("failures", self.failures),
        ] {
            let rule = format!("should be at most {MAX_DEPOSITS}");
            ensure(count <= MAX_DEPOSITS, setting, count, rule)?;
        }
        self.terms.check()
    }
}

/// Says how many retries a worker may send.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Retries {
    /// Retries granted to the worker.
    pub granted: u32,
    /// Retries left for all workers.
    pub balance: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(ask: RetriesAsk) -> String {
        ask.check().unwrap_err().to_string()
    }

    #[test]
    fn terms_follow_the_rules_of_a_budget() {
        let terms = RetryTerms {
            ttl: Duration::from_secs(10),
            ratio: 0.2,
            min_per_sec: 2.0,
        };
        assert_eq!(RetriesAsk::new(terms).check(), Ok(()));
        let ratio = f64::NAN;
        assert_eq!(
            refusal(RetriesAsk::new(RetryTerms { ratio, ..terms })),
            "retry_ratio (nan) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)"
        );
        let refused = refusal(RetriesAsk::new(terms).deposits(u64::MAX));
        assert!(refused.starts_with("deposits (18446744073709551615)"));
    }
}
