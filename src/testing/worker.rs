//! A rule for a service that works on requests one after the other.

use std::ops::Range;
use std::time::Duration;

use reqwest::Request;

use super::reply::Reply;
use super::rules::{Chance, Rule, assert_order, assert_rate};

/// Works on one request at a time, behind a gateway with a timeout.
///
/// After the timeout the gateway responds with 504, but the work continues. It also continues if the caller drops the
/// request.
#[derive(Debug)]
pub struct Worker {
    one: Duration,
    stall: Range<Duration>,
    patience: Duration,
    longest_queue: Duration,
    /// The time when all accepted work is done, on the worker's clock.
    done_at: Duration,
}

impl Worker {
    /// Creates a worker that handles `rate` requests per second, and none during the stall.
    ///
    /// The gateway waits 1 s for a response. It refuses a request with 503 if it would queue for more than 10 s.
    ///
    /// # Panics
    ///
    /// Panics if the rate is not more than 0, or if the stall ends before it starts.
    pub fn new(rate: f64, stall: Range<Duration>) -> Self {
        assert_rate(rate);
        assert_order(&stall);
        Self {
            one: Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX),
            stall,
            patience: Duration::from_secs(1),
            longest_queue: Duration::from_secs(10),
            done_at: Duration::ZERO,
        }
    }

    /// Creates a worker that never stalls, behind a gateway without a timeout.
    ///
    /// # Panics
    ///
    /// Panics if the rate is not more than 0.
    pub fn patient(rate: f64) -> Self {
        Self {
            patience: Duration::MAX,
            longest_queue: Duration::MAX,
            ..Self::new(rate, Duration::ZERO..Duration::ZERO)
        }
    }

    /// Converts to the worker's clock, which stops during the stall.
    fn worker_time(&self, at: Duration) -> Duration {
        let stalled = at.min(self.stall.end).saturating_sub(self.stall.start);
        at - stalled
    }

    /// Converts from the worker's clock.
    fn real_time(&self, own: Duration) -> Duration {
        if own <= self.stall.start {
            return own;
        }
        own.saturating_add(self.stall.end - self.stall.start)
    }
}

impl Rule for Worker {
    fn decide(&mut self, _: &Request, at: Duration, _: &mut Chance) -> Option<Reply> {
        let now = self.worker_time(at);
        if self.done_at.saturating_sub(now) > self.longest_queue {
            return Some(Reply::status(503));
        }
        self.done_at = self.done_at.max(now).saturating_add(self.one);
        let wait = self.real_time(self.done_at).saturating_sub(at);
        Some(if wait > self.patience {
            Reply::status(504).after(self.patience)
        } else {
            Reply::status(200).after(wait)
        })
    }
}
