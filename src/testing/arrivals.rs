//! The requests that reached a simulated service.

use std::ops::Range;
use std::time::Duration;

/// Describes one request that reached a [`SimulatedService`](super::SimulatedService).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Arrival {
    /// The time of arrival, since the service started.
    pub at: Duration,
    /// The status of the response, or `None` if there is no response.
    pub status: Option<u16>,
    /// The host of the request.
    pub host: String,
    /// The client of a [`Simulation`](super::Simulation) that sent it, counted from 0.
    pub client: Option<usize>,
    /// The time from the arrival to the response, without the way back.
    pub took: Duration,
}

impl Arrival {
    /// Returns whether the response has a 2xx status.
    pub fn succeeded(&self) -> bool {
        matches!(self.status, Some(200..=299))
    }
}

/// Holds all requests that reached a [`SimulatedService`](super::SimulatedService), in order of arrival.
#[derive(Clone, Debug, Default)]
pub struct Arrivals(pub Vec<Arrival>);

impl Arrivals {
    /// Returns the number of requests.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of requests with a 2xx response.
    pub fn successes(&self) -> usize {
        self.0.iter().filter(|arrival| arrival.succeeded()).count()
    }

    /// Returns the requests that arrived within this time.
    #[must_use]
    pub fn during(&self, time: Range<Duration>) -> Self {
        let inside = self.0.iter().filter(|arrival| time.contains(&arrival.at));
        Self(inside.cloned().collect())
    }

    /// Returns the most requests that arrived within any period of this width.
    pub fn peak(&self, width: Duration) -> usize {
        let mut first = 0;
        let mut peak = 0;
        for (last, arrival) in self.0.iter().enumerate() {
            while first < last && arrival.at.saturating_sub(self.0[first].at) >= width {
                first += 1;
            }
            peak = peak.max(last - first + 1);
        }
        peak
    }

    /// Counts the requests in consecutive periods of this width, from the start of the service.
    ///
    /// # Panics
    ///
    /// Panics if the width is zero and there are requests.
    pub fn by(&self, width: Duration) -> Vec<usize> {
        let mut counts = Vec::new();
        for arrival in &self.0 {
            let index = (arrival.at.as_nanos() / width.as_nanos()) as usize;
            counts.resize(counts.len().max(index + 1), 0);
            counts[index] += 1;
        }
        counts
    }
}
