//! How many retries a client may add to the load of a server.

mod common;
mod ratio;
/// What the window is built of; the model in `models/` gives it loom's instead.
mod sync {
    pub(super) use std::sync::Mutex;
    pub(super) use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
}
mod window;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Url;
use tokio::time::Instant;

use crate::clock;
use crate::config::ConfigError;
use crate::fleet::{FleetLimits, RetryTerms};
use crate::host::{BoundedTable, Host};
use common::Common;
use window::{SlotEnd, Window};

/// One slot more than the time to live has, so that nothing expires early.
const SLOTS: usize = 16;

/// What a retry costs, or a little less, in units.
const SCALE: u64 = 1_000_000;

const MAX_TTL: Duration = Duration::from_secs(60 * 60);
/// More retries than calls bound nothing. A ratio above 1 is most likely meant as a percentage.
const MAX_RATIO: f64 = 1.0;
const MAX_RESERVE: f64 = 1_000_000.0;

/// What a free retry adds to [`Limited::unpaid`]. A success takes 1 off, so every second call may have one.
const FREE_RETRY: u32 = 2;
/// A burst of 500 free retries, as when one connection with many calls in flight is closed.
const MAX_UNPAID: u32 = 500 * FREE_RETRY;

/// The fuse that keeps a hiccup from becoming an outage: retries may be a share of the calls, and a
/// few a second more.
///
/// # Why a budget and not only a count
///
/// A count bounds one call. If every call fails, five retries each are six times the load, at the
/// very moment when the server can bear it least; and when it comes back, the retries keep it down.
/// A budget bounds them all together. Only successes feed it, so with the defaults an outage adds at
/// most what was saved up in the 10 s before it (a fifth of the successes, and 20), and then two
/// requests a second.
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
///         retries += 1; // with a count of 5, there would be 5000
///     }
/// }
/// assert_eq!(retries, 100);
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// # How to size it for a fleet of small clients
///
/// The reserve, `min_retries_per_sec`, lets a client with little traffic retry at all. But every
/// client has its own: what a fleet may add to a dead server is the number of clients times the
/// reserve, on top of the ratio. 500 clients with 5 calls a second each are 2500 a second; the
/// default reserve of 2 lets them add 1000, and one of 0.2 adds 100. Give a larger fleet a longer
/// `ttl`, for a reserve that is not one retry within it would be none. That is the average over the
/// `ttl`; when an outage begins, each client may spend at once all that it has saved up:
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::{Budget, RetryMiddleware};
///
/// let clients = 500.0;
/// let extra_load = 100.0; // requests a second that the server can bear on its worst day
/// let small = Budget::builder()
///     .min_retries_per_sec(extra_load / clients)
///     .ttl(Duration::from_secs(30));
/// // For each client and host, within thirty seconds or all at once:
/// assert_eq!(small.clone().build()?.balance(), 6.0);
/// let retry = RetryMiddleware::builder().budget_per_host(small).build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// # How it counts
///
/// Exactly. A ratio of 0.75 allows three retries for four deposits. What is deposited or withdrawn
/// counts for `ttl`, up to a fifteenth of it longer, and then not at all: deposits are lost, and a
/// withdrawal comes back. However many threads withdraw at once, it is never overdrawn. Clones share
/// one budget.
///
/// By default a [`RetryMiddleware`](crate::RetryMiddleware) keeps one for each host, and for each port
/// of it that is not the scheme's own; their settings are
/// [`budget_per_host`](crate::RetryMiddlewareBuilder::budget_per_host)'s. One that is given to
/// [`budget`](crate::RetryMiddlewareBuilder::budget) takes the place of them all: a host that is down
/// then spends what the others have saved up.
#[derive(Clone)]
pub struct Budget(Option<Arc<Limited>>);

struct Limited {
    window: Window<SLOTS>,
    /// Something was ever withdrawn. If not, there is no debt, whatever the time is.
    withdrawn: AtomicBool,
    /// Twice the number of free retries, less the successes since, but never below 0. Free retries end at
    /// [`MAX_UNPAID`]; threads that race may pass it by a few.
    unpaid: AtomicU32,
    born: Instant,
    terms: Terms,
    /// What is shared with other workers. Its own window decides while their store is away.
    common: Option<Box<Common>>,
}

/// What the settings of a budget come to, in whole numbers.
#[derive(Clone, Copy, Debug)]
struct Terms {
    slot_width: u64,
    deposit_on: Deposit,
    deposit: i64,
    cost: i64,
    reserve: i64,
}

