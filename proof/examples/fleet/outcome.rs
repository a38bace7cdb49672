//! The results of a fleet's calls.

use std::ops::Range;
use std::time::Duration;

use crate::server::Arrival;
use crate::worker::Report;

const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct Outcome {
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) reports: Vec<Report>,
    /// The time during which all workers made calls.
    pub(crate) time: Range<Duration>,
}

impl Outcome {
    pub(crate) fn requests(&self) -> usize {
        self.arrivals.len()
    }

    /// Returns the number of accepted requests.
    pub(crate) fn successes(&self) -> usize {
        self.arrivals.iter().filter(|it| it.accepted).count()
    }

    pub(crate) fn requests_per_success(&self) -> f64 {
        self.requests() as f64 / self.successes() as f64
    }

    /// Returns the used share of a quota, after the first second.
    pub(crate) fn use_of(&self, per_second: f64) -> f64 {
        let time = self.time.start + SECOND..self.time.end;
        let used = self.arrivals.iter();
        let used = used.filter(|it| it.accepted && time.contains(&it.at));
        used.count() as f64 / (per_second * (time.end - time.start).as_secs_f64())
    }

    /// Returns the most requests within any second.
    pub(crate) fn most_in_a_second(&self) -> usize {
        let mut first = 0;
        let mut most = 0;
        for (last, arrival) in self.arrivals.iter().enumerate() {
            while self.arrivals[first].at + SECOND <= arrival.at {
                first += 1;
            }
            most = most.max(last + 1 - first);
        }
        most
    }

    pub(crate) fn sum(&self, of: impl Fn(&Report) -> u64) -> u64 {
        self.reports.iter().map(of).sum()
    }
}
