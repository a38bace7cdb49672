//! What a simulated service saw.

use std::ops::Range;
use std::time::Duration;

/// One request as a [`SimulatedService`](super::SimulatedService) got it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Arrival {
    /// When, since the service started.
    pub at: Duration,
    /// The status of its answer, or `None` if it gets none.
    pub status: Option<u16>,
    /// The host that was asked.
    pub host: String,
    /// Which client of a [`Simulation`](super::Simulation) it came from, counted from 0.
    pub client: Option<usize>,
    /// From here to the answer, without the way back.
    pub took: Duration,
}

impl Arrival {
    /// If it was answered with a 2xx.
    pub fn succeeded(&self) -> bool {
        matches!(self.status, Some(200..=299))
    }
}

/// All requests that a [`SimulatedService`](super::SimulatedService) got, in the order in which they arrived.
#[derive(Clone, Debug, Default)]
pub struct Arrivals(pub Vec<Arrival>);

impl Arrivals {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// How many of them were answered with a 2xx.
    pub fn successes(&self) -> usize {
        self.0.iter().filter(|arrival| arrival.succeeded()).count()
    }

    /// Those that arrived within this time.
    #[must_use]
    pub fn during(&self, time: Range<Duration>) -> Self {
        let inside = self.0.iter().filter(|arrival| time.contains(&arrival.at));
        Self(inside.cloned().collect())
    }

    /// The most that arrived within any `width`, wherever it begins.
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

    /// How many arrived in each `width`, counted from the start of the service.
    ///
    /// # Panics
    ///
    /// If the width is zero and there are any.
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
