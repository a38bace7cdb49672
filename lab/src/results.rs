//! The part of an outcome that tables and charts show.

use reqwest_steady::testing::{Outcome, Stack};

use crate::scenarios::Scenario;
use lab::workloads::TICK;

/// The results of one scenario.
pub(crate) struct Results {
    pub(crate) scenario: &'static Scenario,
    pub(crate) clients: usize,
    pub(crate) seed: u64,
    pub(crate) runs: Vec<Run>,
}

/// The results of one scenario with one stack.
pub(crate) struct Run {
    pub(crate) stack: &'static str,
    pub(crate) calls: usize,
    pub(crate) succeeded: usize,
    /// Calls that ended with an error instead of a response: refused by a throttle, or without a connection.
    pub(crate) errors: usize,
    pub(crate) requests: usize,
    /// Requests that did not lead to a successful call.
    pub(crate) wasted: usize,
    /// The most requests within any 100 ms.
    pub(crate) peak: usize,
    /// The requests in each period of 100 ms.
    pub(crate) ticks: Vec<Tick>,
    pub(crate) note: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tick {
    pub(crate) accepted: usize,
    pub(crate) refused: usize,
}

impl Tick {
    pub(crate) fn all(self) -> usize {
        self.accepted + self.refused
    }
}

impl Run {
    pub(crate) fn of(
        scenario: &Scenario,
        clients: usize,
        seed: u64,
        (stack, build): (&'static str, &Stack),
    ) -> Self {
        let outcome = (scenario.simulation)(clients).seed(seed).run(build);
        let failed = outcome.calls.iter().filter(|call| call.result.is_err());
        Self {
            stack,
            calls: outcome.calls.len(),
            succeeded: outcome.succeeded(),
            errors: failed.count(),
            requests: outcome.requests(),
            wasted: outcome.requests() - scenario.useful * outcome.succeeded(),
            peak: outcome.arrivals.peak(TICK),
            ticks: ticks(&outcome),
            note: (scenario.note)(&outcome),
        }
    }

    /// Returns the number of calls that gave up with a response.
    pub(crate) fn given_up(&self) -> usize {
        self.calls - self.succeeded - self.errors
    }

    /// Returns the wasted requests per call.
    pub(crate) fn waste(&self) -> f64 {
        self.wasted as f64 / self.calls as f64
    }
}

fn ticks(outcome: &Outcome) -> Vec<Tick> {
    let mut ticks = Vec::new();
    for arrival in &outcome.arrivals.0 {
        let index = (arrival.at.as_nanos() / TICK.as_nanos()) as usize;
        if ticks.len() <= index {
            ticks.resize(index + 1, Tick::default());
        }
        match arrival.succeeded() {
            true => ticks[index].accepted += 1,
            false => ticks[index].refused += 1,
        }
    }
    ticks
}
