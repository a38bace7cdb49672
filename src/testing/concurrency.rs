//! A rule that limits how many requests are in work at once.

use std::time::Duration;

use reqwest::Request;

use super::limit::Steps;
use super::reply::{Reply, assert_status};
use super::rules::{Chance, Rule};

/// Works on a limited number of requests at once, and refuses the rest with 429.
///
/// Its capacity per second is the number of requests at once, divided by the time for each. The work continues if the
/// caller drops the request.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::testing::{Concurrency, SimulatedService};
///
/// // 10 at once, for 50 ms each: 200 per second.
/// let limit = Concurrency::new(10.0, Duration::from_millis(50));
/// let service = SimulatedService::with_latency(Duration::from_millis(2)).rule(limit);
/// # let _ = service;
/// ```
#[derive(Debug)]
#[must_use]
pub struct Concurrency {
    most: Steps,
    work: Duration,
    status: u16,
    /// When each request in work is done, the earliest first.
    done_at: Vec<Duration>,
}

impl Concurrency {
    /// Works on at most this many requests at once, each for the same time.
    pub fn new(most: impl Into<Steps>, work: Duration) -> Self {
        Self {
            most: most.into(),
            work,
            status: 429,
            done_at: Vec::new(),
        }
    }

    /// Sets the status of refusals.
    ///
    /// Default: 429.
    ///
    /// # Panics
    ///
    /// Panics if the status is invalid.
    pub fn status(mut self, status: u16) -> Self {
        assert_status(status);
        self.status = status;
        self
    }

    /// Returns how many requests it accepts at this time, and the time until a request is done.
    ///
    /// `at` must not decrease from call to call. The time is zero if no request is in work.
    pub fn remaining(&mut self, at: Duration) -> (usize, Duration) {
        let done = self.done_at.partition_point(|done| *done <= at);
        self.done_at.drain(..done);
        let most = self.most.at(at).round() as usize;
        let next = self.done_at.first().map(|done| *done - at);
        let left = most.saturating_sub(self.done_at.len());
        (left, next.unwrap_or_default())
    }
}

impl Rule for Concurrency {
    fn decide(&mut self, _: &Request, at: Duration, _: &mut Chance) -> Option<Reply> {
        if self.remaining(at).0 == 0 {
            return Some(Reply::status(self.status));
        }
        // The time never decreases, so the new end is the last.
        self.done_at.push(at.saturating_add(self.work));
        Some(Reply::status(200).after(self.work))
    }
}
