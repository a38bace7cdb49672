//! What came of the calls in a simulated world.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::arrivals::Arrivals;
use super::host_name;
use super::limit::Steps;

/// One call of a [`Simulation`](super::Simulation) as its caller saw it. Times count from the start of
/// the service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Call {
    /// Which client made it, counted from 0.
    pub client: usize,
    /// The host that it went to.
    pub host: Arc<str>,
    /// When it was made.
    pub begun: Duration,
    /// When its caller had all of the answer, or an error.
    pub ended: Duration,
    /// The status of the answer, or what the error said.
    pub result: Result<u16, String>,
}

impl Call {
    /// If it was answered with a 2xx.
    pub fn succeeded(&self) -> bool {
        matches!(self.result, Ok(200..=299))
    }
}

/// What came of all calls of a [`Simulation`](super::Simulation), and what the service saw of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The way to the service and back.
    pub latency: Duration,
    /// All calls, in the order in which they ended.
    pub calls: Vec<Call>,
    /// How many clients took part.
    pub clients: usize,
    /// All requests that arrived.
    pub arrivals: Arrivals,
}

impl Outcome {
    /// Only what has to do with this host.
    ///
    /// # Panics
    ///
    /// If it is not the name of a host.
    #[must_use]
    pub fn of_host(mut self, host: &str) -> Self {
        let host = host_name(host);
        self.calls.retain(|call| *call.host == host);
        self.arrivals.0.retain(|arrival| arrival.host == host);
        self
    }

    fn successes(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.succeeded())
    }

    /// How many calls succeeded.
    pub fn succeeded(&self) -> usize {
        self.successes().count()
    }

    /// Of all calls, the share that succeeded. Not a number without calls.
    pub fn share(&self) -> f64 {
        self.succeeded() as f64 / self.calls.len() as f64
    }

    /// How many requests arrived at the service.
    pub fn requests(&self) -> usize {
        self.arrivals.count()
    }

    /// 1 if nothing was repeated. Not a number without calls.
    pub fn requests_per_call(&self) -> f64 {
        self.requests() as f64 / self.calls.len() as f64
    }

    /// Infinite if nothing succeeded. Not a number without requests.
    pub fn requests_per_success(&self) -> f64 {
        self.requests() as f64 / self.succeeded() as f64
    }

    /// When the last call that succeeded did so.
    pub fn last_success(&self) -> Duration {
        let ends = self.successes().map(|call| call.ended);
        ends.max().unwrap_or_default()
    }

    /// How long calls took beyond the way to the service and back: of those that began from a time
    /// on and succeeded, the share `rank` took no longer than this. 0.5 is the median.
    pub fn added_latency(&self, rank: f64, from: Duration) -> Duration {
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
    pub fn successes_by_second(&self) -> Vec<usize> {
        let mut counts = Vec::new();
        for call in self.successes() {
            let second = call.ended.as_secs() as usize;
            counts.resize(counts.len().max(second + 1), 0);
            counts[second] += 1;
        }
        counts
    }

    /// How many calls succeeded by ending within this time.
    pub fn successes_during(&self, time: Range<Duration>) -> usize {
        let inside = self.successes().filter(|call| time.contains(&call.ended));
        inside.count()
    }

    /// What the service took within this time, of what it could take. Infinite or not a number if that
    /// is nothing.
    pub fn use_of(&self, capacity: &Steps, time: Range<Duration>) -> f64 {
        let taken = self.arrivals.during(time.clone()).successes();
        taken as f64 / capacity.sum(time)
    }

    /// How many calls of each client succeeded.
    pub fn successes_by_client(&self) -> Vec<usize> {
        let mut counts = vec![0; self.clients];
        for call in self.successes() {
            counts[call.client] += 1;
        }
        counts
    }

    /// Between clients, by how many of their calls succeeded: Jain's index, which is 1 if all have the
    /// same, and 1/n if one of n has it all.
    pub fn fairness(&self) -> f64 {
        fairness(&self.successes_by_client())
    }

    /// How often calls failed in each way: by the status of the answer, or by what the error said.
    pub fn failures(&self) -> BTreeMap<String, usize> {
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

/// Jain's index.
fn fairness(shares: &[usize]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::fairness;

    #[test]
    fn fairness_is_one_among_equals_and_1_in_n_for_a_winner() {
        assert_eq!(fairness(&[7, 7, 7]), 1.0);
        assert_eq!(fairness(&[0, 9, 0]), 1.0 / 3.0);
        assert_eq!(fairness(&[1, 2, 3]), 36.0 / 42.0);
    }
}