/// What feeds a [`Budget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Deposit {
    /// Each call that could be retried and ends with an answer that is not a failure of the server's:
    /// in an outage the budget runs dry.
    #[default]
    Success,
    /// Each call that could be retried.
    Request,
}

impl Budget {
    /// Starts from the defaults: 10 s, 2 retries a second, a ratio of 0.2, fed by successes.
    pub fn builder() -> BudgetBuilder {
        BudgetBuilder::default()
    }

    /// A budget that is never empty.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// Credits one call.
    pub fn deposit(&self) {
        if self.0.is_some() {
            self.deposit_at(clock::now());
        }
    }

    /// Pays for one retry, if there is enough.
    pub fn try_withdraw(&self) -> bool {
        let withdrawal = self.withdraw_at(clock::now());
        withdrawal.map(Withdrawal::spend).is_some()
    }

    /// How many retries it would pay for now.
    pub fn balance(&self) -> f64 {
        self.balance_at(clock::now())
    }

    pub(crate) fn balance_at(&self, now: Instant) -> f64 {
        self.balance_by(self.time_at(now))
    }

    /// A moment as it counts it, for those who need it twice.
    pub(crate) fn time_at(&self, now: Instant) -> BudgetTime {
        BudgetTime(self.0.as_ref().map_or(0, |limited| limited.time(now)))
    }

    pub(crate) fn balance_by(&self, time: BudgetTime) -> f64 {
        match &self.0 {
            None => f64::INFINITY,
            Some(limited) => {
                let units = limited.window.net(time.0) + limited.terms.reserve;
                units.max(0) as f64 / limited.terms.cost as f64
            }
        }
    }

    /// Credits a call at its beginning, if it is beginnings that count.
    pub(crate) fn on_request(&self, now: Instant) {
        if self.is_fed_by(Deposit::Request) {
            self.deposit_at(now);
        }
    }

    /// Whether a retry of what the server did not process costs nothing: its host is healthy.
    pub(crate) fn allows_free(&self, now: Instant) -> bool {
        let has_room = |limited: &Limited| limited.unpaid.load(Ordering::Relaxed) < MAX_UNPAID;
        self.0.as_deref().is_none_or(has_room) && !self.is_in_debt(now)
    }

    /// Counts a free retry.
    pub(crate) fn count_free(&self) {
        if let Some(limited) = &self.0 {
            limited.unpaid.fetch_add(FREE_RETRY, Ordering::Relaxed);
        }
    }

    /// Credits a call that the server has answered well, if it is those that count.
    pub(crate) fn on_success(&self, now: Option<(Instant, BudgetTime)>) {
        if let Some(limited) = &self.0 {
            limited.count_success();
        }
        if self.is_fed_by(Deposit::Success) {
            match now {
                Some((now, time)) => self.deposit_by(now, time),
                None => self.deposit_at(clock::now()),
            }
        }
    }

    /// Pays for one retry. Unless it is spent, it is given back when dropped.
    pub(crate) fn withdraw_at(&self, now: Instant) -> Option<Withdrawal> {
        let Some(limited) = &self.0 else {
            return Some(Withdrawal(None));
        };
        let time = limited.time(now);
        // The reserve of all workers, if there are others: this is its own part.
        let workers = (limited.common.as_ref()).map_or(1, |common| common.workers());
        let floor = -limited.terms.reserve / workers.max(1);
        let slot = limited.window.try_take(time, limited.terms.cost, floor)?;
        limited.withdrawn.store(true, Ordering::Relaxed);
        Some(Withdrawal(Some((limited.clone(), Paid::Own(slot)))))
    }

    /// Whether more was withdrawn than deposited, or the fleet has just refused a retry: then it is not as good as
    /// a new one, and its host fails more often than its successes pay for.
    fn is_in_debt(&self, now: Instant) -> bool {
        let in_debt = |limited: &Limited| {
            let common = limited.common.as_ref();
            limited.withdrawn.load(Ordering::Relaxed) && limited.window.net(limited.time(now)) < 0
                || common.is_some_and(|common| common.is_empty(limited.age(now)))
        };
        self.0.as_deref().is_some_and(in_debt)
    }

    /// Returns whether both are one budget, and it has a limit.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    fn is_fed_by(&self, deposit: Deposit) -> bool {
        (self.0.as_ref()).is_some_and(|limited| limited.terms.deposit_on == deposit)
    }

    fn deposit_at(&self, now: Instant) {
        self.deposit_by(now, self.time_at(now));
    }

    fn deposit_by(&self, now: Instant, time: BudgetTime) {
        if let Some(limited) = &self.0 {
            limited.window.add(time.0, limited.terms.deposit);
            if limited.common.is_some() {
                self.deposit_for_all(now);
            }
        }
    }
}

