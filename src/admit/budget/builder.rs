//! Builds a budget: checks its settings and turns them into whole numbers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fleet_budget::FleetBudget;
use super::pool::ReservePool;
use super::state::{BudgetState, SLOTS};
use super::window::SlidingWindow;
use super::{Budget, Deposit, ratio};
use crate::clock;
use crate::config::ConfigError;
use crate::fleet::RetryTerms;

/// A deposit or a retry is worth this many units, or a little less; the other one is worth fewer.
const SCALE: u64 = 1_000_000;

/// Builds a [`Budget`].
///
/// [`build`](BudgetBuilder::build) checks all values.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::Budget;
///
/// let budget = Budget::builder()
///     .ttl(Duration::from_secs(30))
///     .retry_ratio(0.1)
///     .min_retries_per_sec(0.5)
///     .build()?;
/// assert_eq!(budget.balance(), 15.0);
///
/// let refused = Budget::builder().retry_ratio(10.0).build().unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "retry_ratio (10.0) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct BudgetBuilder {
    /// The settings as a fleet's store knows them.
    pub(crate) terms: RetryTerms,
    pub(crate) deposit_on: Deposit,
}

impl Default for BudgetBuilder {
    fn default() -> Self {
        Self {
            terms: RetryTerms {
                ttl: Duration::from_secs(10),
                ratio: 0.2,
                min_per_sec: 2.0,
            },
            deposit_on: Deposit::Success,
        }
    }
}

impl BudgetBuilder {
    /// Sets how long deposits and withdrawals count, up to an hour.
    ///
    /// Default: 10 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.terms.ttl = ttl;
        self
    }

    /// Sets the refill limit of the reserve: how many retries per second successes may refill.
    ///
    /// The reserve holds what this makes in a `ttl`: 20 retries with the defaults (2 per second × 10 s). It starts
    /// full. Retries and failures take from it, and only successes refill it, up to one retry each. So a host that
    /// is down empties it once, however long the outage lasts. Zero turns the reserve off.
    ///
    /// The name is from a time when the reserve refilled by itself. It is still the rate of retries that a host
    /// can get from a client whose calls fail now and then.
    ///
    /// After a 429, calls that find the budget empty wait in line. There the first release without a success
    /// comes after `1 / min_retries_per_sec` seconds: see the page [admit](crate::guide::admit) of the guide.
    ///
    /// Default: 2.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses a reserve of less than one retry within `ttl`, unless it is 0.
    pub fn min_retries_per_sec(mut self, retries: f64) -> Self {
        self.terms.min_per_sec = retries;
        self
    }

    /// Sets how many retries each deposit pays for, from 0 to 1.
    ///
    /// 0.1 allows 1 retry for 10 deposits (10 %), in addition to the reserve (`min_retries_per_sec`).
    ///
    /// Default: 0.2.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses values below 0 or above 1, and NaN.
    #[doc(alias = "percent_can_retry")]
    pub fn retry_ratio(mut self, ratio: f64) -> Self {
        self.terms.ratio = ratio;
        self
    }

    /// Sets which calls feed the budget.
    ///
    /// Default: [`Deposit::Success`].
    pub fn deposit_on(mut self, deposit_on: Deposit) -> Self {
        self.deposit_on = deposit_on;
        self
    }

    /// Builds the budget.
    ///
    /// # Errors
    ///
    /// Refuses values out of range. The error names the setting and the value.
    pub fn build(self) -> Result<Budget, ConfigError> {
        self.terms.check()?;
        Ok(self.start(clock::now(), None))
    }

    /// Starts a budget that replaces another one of the same host.
    ///
    /// It has what is left of the old reserve, so that an outage does not get a second one. Deposits are lost.
    pub(in crate::admit) fn start_after(&self, old: &Budget, now: Instant) -> Budget {
        let new = self.start(now, None);
        if let (Some(new), Some(old)) = (&new.0, &old.0) {
            new.pool.lower_to(old.pool.retries(0));
        }
        new
    }

    /// Starts a budget, which counts in whole numbers. The settings must be valid: then no number exceeds 4e15.
    pub(in crate::admit) fn start(&self, now: Instant, fleet: Option<FleetBudget>) -> Budget {
        let terms = &self.terms;
        let (deposit, cost) = ratio::fraction(terms.ratio);
        let scale = SCALE / deposit.max(cost);
        let cost = cost * scale;
        // Entries live for at least 15 slots.
        let width = terms.ttl.as_nanos().div_ceil(SLOTS as u128 - 1) as u64;
        Budget(Some(Arc::new(BudgetState {
            window: SlidingWindow::new(width),
            pool: ReservePool::new(terms.reserve(), terms.min_per_sec),
            unpaid: 0.into(),
            created: now,
            terms: self.terms,
            deposit_on: self.deposit_on,
            deposit: (deposit * scale) as i64,
            cost: cost as i64,
            fleet: fleet.map(Arc::new),
        })))
    }
}

impl fmt::Debug for BudgetBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, "BudgetBuilder", &self.terms, self.deposit_on).finish()
    }
}

/// Shows the settings of a budget by the names of the builder.
pub(super) fn show<'a, 'b>(
    f: &'a mut fmt::Formatter<'b>,
    type_name: &str,
    terms: &RetryTerms,
    deposit_on: Deposit,
) -> fmt::DebugStruct<'a, 'b> {
    let mut shown = f.debug_struct(type_name);
    shown
        .field("ttl", &terms.ttl)
        .field("min_retries_per_sec", &terms.min_per_sec)
        .field("retry_ratio", &terms.ratio)
        .field("deposit_on", &deposit_on);
    shown
}
