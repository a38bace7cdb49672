//! The rules by which a simulated service handles requests.

use std::io;
use std::ops::Range;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Request;

use super::reply::{Reply, assert_status};

/// Generates random numbers for the rules of a simulated service. The same seed gives the same numbers.
#[derive(Debug)]
pub struct Chance(StdRng);

impl Chance {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// Returns true with this probability, from 0 to 1.
    ///
    /// # Panics
    ///
    /// Panics if the share is not from 0 to 1.
    pub fn happens(&mut self, share: f64) -> bool {
        assert_share(share);
        self.0.random_bool(share)
    }

    /// Returns a number in the range, uniformly distributed.
    ///
    /// # Panics
    ///
    /// Panics if the range is empty.
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

/// Decides how a [`SimulatedService`](super::SimulatedService) handles a request.
///
/// ```
/// use std::time::Duration;
/// use reqwest::Request;
/// use reqwest_steady::testing::{Chance, Reply, Rule};
///
/// /// Refuses DELETE for the first minute.
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
    /// Returns the reply, or `None` to ask the next rule. If all rules return `None`, the service responds with 200.
    ///
    /// `at` is the time since the service started. It never decreases.
    fn decide(&mut self, request: &Request, at: Duration, chance: &mut Chance) -> Option<Reply>;

    /// Returns headers for every response. It is called right after the decision.
    fn hints(&self, _at: Duration) -> Vec<(&'static str, String)> {
        Hints::new()
    }
}

/// Refuses all requests for a period.
#[derive(Debug)]
pub struct Down {
    during: Range<Duration>,
    /// `None` refuses connections.
    status: Option<u16>,
}

impl Down {
    /// Responds to all requests with this status.
    ///
    /// # Panics
    ///
    /// Panics if the status is invalid, or if the period ends before it starts.
    pub fn with_status(status: u16, during: Range<Duration>) -> Self {
        assert_status(status);
        assert_order(&during);
        let status = Some(status);
        Self { during, status }
    }

    /// Refuses all connections.
    ///
    /// # Panics
    ///
    /// Panics if the period ends before it starts.
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

/// Responds with 503 to a random share of all requests.
#[derive(Debug)]
pub struct Flaky(f64);

impl Flaky {
    /// Creates the rule with this share, from 0 to 1.
    ///
    /// # Panics
    ///
    /// Panics if the share is not from 0 to 1.
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