/// Nanoseconds since a budget was made.
#[derive(Clone, Copy)]
pub(crate) struct BudgetTime(u64);

impl Limited {
    fn count_success(&self) {
        // Most hosts have none, and then nothing is written.
        if self.unpaid.load(Ordering::Relaxed) > 0 {
            let order = Ordering::Relaxed;
            let _ = (self.unpaid).fetch_update(order, order, |unpaid| unpaid.checked_sub(1));
        }
    }

    /// Nanoseconds since the budget was made.
    fn time(&self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.born);
        u64::try_from(age.as_nanos()).unwrap_or(u64::MAX / 2)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("balance", &self.balance())
            .finish_non_exhaustive()
    }
}

/// What was paid for a retry that has not been sent yet.
#[must_use = "it is given back when dropped"]
pub(crate) struct Withdrawal(Option<(Arc<Limited>, Paid)>);

/// Where it was paid from.
enum Paid {
    Own(SlotEnd),
    /// From what all workers have.
    ByAll,
}

impl Withdrawal {
    /// For a retry that costs nothing.
    pub(crate) fn free() -> Self {
        Self(None)
    }

    /// The retry is sent.
    pub(crate) fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        match self.0.take() {
            Some((limited, Paid::Own(slot))) => limited.window.give_back(slot, limited.terms.cost),
            Some((limited, Paid::ByAll)) => {
                if let Some(common) = &limited.common {
                    common.put_back();
                }
            }
            None => {}
        }
    }
}

/// Builds a [`Budget`]. A value that makes no sense is refused in [`build`](BudgetBuilder::build).
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
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct BudgetBuilder {
    ttl: Duration,
    min_retries_per_sec: f64,
    retry_ratio: f64,
    deposit_on: Deposit,
}

impl Default for BudgetBuilder {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            min_retries_per_sec: 2.0,
            retry_ratio: 0.2,
            deposit_on: Deposit::Success,
        }
    }
}

impl BudgetBuilder {
    /// How long deposits and withdrawals count; up to an hour. Default: 10 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The reserve: so many retries a second are allowed in any case, on the average over `ttl`.
    /// It is 0, or at least one retry within `ttl`. Default: 2.
    pub fn min_retries_per_sec(mut self, retries: f64) -> Self {
        self.min_retries_per_sec = retries;
        self
    }

    /// Sets how many retries each deposit pays for, from 0 to 1.
    ///
    /// 0.1 allows 1 retry for 10 deposits (10 %), in addition to `min_retries_per_sec`.
    ///
    /// Default: 0.2.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses values below 0 or above 1, and NaN.
    #[doc(alias = "percent_can_retry")]
    pub fn retry_ratio(mut self, ratio: f64) -> Self {
        self.retry_ratio = ratio;
        self
    }

    /// What feeds it. Default: [`Deposit::Success`].
    pub fn deposit_on(mut self, deposit_on: Deposit) -> Self {
        self.deposit_on = deposit_on;
        self
    }

    /// The budget, or what is wrong with its settings.
    pub fn build(self) -> Result<Budget, ConfigError> {
        self.check()?;
        Ok(self.terms().budget(clock::now()))
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.ttl.is_zero() || self.ttl > MAX_TTL {
            return Err(ConfigError::new(
                "ttl",
                format_args!("{:?}", self.ttl),
                "should be longer than zero and at most an hour",
            ));
        }
        in_range(
            "min_retries_per_sec",
            self.min_retries_per_sec,
            MAX_RESERVE,
            "",
        )?;
        let advice = ": 0.1 allows one retry for ten calls (10 %)";
        in_range("retry_ratio", self.retry_ratio, MAX_RATIO, advice)?;
        let reserve = self.min_retries_per_sec * self.ttl.as_secs_f64();
        if reserve > 0.0 && reserve < 1.0 {
            return Err(ConfigError::new(
                "min_retries_per_sec",
                format_args!("{:?}", self.min_retries_per_sec),
                format_args!(
                    "should be 0, or make a retry within the ttl ({:?})",
                    self.ttl
                ),
            ));
        }
        if self.retry_ratio > 0.0 && ratio::fraction(self.retry_ratio).0 == 0 {
            return Err(ConfigError::new(
                "retry_ratio",
                format_args!("{:?}", self.retry_ratio),
                "should be 0, or at least 0.000001",
            ));
        }
        Ok(())
    }

    /// The same, as a store knows it.
    fn shared(&self) -> RetryTerms {
        RetryTerms {
            ttl: self.ttl,
            ratio: self.retry_ratio,
            min_per_sec: self.min_retries_per_sec,
        }
    }

