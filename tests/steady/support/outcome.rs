//! What came of the calls in a simulated world.

#![allow(
    dead_code,
    reason = "shared by tests and benches, and neither needs all of it"
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::rules::Steps;
use super::service::Arrivals;

/// One call as its caller saw it. Times count from the start of the service.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) client: usize,
    pub(crate) host: &'static str,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
    /// The status of the answer, or what the error said.
    pub(crate) result: Result<u16, String>,
}

impl Call {
    pub(crate) fn succeeded(&self) -> bool {
        matches!(self.result, Ok(200..=299))
    }
}

/// What came of all calls.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The way to the service and back.
    pub(crate) latency: Duration,
    pub(crate) calls: Vec<Call>,
    /// How many took part.
    pub(crate) clients: usize,
    pub(crate) arrivals: Arrivals,
}

impl Outcome {
    /// Only what has to do with this host.
    pub(crate) fn of_host(mut self, host: &str) -> Self {
        self.calls.retain(|call| call.host == host);
        self.arrivals.0.retain(|arrival| arrival.host == host);
        self
    }

    fn successes(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.succeeded())
    }

    pub(crate) fn succeeded(&self) -> usize {
        self.successes().count()
    }

    /// Of all calls, the share that succeeded.
    pub(crate) fn share(&self) -> f64 {
        self.succeeded() as f64 / self.calls.len() as f64
    }

    pub(crate) fn requests(&self) -> usize {
        self.arrivals.count()
    }

    pub(crate) fn requests_per_call(&self) -> f64 {
        self.requests() as f64 / self.calls.len() as f64
    }

    /// Infinite if nothing succeeded.
    pub(crate) fn requests_per_success(&self) -> f64 {
        self.requests() as f64 / self.succeeded() as f64
    }

    /// When the last call that succeeded did so.
    pub(crate) fn last_success(&self) -> Duration {
        let ends = self.successes().map(|call| call.ended);
        ends.max().unwrap_or_default()
    }

    /// How long calls took beyond the way to the service and back: of those that began from a time
    /// on and succeeded, the share `rank` took no longer than this. 0.5 is the median.
    pub(crate) fn added_latency(&self, rank: f64, from: Duration) -> Duration {
        let calls = self.successes().filter(|call| call.begun >= from);
        let mut added: Vec<_> = calls
            .map(|call| (call.ended - call.begun).saturating_sub(self.latency))
            .collect();
        added.sort_unstable();
        let nearest = (rank * added.len() as f64).ceil() as usize;
        let found = added.get(nearest.saturating_sub(1));
        found.copied().unwrap_or_default()
    }

    /// How many calls succeeded in each second, by when they ended.
    pub(crate) fn successes_by_second(&self) -> Vec<usize> {
        let mut counts = Vec::new();
        for call in self.successes() {
            let second = call.ended.as_secs() as usize;
            counts.resize(counts.len().max(second + 1), 0);
            counts[second] += 1;
        }
        counts
    }

    /// How many calls succeeded by ending within this time.
    pub(crate) fn successes_during(&self, time: Range<Duration>) -> usize {
        let inside = self.successes().filter(|call| time.contains(&call.ended));
        inside.count()
    }

    /// What the service took within this time, of what it could take.
    pub(crate) fn use_of(&self, capacity: &Steps, time: Range<Duration>) -> f64 {
        let taken = self.arrivals.during(time.clone()).successes();
        taken as f64 / capacity.sum(time)
    }

    pub(crate) fn successes_by_client(&self) -> Vec<usize> {
        let mut counts = vec![0; self.clients];
        for call in self.successes() {
            counts[call.client] += 1;
        }
        counts
    }

    /// Between clients, by how many of their calls succeeded.
    pub(crate) fn fairness(&self) -> f64 {
        fairness(&self.successes_by_client())
    }

    /// How often calls failed in each way: by the status of the answer, or by what the error said.
    pub(crate) fn failures(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in self.calls.iter().filter(|call| !call.succeeded()) {
            let way = match &call.result {
                Ok(status) => status.to_string(),
                Err(text) => text.clone(),
            };
            *counts.entry(way).or_default() += 1;
        }
        counts
    }
}

/// Jain's index: 1 if all have the same, and 1/n if one of n has it all.
pub(crate) fn fairness(shares: &[usize]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}
