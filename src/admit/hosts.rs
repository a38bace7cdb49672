//! What a client remembers of each host: its budget, its failures in a row, and the calls that wait in line.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::budget::{Budget, BudgetBuilder, FleetBudget};
use super::line::RetryLine;
use super::streak::FailureStreak;
use crate::config::ConfigError;
use crate::fleet::FleetLimits;
use crate::host::BoundedTable;

/// Which budgets a retry middleware has.
#[derive(Clone, Debug, Default)]
pub(crate) struct BudgetConfig {
    /// Replaces the budgets of all hosts.
    pub(crate) single: Option<Budget>,
    /// The settings for each host. `None` stands for the defaults.
    pub(crate) per_host: Option<BudgetBuilder>,
    /// Shares the budgets of all hosts with other workers.
    pub(crate) fleet: Option<FleetLimits>,
}

/// What a client remembers of one host.
#[derive(Debug)]
pub(crate) struct HostRecord {
    pub(crate) host: String,
    pub(crate) budget: Budget,
    pub(crate) streak: Arc<FailureStreak>,
    pub(crate) line: Arc<RetryLine>,
    /// The origin of the streak's times.
    created: Instant,
}

/// The records of all hosts.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// One per host, and per port that is not the scheme's default. It forgets hosts whose record is as good as new
    /// before others.
    records: BoundedTable<Arc<HostRecord>>,
}

impl HostRecord {
    fn new(host: &str, budget: Budget, now: Instant) -> Self {
        let per_sec = budget.min_retries_per_sec().unwrap_or_default();
        Self {
            host: host.into(),
            budget,
            streak: Arc::default(),
            line: Arc::new(RetryLine::new(per_sec, now)),
            created: now,
        }
    }

    /// Reuses the memory of this record for another host.
    fn renew(&mut self, host: &str, budget: Budget, now: Instant) {
        let per_sec = budget.min_retries_per_sec().unwrap_or_default();
        host.clone_into(&mut self.host);
        self.budget = budget;
        put(&mut self.streak, FailureStreak::default());
        put(&mut self.line, RetryLine::new(per_sec, now));
        self.created = now;
    }

    /// Returns the same record with another budget. Calls that began before keep the old one.
    fn with_budget(&self, each: &BudgetBuilder, now: Instant) -> Self {
        let budget = each.start_after(&self.budget, now);
        let per_sec = budget.min_retries_per_sec().unwrap_or_default();
        Self {
            host: self.host.clone(),
            budget,
            streak: Arc::clone(&self.streak),
            // Calls wait in the old line. A new one would overtake them.
            line: match self.line.len() {
                0 => Arc::new(RetryLine::new(per_sec, now)),
                _ => Arc::clone(&self.line),
            },
            created: self.created,
        }
    }

    /// Counts an attempt that failed for the backoff of all calls.
    pub(crate) fn count_streak(&self, sent: Instant, now: Instant) {
        self.streak.on_failure(self.age(sent), self.age(now));
    }

    /// Counts a call that succeeded, and returns the balance of the budget.
    pub(crate) fn on_success(&self, now: Instant) -> f64 {
        let balance = self.budget.on_success(now);
        self.streak.on_success();
        self.line.on_success(now);
        balance
    }

    /// Counts a call that succeeded inside another one with the same budget. `is_same_response`: the other one ends
    /// with the same response and the same line, so it is that one which releases a call.
    pub(crate) fn on_nested_success(&self, now: Instant, is_same_response: bool) {
        self.streak.on_success();
        if !is_same_response {
            self.line.on_success(now);
        }
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.created)
    }

    fn must_keep(&self, now: Instant) -> bool {
        self.line.len() > 0 || self.streak.length() > 0 || self.budget.is_in_debt(now)
    }
}

/// Puts a value into an `Arc`, in the same memory if nothing else refers to it.
fn put<T>(place: &mut Arc<T>, value: T) {
    match Arc::get_mut(place) {
        Some(old) => *old = value,
        None => *place = Arc::new(value),
    }
}

