//! The state of a client: what its retry and its throttle know of each host.

use std::collections::BTreeMap;

use super::Steady;
use crate::observe::{HostState, SteadyState};

/// # State
///
/// Reading the state changes nothing and delays no call. It costs some microseconds per host.
impl Steady {
    /// Shows what the client knows of all hosts now: circuit breaker, learned limits, queue and retry budget.
    ///
    /// Use it to find out why a client is slow. Keep a clone of the `Steady` that you give to the client: clones share
    /// their state. `Debug` prints the state, and with the feature `serde` it can be JSON. The guide
    /// [explains how to read it](crate::guide::observe#the-state-of-the-circuit-breaker).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let url = server.uri();
    /// use reqwest_middleware::ClientBuilder;
    /// use reqwest_steady::observe::BreakerState;
    /// use reqwest_steady::{ClientBuilderExt, Steady};
    ///
    /// let steady = Steady::default();
    /// let client = ClientBuilder::new(reqwest::Client::new()).with_steady(steady.clone()).build();
    /// client.get(url).send().await?;
    ///
    /// for host in steady.state().hosts {
    ///     println!("{}: {:?} retries left", host.host, host.budget_balance);
    ///     for gate in host.gates {
    ///         println!("{}, {} in flight, {} queued", gate.breaker, gate.in_flight, gate.queued);
    ///         # assert_eq!(gate.breaker, BreakerState::Passing);
    ///         if let BreakerState::Paused { remaining, asked_by, .. } = gate.breaker {
    ///             println!("paused for {remaining:?}, asked by {asked_by}");
    ///         }
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn state(&self) -> SteadyState {
        let mut hosts: BTreeMap<String, HostState> = (self.retry.host_states().into_iter())
            .map(|state| (state.host.clone(), state))
            .collect();
        for (host, gate) in self.throttle.gates_by_host() {
            // A call that cannot be retried has a gate, but no record of the retry.
            let new = |host: &String| self.retry.new_host_state(host);
            let state = hosts.entry(host).or_insert_with_key(new);
            state.gates.push(gate);
        }
        SteadyState {
            hosts: hosts.into_values().map(completed).collect(),
            private_gates: self.throttle.private_gates(),
        }
    }

    /// Shows what the client knows of one host now. `None` if it knows nothing.
    ///
    /// The host is as in [`CallInfo::host`](crate::observe::CallInfo::host): in lower case, and with the port if it is
    /// not the default port of the scheme.
    ///
    /// ```
    /// use reqwest_steady::Steady;
    ///
    /// let steady = Steady::default();
    /// assert!(steady.host("api.example.com").is_none()); // no call has been made
    /// ```
    pub fn host(&self, host: &str) -> Option<HostState> {
        let gates = self.throttle.gates_of(host);
        let known = self.retry.host_state(host);
        // A call that cannot be retried has a gate, but no record of the retry.
        let new = || (!gates.is_empty()).then(|| self.retry.new_host_state(host));
        let state = known.or_else(new)?;
        Some(completed(HostState { gates, ..state }))
    }
}

/// Sorts the gates, and adds the failures that they have counted. Behind a throttle, the retry counts none.
fn completed(mut state: HostState) -> HostState {
    state.gates.sort_by(|a, b| a.key.cmp(&b.key));
    let of_gates = state.gates.iter().filter_map(|gate| gate.failures_in_a_row);
    state.failures_in_a_row = of_gates.fold(state.failures_in_a_row, u32::max);
    state
}