    fn terms(&self) -> Terms {
        let (deposit, cost) = ratio::fraction(self.retry_ratio);
        let scale = SCALE / deposit.max(cost);
        let cost = cost * scale;
        // All bounded by the checks above: no more than 4e15.
        let reserve = self.min_retries_per_sec * self.ttl.as_secs_f64() * cost as f64;
        // Entries live for 15 slots at least.
        let width = self.ttl.as_nanos().div_ceil(SLOTS as u128 - 1) as u64;
        Terms {
            slot_width: width,
            deposit_on: self.deposit_on,
            deposit: (deposit * scale) as i64,
            cost: cost as i64,
            reserve: reserve.round() as i64,
        }
    }
}

impl Terms {
    fn budget(self, now: Instant) -> Budget {
        Budget(Some(Arc::new(self.limited(now))))
    }

    fn common_budget(self, common: Common, now: Instant) -> Budget {
        Budget(Some(Arc::new(Limited {
            common: Some(Box::new(common)),
            ..self.limited(now)
        })))
    }

    /// Makes a new one of a budget that nobody else has.
    fn renew(self, budget: &mut Budget, now: Instant) {
        match budget.0.as_mut().and_then(Arc::get_mut) {
            Some(limited) => *limited = self.limited(now),
            None => *budget = self.budget(now),
        }
    }

    fn limited(self, now: Instant) -> Limited {
        Limited {
            window: Window::new(self.slot_width),
            withdrawn: AtomicBool::new(false),
            unpaid: AtomicU32::new(0),
            born: now,
            terms: self,
            common: None,
        }
    }
}

fn in_range(setting: &'static str, value: f64, most: f64, advice: &str) -> Result<(), ConfigError> {
    // Written so that NaN fails too.
    if value >= 0.0 && value <= most {
        return Ok(());
    }
    Err(ConfigError::new(
        setting,
        format_args!("{value:?}"),
        format_args!("should be from 0 to {most}{advice}"),
    ))
}

/// Where a middleware takes the budget of a call from.
#[derive(Debug)]
pub(crate) enum Budgets {
    /// One for each host, and for each port of it that is not the scheme's own.
    PerHost(Box<PerHost>),
    Shared(Budget),
}

#[derive(Debug)]
pub(crate) struct PerHost {
    table: BoundedTable<Budget>,
    each: BudgetBuilder,
    /// Reckoned once, and not before the settings are checked.
    terms: OnceLock<Terms>,
    fleet: Option<FleetLimits>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self::per_host(BudgetBuilder::default())
    }
}

impl Budgets {
    /// Shares those of each host with other workers, if there is one for each host.
    pub(crate) fn share(&mut self, fleet: FleetLimits) -> Result<(), ConfigError> {
        match self {
            Self::PerHost(hosts) => {
                hosts.fleet = Some(fleet);
                Ok(())
            }
            Self::Shared(_) => Err(ConfigError::new(
                "fleet",
                "with `budget` or `no_budget`",
                "should be given with budgets for each host, for it shares those",
            )),
        }
    }

    /// Each with these settings, which [`check`](Self::check) has to find right.
    pub(crate) fn per_host(each: BudgetBuilder) -> Self {
        let table = BoundedTable::new(Budget::is_in_debt);
        let terms = OnceLock::new();
        let fleet = None;
        Self::PerHost(Box::new(PerHost {
            table,
            each,
            terms,
            fleet,
        }))
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::PerHost(hosts) => hosts.each.check(),
            Self::Shared(_) => Ok(()),
        }
    }

    pub(crate) fn of(&self, url: &Url) -> Budget {
        match self {
            Self::Shared(budget) => budget.clone(),
            Self::PerHost(hosts) => {
                let terms = || hosts.terms.get_or_init(|| hosts.each.terms());
                if let Some(fleet) = &hosts.fleet {
                    let new = |now| {
                        let common = Common::new(fleet, Host(url).as_str(), hosts.each.shared());
                        terms().common_budget(common, now)
                    };
                    let renew = |old: &mut Budget, now| *old = new(now);
                    return hosts.table.get(Host(url).parts(), new, renew);
                }
                let new = |now| terms().budget(now);
                let renew = |old: &mut Budget, now| terms().renew(old, now);
                hosts.table.get(Host(url).parts(), new, renew)
            }
        }
    }
}

// 4096 hosts take no more than 4 MiB.
const _: () = assert!(size_of::<Limited>() < 512);

#[cfg(test)]
#[path = "budget/tests.rs"]
mod tests;
