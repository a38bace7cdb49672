//! What a retry knows of each host at one moment.

use super::RetryMiddleware;
use crate::admit::HostRecord;
use crate::clock;
use crate::hashed::hash_of;
use crate::observe::HostState;

impl RetryMiddleware {
    /// Returns the state of each host that has a record, without gates.
    pub(crate) fn host_states(&self) -> Vec<HostState> {
        let records = self.state.hosts.all();
        records.iter().map(|record| state_of(record)).collect()
    }

    /// Returns the state of a host, without gates. `None` if it has no record.
    pub(crate) fn host_state(&self, host: &str) -> Option<HostState> {
        let record = self.state.hosts.peek(hash_of(host))?;
        Some(state_of(&record))
    }

    /// Returns the state of a host that has no record.
    pub(crate) fn new_host_state(&self, host: &str) -> HostState {
        HostState {
            host: host.to_owned(),
            budget_balance: shown(self.config().budgets.new_balance(clock::now())),
            failures_in_a_row: 0,
            in_line: 0,
            gates: Vec::new(),
        }
    }
}

fn state_of(record: &HostRecord) -> HostState {
    HostState {
        host: record.host.to_string(),
        budget_balance: shown(record.budget.balance()),
        failures_in_a_row: record.streak.length(),
        in_line: record.line.len(),
        gates: Vec::new(),
    }
}

/// The balance of an unlimited budget is infinite, which JSON cannot express.
fn shown(balance: f64) -> Option<f64> {
    Some(balance).filter(|balance| balance.is_finite())
}
