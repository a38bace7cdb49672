//! How long to wait before a retry when the server does not say.
//!
//! Clients that failed together come back together unless chance spreads them. So the wait grows
//! from try to try up to a cap, and is then drawn at random below it.

use std::time::Duration;

use rand::{Rng, RngExt};

use crate::config::ConfigError;
use crate::entropy::up_to;

/// How a wait is spread below or around its ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Jitter {
    /// Anywhere from zero to the ceiling: the least load on a server that is coming back.
    #[default]
    Full,
    /// From half the ceiling to the ceiling.
    Equal,
    /// From the base to three times the wait before, up to the cap. The multiplier plays no part.
    Decorrelated,
    /// The ceiling and up to this much more, but never over the cap.
    Additive(Duration),
    /// Exactly the ceiling. Clients that failed together come back together: for tests.
    None,
}

/// Capped exponential backoff: `ceiling(n) = min(cap, base · multiplierⁿ)`, then [`Jitter`].
///
/// The values are checked when the middleware is built.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::{Backoff, Jitter};
///
/// let backoff = Backoff::exponential(Duration::from_millis(100))
///     .multiplier(3.0)
///     .cap(Duration::from_secs(1))
///     .jitter(Jitter::Equal);
/// assert_eq!(backoff.ceiling(0), Duration::from_millis(100));
/// assert_eq!(backoff.ceiling(1), Duration::from_millis(300));
/// assert_eq!(backoff.ceiling(9), Duration::from_secs(1));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    base: Duration,
    multiplier: f64,
    cap: Duration,
    jitter: Jitter,
}

impl Default for Backoff {
    /// 200 ms · 2ⁿ up to 10 s, with full jitter.
    fn default() -> Self {
        Self::exponential(Duration::from_millis(200))
    }
}

impl Backoff {
    /// Doubles from `base` with every retry, up to a cap of 10 s (or `base`, if that is longer),
    /// with full jitter.
    #[must_use]
    pub fn exponential(base: Duration) -> Self {
        Self {
            base,
            multiplier: 2.0,
            cap: base.max(Duration::from_secs(10)),
            jitter: Jitter::Full,
        }
    }

    /// By how much the ceiling grows with every retry; 1 keeps it constant.
    #[must_use]
    pub fn multiplier(mut self, multiplier: f64) -> Self {
        self.multiplier = multiplier;
        self
    }

    /// The longest wait that backoff by itself asks for.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// How the wait is spread.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The longest wait before retry `n`, counted from 0, without jitter.
    pub fn ceiling(&self, n: u32) -> Duration {
        if n == 0 {
            // Most retries are the first.
            return self.base.min(self.cap);
        }
        let exponent = i32::try_from(n).unwrap_or(i32::MAX);
        // Grows to infinity at most, which is over any cap.
        let nanos = self.base.as_nanos() as f64 * self.multiplier.powi(exponent);
        if nanos < self.cap.as_nanos() as f64 {
            nanos_to_duration(nanos).min(self.cap)
        } else {
            self.cap
        }
    }

    /// The wait before retry `n`, counted from 0. `previous` is what was drawn the last time.
    pub(crate) fn draw(&self, n: u32, previous: Option<Duration>, rng: &mut dyn Rng) -> Duration {
        let ceiling = self.ceiling(n);
        match self.jitter {
            Jitter::Full => up_to(ceiling, rng),
            Jitter::Equal => {
                let half = ceiling / 2;
                half + up_to(ceiling - half, rng)
            }
            Jitter::Decorrelated => {
                let longest = previous.unwrap_or(self.base).saturating_mul(3);
                rng.random_range(self.base..=longest.max(self.base))
                    .min(self.cap)
            }
            Jitter::Additive(range) => ceiling.saturating_add(up_to(range, rng)).min(self.cap),
            Jitter::None => ceiling,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.base.is_zero() {
            return Err(ConfigError::new(
                "backoff base",
                format_args!("{:?}", self.base),
                "should be longer than zero",
            ));
        }
        // Written so that NaN fails too.
        if !(self.multiplier >= 1.0 && self.multiplier.is_finite()) {
            return Err(ConfigError::new(
                "backoff multiplier",
                format_args!("{:?}", self.multiplier),
                "should be a finite number of at least 1.0",
            ));
        }
        if self.cap < self.base {
            return Err(ConfigError::new(
                "backoff cap",
                format_args!("{:?}", self.cap),
                format_args!("should not be shorter than the base ({:?})", self.base),
            ));
        }
        Ok(())
    }
}

fn nanos_to_duration(nanos: f64) -> Duration {
    // Casts from floating point saturate.
    let nanos = nanos as u128;
    let secs = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(secs, (nanos % 1_000_000_000) as u32)
}

#[cfg(test)]
#[path = "backoff_tests.rs"]
mod tests;
