//! What a simulated service does with a request: rules that are asked in turn.

use std::io;
use std::ops::Range;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Request;

use super::reply::{Reply, assert_status};

/// Where a simulated service's rules draw their chances from. The same seed gives the same chances.
#[derive(Debug)]
pub struct Chance(StdRng);

impl Chance {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// True for this share of all times that it is asked, from 0 to 1.
    ///
    /// # Panics
    ///
    /// If the share is not from 0 to 1.
    pub fn happens(&mut self, share: f64) -> bool {
        assert_share(share);
        self.0.random_bool(share)
    }

    /// Any number of the range, all equally likely.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn between(&mut self, range: Range<f64>) -> f64 {
        assert!(range.start < range.end, "no number is in {range:?}");
        self.0.random_range(range)
    }
}

#[track_caller]
pub(super) fn assert_share(share: f64) {
    let valid = (0.0..=1.0).contains(&share);
    assert!(valid, "a share of {share}: it must be from 0 to 1");
}

#[track_caller]
pub(super) fn assert_rate(rate: f64) {
    let valid = rate.is_finite() && rate > 0.0;
    assert!(valid, "a rate of {rate}: it must be more than 0");
}

#[track_caller]
pub(super) fn assert_order(time: &Range<Duration>) {
    assert!(
        time.start <= time.end,
        "from {:?} to {:?}",
        time.start,
        time.end
    );
}

pub(super) type Hints = Vec<(&'static str, String)>;

/// One thing that a [`SimulatedService`](super::SimulatedService) does with requests.
///
/// ```
/// use std::time::Duration;
/// use reqwest::Request;
/// use reqwest_steady::testing::{Chance, Reply, Rule};
///
/// /// Deletes nothing for its first minute.
/// struct ReadOnlyAtFirst;
///
/// impl Rule for ReadOnlyAtFirst {
///     fn decide(&mut self, request: &Request, at: Duration, _: &mut Chance) -> Option<Reply> {
///         let early = at < Duration::from_secs(60);
///         (early && request.method() == "DELETE").then(|| Reply::status(503))
///     }
/// }
/// ```
pub trait Rule: Send + 'static {
    /// `None` leaves it to the next rule, and what passes all of them gets a 200. `at` is the time
    /// since the service started, and never goes back.
    fn decide(&mut self, request: &Request, at: Duration, chance: &mut Chance) -> Option<Reply>;

    /// What it adds to the headers of every answer, right after the decision.
    fn hints(&self, _at: Duration) -> Vec<(&'static str, String)> {
        Hints::new()
    }
}

/// Takes nothing for a time.
#[derive(Debug)]
pub struct Down {
    during: Range<Duration>,
    /// Nobody listens if there is none.
    status: Option<u16>,
}

impl Down {
    /// Answers everything with this status.
    ///
    /// # Panics
    ///
    /// If there is no such status, or if the time ends before it begins.
    pub fn answering(status: u16, during: Range<Duration>) -> Self {
        assert_status(status);
        assert_order(&during);
        let status = Some(status);
        Self { during, status }
    }

    /// Connections are refused.
    ///
    /// # Panics
    ///
    /// If the time ends before it begins.
    pub fn unreachable(during: Range<Duration>) -> Self {
        assert_order(&during);
        let status = None;
        Self { during, status }
    }
}

impl Rule for Down {
    fn decide(&mut self, _: &Request, at: Duration, _: &mut Chance) -> Option<Reply> {
        let refused = || Reply::fail(io::ErrorKind::ConnectionRefused);
        let down = self.during.contains(&at);
        down.then(|| self.status.map_or_else(refused, Reply::status))
    }
}

/// Answers 503 to a share of all requests, by chance.
#[derive(Debug)]
pub struct Flaky(f64);

impl Flaky {
    /// To this share, from 0 to 1.
    ///
    /// # Panics
    ///
    /// If it is not from 0 to 1.
    pub fn new(share: f64) -> Self {
        assert_share(share);
        Self(share)
    }
}

impl Rule for Flaky {
    fn decide(&mut self, _: &Request, _: Duration, chance: &mut Chance) -> Option<Reply> {
        chance.happens(self.0).then(|| Reply::status(503))
    }
}
