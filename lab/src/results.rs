//! The part of an outcome that tables and charts show.

use std::ops::Range;
use std::time::Duration;

use reqwest_steady::testing::{Outcome, Stack};

use crate::lines::Lines;
use crate::scenarios::Scenario;
use lab::workloads::TICK;

/// The name of a client with both middlewares. The names of all clients with one of them begin with it.
pub(crate) const OURS: &str = "reqwest-steady";
pub(crate) const PEER: &str = "reqwest-retry";
/// The name of a client with the settings of the person who runs the lab.
pub(crate) const YOURS: &str = "your settings";

/// What happened to one service with every client.
pub(crate) struct Results {
    /// The name on the command line, and the id on the page.
    pub(crate) name: String,
    pub(crate) topic: String,
    pub(crate) story: String,
    /// What the runs show, with their figures.
    pub(crate) conclusion: String,
    /// "800 callers".
    pub(crate) callers: String,
    pub(crate) seed: u64,
    /// When the service is in trouble, and what a legend calls it.
    pub(crate) troubles: Vec<(Range<Duration>, &'static str)>,
    /// How many requests per second the service accepts when it is well.
    pub(crate) capacity: Option<f64>,
    pub(crate) runs: Vec<Run>,
    /// More charts.
    pub(crate) lines: Vec<Lines>,
}

impl Results {
    pub(crate) fn of(scenario: &Scenario, clients: usize, seed: u64, runs: Vec<Run>) -> Self {
        Self {
            name: scenario.name.to_owned(),
            topic: scenario.topic.to_owned(),
            story: scenario.description(clients),
            conclusion: (scenario.conclusion)(&runs, clients),
            callers: format!("{clients} callers"),
            seed,
            troubles: vec![(scenario.trouble.clone(), scenario.trouble_name)],
            capacity: (scenario.capacity)(clients),
            runs,
            lines: (scenario.lines)(clients, seed),
        }
    }

    /// Returns the two runs that titles compare: another client, and ours.
    pub(crate) fn pair(&self) -> Option<[&Run; 2]> {
        let named = |name| self.runs.iter().find(|run| run.stack == name);
        let ours = named(OURS).or(self.runs.last())?;
        if let Some(yours) = named(YOURS) {
            return Some([ours, yours]);
        }
        Some([named(PEER).or(self.runs.first())?, ours])
    }
}

/// The results of one client.
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
    /// The time of the last successful call.
    pub(crate) last_success: Duration,
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
        let note = (scenario.note)(&outcome);
        Self::new(stack, &outcome, scenario.useful, note)
    }

    /// Keeps what matters of an outcome in which a successful call needs this number of requests.
    pub(crate) fn new(stack: &'static str, outcome: &Outcome, useful: usize, note: String) -> Self {
        let failed = outcome.calls.iter().filter(|call| call.result.is_err());
        Self {
            stack,
            calls: outcome.calls.len(),
            succeeded: outcome.succeeded(),
            errors: failed.count(),
            requests: outcome.requests(),
            // Coalesced calls share a request.
            wasted: outcome
                .requests()
                .saturating_sub(useful * outcome.succeeded()),
            peak: outcome.arrivals.peak(TICK),
            last_success: outcome.last_success(),
            ticks: ticks(outcome),
            note,
        }
    }

    /// Returns whether this client is one of this crate, so that its name is bold.
    pub(crate) fn is_ours(&self) -> bool {
        self.stack.starts_with(OURS) || self.stack == YOURS
    }

    /// Returns the requests per call.
    pub(crate) fn per_call(&self) -> f64 {
        self.requests as f64 / self.calls.max(1) as f64
    }

    /// Counts the requests that arrived within this time, in whole periods of 100 ms.
    pub(crate) fn requests_during(&self, time: &Range<Duration>) -> usize {
        let ticks = self.ticks.len() as u128;
        let index = |at: Duration| (at.as_nanos() / TICK.as_nanos()).min(ticks) as usize;
        let inside = &self.ticks[index(time.start)..index(time.end)];
        inside.iter().map(|tick| tick.all()).sum()
    }

    /// Counts the requests that failed.
    pub(crate) fn refused(&self) -> usize {
        self.ticks.iter().map(|tick| tick.refused).sum()
    }

    /// Returns the number of calls that gave up with a response.
    pub(crate) fn given_up(&self) -> usize {
        self.calls - self.succeeded - self.errors
    }

    /// Returns the wasted requests per call.
    pub(crate) fn waste(&self) -> f64 {
        self.wasted as f64 / self.calls.max(1) as f64
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

#[cfg(test)]
impl Run {
    /// Returns a run without calls.
    pub(crate) fn empty(stack: &'static str) -> Self {
        Self {
            stack,
            calls: 0,
            succeeded: 0,
            errors: 0,
            requests: 0,
            wasted: 0,
            peak: 0,
            last_success: Duration::ZERO,
            ticks: Vec::new(),
            note: String::new(),
        }
    }
}

#[cfg(test)]
impl Results {
    /// Returns results without runs.
    pub(crate) fn empty() -> Self {
        Self {
            name: "name".to_owned(),
            topic: "A topic".to_owned(),
            story: "A story.".to_owned(),
            conclusion: "A conclusion".to_owned(),
            callers: "1 caller".to_owned(),
            seed: 1,
            troubles: Vec::new(),
            capacity: None,
            runs: Vec::new(),
            lines: Vec::new(),
        }
    }
}
