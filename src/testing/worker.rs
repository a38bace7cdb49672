//! A service whose work takes time.

use std::ops::Range;
use std::time::Duration;

use reqwest::Request;

use super::reply::Reply;
use super::rules::{Chance, Rule, assert_order, assert_rate};

/// One worker that does everything in turn, behind a gateway that loses patience.
///
/// The gateway answers 504 while the work goes on: it is done though nobody waits for it any more.
/// A caller that goes away does not call it off either.
#[derive(Debug)]
pub struct Worker {
    one: Duration,
    stall: Range<Duration>,
    patience: Duration,
    longest_queue: Duration,
    /// All work that was ever taken, and the idle time before it, on the worker's own clock.
    done_at: Duration,
}

impl Worker {
    /// Does `rate` requests a second, and nothing during the stall. The gateway waits a second for an
    /// answer, and refuses with 503 what would queue for more than ten.
    ///
    /// # Panics
    ///
    /// If the rate is not more than 0, or if the stall ends before it begins.
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

    /// One that nobody loses patience with, and that never stalls.
    ///
    /// # Panics
    ///
    /// If the rate is not more than 0.
    pub fn patient(rate: f64) -> Self {
        Self {
            patience: Duration::MAX,
            longest_queue: Duration::MAX,
            ..Self::new(rate, Duration::ZERO..Duration::ZERO)
        }
    }

    /// The worker's own clock, which stands still during the stall.
    fn own_time(&self, at: Duration) -> Duration {
        let stalled = at.min(self.stall.end).saturating_sub(self.stall.start);
        at - stalled
    }

    /// When the worker's own clock gets there.
    fn real_time(&self, own: Duration) -> Duration {
        if own <= self.stall.start {
            return own;
        }
        own.saturating_add(self.stall.end - self.stall.start)
    }
}

impl Rule for Worker {
    fn decide(&mut self, _: &Request, at: Duration, _: &mut Chance) -> Option<Reply> {
        let now = self.own_time(at);
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