impl BudgetConfig {
    /// Returns the balance of a host without a record. The settings must be valid.
    pub(crate) fn new_balance(&self, now: Instant) -> f64 {
        let new = || self.per_host.clone().unwrap_or_default().start(now, None);
        let budget = self.single.clone().unwrap_or_else(new);
        budget.balance_at(now)
    }

    /// Creates the budget of a host. The settings must be valid.
    pub(crate) fn budget_of(&self, host: &str, now: Instant) -> Budget {
        self.single.clone().unwrap_or_else(|| {
            let each = self.per_host.clone().unwrap_or_default();
            let shared = |fleet| FleetBudget::new(fleet, host, each.terms, now);
            each.start(now, self.fleet.as_ref().map(shared))
        })
    }

    /// Refuses invalid settings, and those of hosts beside a single budget.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let ambiguous = "is ambiguous: remove one of them, because a call has one budget";
        let unshared = "should be given with budgets per host, because it shares those";
        for (setting, is_set, rule) in [
            ("budget_per_host", self.per_host.is_some(), ambiguous),
            ("fleet", self.fleet.is_some(), unshared),
        ] {
            if is_set && self.single.is_some() {
                let value = "with `budget`";
                return Err(ConfigError::new(setting, value, rule));
            }
        }
        (self.per_host.iter()).try_for_each(|each| each.terms.check())
    }
}

impl Default for Hosts {
    fn default() -> Self {
        Self {
            records: BoundedTable::new(|record, now| record.must_keep(now)),
        }
    }
}

impl Hosts {
    /// Gives each known host a budget with these settings.
    pub(crate) fn replace_budgets(&self, each: &BudgetBuilder, now: Instant) {
        let replace =
            |record: &mut Arc<HostRecord>| *record = Arc::new(record.with_budget(each, now));
        self.records.update_all(replace);
    }

    /// Returns the record of a host. `hash` is the hash of its name. Only a host that is new gets a budget.
    pub(crate) fn of(
        &self,
        host: &str,
        hash: u64,
        budget: impl Fn(Instant) -> Budget,
    ) -> Arc<HostRecord> {
        let new = |now| Arc::new(HostRecord::new(host, budget(now), now));
        let renew = |old: &mut Arc<HostRecord>, now| match Arc::get_mut(old) {
            Some(record) => record.renew(host, budget(now), now),
            // A call still uses it.
            None => *old = new(now),
        };
        self.records.get(hash, new, renew)
    }

    /// Returns the record of a host, if there is one. Adds none. `hash` is the hash of its name.
    pub(crate) fn peek(&self, hash: u64) -> Option<Arc<HostRecord>> {
        self.records.peek(hash)
    }

    /// Returns all records, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<HostRecord>> {
        self.records.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    /// Enough hosts to fill the table, as its own tests do.
    const HOSTS: u64 = 10_000;

    fn record(hosts: &Hosts, number: u64, now: Instant) -> Arc<HostRecord> {
        let budget = |now| BudgetConfig::default().budget_of("", now);
        let record = hosts.of(&format!("host-{number}"), number, budget);
        assert_eq!(record.host, format!("host-{number}"));
        assert_eq!(
            record.budget.balance_at(now),
            20.0,
            "host-{number} is not new"
        );
        assert_eq!(record.streak.length(), 0, "host-{number} is not new");
        record
    }

    fn fail(record: &HostRecord, now: Instant) {
        record.count_streak(now, now);
        record.budget.on_failure();
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_in_the_place_of_an_evicted_one_starts_anew() {
        let (hosts, now) = (Hosts::default(), clock::now());
        for number in 0..HOSTS {
            fail(&record(&hosts, number, now), now);
        }
        // Its place was reused, too.
        record(&hosts, 0, now);
    }

    #[tokio::test(start_paused = true)]
    async fn an_evicted_host_stays_as_it_is_for_calls_that_use_it() {
        let (hosts, now) = (Hosts::default(), clock::now());
        let held: Vec<_> = (0..HOSTS)
            .map(|number| record(&hosts, number, now))
            .inspect(|record| fail(record, now))
            .collect();
        for (number, record) in held.iter().enumerate() {
            assert_eq!(record.host, format!("host-{number}"));
            assert_eq!(record.streak.length(), 1);
            assert_eq!(record.budget.balance_at(now), 19.5);
        }
    }
}
