//! Limits the retries that a client adds to the load of a server.
//!
//! [`Budget`] is a handle on a shared [`BudgetState`]. A retry is paid from the [`pool`], the reserve that successes
//! refill, or from the sliding [`window`], which holds a share of the calls. It takes a
//! [`BudgetHold`], which gives the retry back unless it is sent.
//! [`FleetBudget`](fleet_budget::FleetBudget) is the part that workers of a fleet share.

mod builder;
mod fleet_budget;
mod hold;
mod pool;
mod ratio;
mod state;
/// The types that the window is built on. `models/` replaces them by loom's.
mod sync {
    pub(super) use std::sync::Mutex;
    pub(super) use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
}
mod window;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
pub use builder::BudgetBuilder;
pub(super) use fleet_budget::FleetBudget;
pub(crate) use hold::BudgetHold;
use hold::HoldSource;
use state::BudgetState;

/// Limits retries to a share of the calls, plus a reserve that successes refill.
///
/// The page [admit](crate::guide::admit) of the guide shows what it does in an outage.
///
/// # Why a budget and not only a count
///
/// A count limits one call. If every call fails, five retries each make six times the load, when the server
/// can bear it least. When the server comes back, the retries keep it down. A budget limits the retries of all
/// calls together. By default only successes feed it. So an outage adds at most what was saved up in the 10 s
/// before it (a fifth of the successes, and 20), and nothing after that, however long it lasts.
///
/// ```
/// use reqwest_steady::{Budget, Deposit};
///
/// let budget = Budget::builder()
///     .retry_ratio(0.1)
///     .min_retries_per_sec(0.0)
///     .deposit_on(Deposit::Request)
///     .build()?;
/// let mut retries = 0;
/// for _failed_call in 0..1000 {
///     budget.deposit();
///     while budget.try_withdraw() {
///         retries += 1; // a count of 5 would allow 5000
///     }
/// }
/// assert_eq!(retries, 100);
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// # How to size it for a fleet of small clients
///
/// The reserve lets a client with little traffic retry at all. Every client has one, per host. It holds
/// `min_retries_per_sec` × `ttl` retries, 20 by default. An outage empties it once, and only successes refill it.
/// So a fleet adds at most the number of clients times the size of the reserve to an outage. For example, the
/// reserves of 500 clients hold 10,000 retries. If that is too much at once, make them smaller:
///
/// ```
/// use reqwest_steady::{Budget, RetryMiddleware};
///
/// let small = Budget::builder().min_retries_per_sec(0.4);
/// // Per client and host, in an outage of any length:
/// assert_eq!(small.clone().build()?.balance(), 4.0);
/// let retry = RetryMiddleware::builder().budget_per_host(small).build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// # How it counts
///
/// Exactly. A retry is paid from the reserve, or from deposits if the reserve is empty.
///
/// - **Reserve.** A retry takes one. A failed attempt without a paid retry takes half of one. A success refills up
///   to one, and all successes together at most `min_retries_per_sec`.
/// - **Deposits.** A ratio of 0.75 allows three retries for four deposits. Deposits and withdrawals count for
///   `ttl`, or up to a fifteenth longer. Then deposits are lost, and withdrawals are available again.
///
/// Threads that withdraw at once never overdraw it. Clones share one budget.
///
/// By default a [`RetryMiddleware`](crate::RetryMiddleware) keeps one budget per host, and per port that is
/// not the scheme's default. Their settings come from
/// [`budget_per_host`](crate::RetryMiddlewareBuilder::budget_per_host). A budget given to
/// [`budget`](crate::RetryMiddlewareBuilder::budget) replaces them all. Then one host that is down spends what
/// the others have saved up.
#[derive(Clone)]
pub struct Budget(Option<Arc<BudgetState>>);

/// Selects which calls feed a [`Budget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Deposit {
    /// Each call that could be retried and ends with a final response: no 429 and no server error. In an outage the
    /// budget runs empty.
    #[default]
    Success,
    /// Each call that could be retried.
    Request,
}

#[cfg(feature = "serde")]
impl crate::config::choice::Choice for Deposit {
    const FORMS: &'static str = "\"success\" or \"request\"";
}

