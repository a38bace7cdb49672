//! The results of a simulation.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::arrivals::Arrivals;
use super::host_name;
use super::limit::Steps;

/// Describes one call of a [`Simulation`](super::Simulation). Times count from the start of the service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Call {
    /// The client that made the call, counted from 0.
    pub client: usize,
    /// The host of the call.
    pub host: Arc<str>,
    /// The time when the call started.
    pub begun: Duration,
    /// The time when the caller had the whole response, or an error.
    pub ended: Duration,
    /// The status of the response, or the text of the error.
    pub result: Result<u16, String>,
}

impl Call {
    /// Returns whether the response has a 2xx status.
    pub fn succeeded(&self) -> bool {
        matches!(self.result, Ok(200..=299))
    }
}

/// Holds all calls of a [`Simulation`](super::Simulation), and all requests that reached the service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The time for the way to the service and back.
    pub latency: Duration,
    /// All calls, in the order in which they ended.
    pub calls: Vec<Call>,
    /// The number of clients.
    pub clients: usize,
    /// All requests that arrived.
    pub arrivals: Arrivals,
}

impl Outcome {
    /// Keeps only the calls and requests of this host.
    ///
    /// # Panics
    ///
    /// Panics if this is not the name of a host.
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

    /// Returns the number of calls that succeeded.
    pub fn succeeded(&self) -> usize {
        self.successes().count()
    }

    /// Returns the share of calls that succeeded, or NaN without calls.
    pub fn share(&self) -> f64 {
        self.succeeded() as f64 / self.calls.len() as f64
    }

    /// Returns the number of requests that reached the service.
    pub fn requests(&self) -> usize {
        self.arrivals.count()
    }

    /// Returns the requests per call: 1 without retries, NaN without calls.
    pub fn requests_per_call(&self) -> f64 {
        self.requests() as f64 / self.calls.len() as f64
    }

    /// Returns the requests per successful call: infinite without successes, NaN without requests.
    pub fn requests_per_success(&self) -> f64 {
        self.requests() as f64 / self.succeeded() as f64
    }

    /// Returns the time when the last successful call ended.
    pub fn last_success(&self) -> Duration {
        let ends = self.successes().map(|call| call.ended);
        ends.max().unwrap_or_default()
    }

    /// Returns a quantile of the time that successful calls took beyond the network latency.
    ///
    /// Only calls that started at `from` or later count. A `rank` of 0.5 is the median.
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

    /// Counts the successful calls that ended in each second.
    pub fn successes_by_second(&self) -> Vec<usize> {
        let mut counts = Vec::new();
        for call in self.successes() {
            let second = call.ended.as_secs() as usize;
            counts.resize(counts.len().max(second + 1), 0);
            counts[second] += 1;
        }
        counts
    }

    /// Counts the successful calls that ended within this time.
    pub fn successes_during(&self, time: Range<Duration>) -> usize {
        let inside = self.successes().filter(|call| time.contains(&call.ended));
        inside.count()
    }

    /// Returns the share of the service's capacity that was used within this time.
    ///
    /// It is infinite or NaN if the capacity is zero.
    pub fn use_of(&self, capacity: &Steps, time: Range<Duration>) -> f64 {
        let taken = self.arrivals.during(time.clone()).successes();
        taken as f64 / capacity.sum(time)
    }

    /// Counts the successful calls of each client.
    pub fn successes_by_client(&self) -> Vec<usize> {
        let mut counts = vec![0; self.clients];
        for call in self.successes() {
            counts[call.client] += 1;
        }
        counts
    }

    /// Returns the fairness between clients, as Jain's index of their successful calls.
    ///
    /// It is 1 if all clients have the same number, and 1/n if one of n clients has all of them.
    pub fn fairness(&self) -> f64 {
        fairness(&self.successes_by_client())
    }

    /// Counts the failed calls by the status of the response or the text of the error.
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