impl Budget {
    /// Starts a builder with the defaults: 10 s, a ratio of 0.2, a reserve of 20, fed by successes.
    pub fn builder() -> BudgetBuilder {
        BudgetBuilder::default()
    }

    /// Creates a budget that allows every retry.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// Credits one call.
    ///
    /// If successes feed the budget, it also refills the reserve. With [`Deposit::Request`], only a
    /// [`RetryMiddleware`](crate::RetryMiddleware) refills it, because it knows which calls succeed.
    pub fn deposit(&self) {
        if let Some(state) = &self.0 {
            let now = clock::now();
            match state.deposit_on {
                Deposit::Success => {
                    state.on_success(now);
                }
                Deposit::Request => state.deposit(now),
            }
        }
    }

    /// Pays for one retry. Returns whether the budget had enough.
    pub fn try_withdraw(&self) -> bool {
        let hold = self.withdraw_at(clock::now());
        hold.map(BudgetHold::spend).is_some()
    }

    /// Returns how many retries the budget would pay for now.
    pub fn balance(&self) -> f64 {
        self.balance_at(clock::now())
    }

    /// Returns how long deposits and withdrawals count. `None` for an unlimited budget.
    pub fn ttl(&self) -> Option<Duration> {
        self.0.as_ref().map(|state| state.terms.ttl)
    }

    /// Returns how many retries per second successes refill at most. `None` for an unlimited budget.
    pub fn min_retries_per_sec(&self) -> Option<f64> {
        self.0.as_ref().map(|state| state.terms.min_per_sec)
    }

    /// Returns how many retries each deposit pays for. `None` for an unlimited budget.
    pub fn retry_ratio(&self) -> Option<f64> {
        self.0.as_ref().map(|state| state.terms.ratio)
    }

    /// Returns which calls feed the budget. `None` for an unlimited budget.
    pub fn deposit_on(&self) -> Option<Deposit> {
        self.0.as_ref().map(|state| state.deposit_on)
    }

    pub(crate) fn balance_at(&self, now: Instant) -> f64 {
        (self.0.as_ref()).map_or(f64::INFINITY, |state| state.balance(now))
    }

    /// Credits a call when it begins, if requests feed the budget.
    pub(crate) fn on_request(&self, now: Instant) {
        let state = self.0.as_ref();
        if let Some(state) = state.filter(|state| state.deposit_on == Deposit::Request) {
            state.deposit(now);
        }
    }

    /// Credits a call that succeeded, if successes feed the budget. Returns the balance.
    #[inline]
    pub(crate) fn on_success(&self, now: Instant) -> f64 {
        (self.0.as_ref()).map_or(f64::INFINITY, |state| state.on_success(now))
    }

    /// Counts a failed attempt that no paid retry follows, which takes half a retry from the reserve.
    pub(crate) fn on_failure(&self) {
        if let Some(state) = &self.0 {
            state.count_failure();
        }
    }

    /// Counts a free retry of an attempt that the server did not process. Returns false if the host is not healthy.
    pub(crate) fn take_free(&self, now: Instant) -> bool {
        (self.0.as_ref()).is_none_or(|state| state.take_free(now))
    }

    /// Pays for one retry from this worker's own reserve or window. Dropping the hold gives the retry back.
    pub(crate) fn withdraw_at(&self, now: Instant) -> Option<BudgetHold> {
        Some(BudgetHold(match &self.0 {
            None => HoldSource::Free,
            Some(state) => state.try_take(now)?,
        }))
    }

    /// Whether workers of a fleet share this budget.
    pub(crate) fn is_shared(&self) -> bool {
        (self.0.as_ref()).is_some_and(|state| state.fleet.is_some())
    }

    /// Returns whether both are one budget, and it has a limit.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    /// Whether a new budget would allow more.
    pub(super) fn is_in_debt(&self, now: Instant) -> bool {
        (self.0.as_ref()).is_some_and(|state| state.is_in_debt(now))
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(state) => builder::show(f, "Budget", &state.terms, state.deposit_on)
                .field("balance", &self.balance())
                .finish(),
            None => f.write_str("Budget(unlimited)"),
        }
    }
}

#[cfg(test)]
#[path = "budget/tests.rs"]
mod tests;
