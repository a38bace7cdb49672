//! Exponential backoff with jitter, for servers that give no hint.
//!
//! Clients that fail at the same time would retry at the same time. So the ceiling of the wait grows with each retry up
//! to a cap, and the wait is random.

use std::time::Duration;

use rand::{Rng, RngExt};

use crate::config::{ConfigError, Written, ensure, longer_than_zero};
#[cfg(feature = "serde")]
use crate::config::{
    choice::{Choice, choice},
    text,
};
use crate::entropy::up_to;

/// Failures of other calls raise the ceiling up to that of this retry: 3.2 s with the defaults. Longer rows were
/// measured, and the median wait after an outage of 1 s rose to 5 s.
const MAX_SHARED_STEP: u32 = 4;

/// Says how a wait is randomised around its ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Jitter {
    /// Waits from zero to the ceiling. This puts the least load on a recovering server.
    #[default]
    Full,
    /// Waits from half the ceiling to the ceiling.
    Equal,
    /// Waits from the base to three times the previous wait, up to the cap. Ignores the multiplier.
    Decorrelated,
    /// Waits from the ceiling to this much longer, up to the cap.
    Additive(#[cfg_attr(feature = "serde", serde(with = "text::DurationText"))] Duration),
    /// Waits exactly the ceiling. For tests only: clients that fail together retry together.
    None,
}

#[cfg(feature = "serde")]
impl Choice for Jitter {
    const FORMS: &'static str =
        "\"full\", \"equal\", \"decorrelated\", \"none\" or { additive = \"100ms\" }";
    const WITH_VALUE: Option<(&'static str, &'static str)> = Some((
        "additive",
        "`additive` needs a duration: write { additive = \"100ms\" }",
    ));
}

/// Computes waits by exponential backoff with a cap and [`Jitter`].
///
/// The ceiling of retry `n` is `min(cap, base · multiplierⁿ)`, counted from 0. `build` of the middleware checks the
/// values.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "a table of settings")
)]
pub struct Backoff {
    /// The ceiling of the first wait.
    #[cfg_attr(feature = "serde", serde(with = "text::DurationText"))]
    base: Duration,
    /// The factor from one ceiling to the next.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<f64>"))]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    multiplier: f64,
    /// The highest ceiling. Set it if `base` is longer than 10 s.
    #[cfg_attr(feature = "serde", serde(with = "text::DurationText"))]
    cap: Duration,
    /// How a wait is drawn from its ceiling.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "choice"))]
    jitter: Jitter,
    /// The ceiling ignores the failures of other calls to the host.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<bool>"))]
    alone: bool,
}

impl Default for Backoff {
    /// Starts at 200 ms and doubles up to 10 s, with full jitter.
    fn default() -> Self {
        Self::exponential(Duration::from_millis(200))
    }
}

impl Backoff {
    /// Creates a backoff that starts at `base` and doubles with each retry.
    ///
    /// Its cap is 10 s, or `base` if that is longer. It has full jitter.
    #[must_use]
    pub fn exponential(base: Duration) -> Self {
        Self {
            base,
            multiplier: 2.0,
            cap: base.max(Duration::from_secs(10)),
            jitter: Jitter::Full,
            alone: false,
        }
    }

    /// Sets the factor by which the ceiling grows with each retry. 1 keeps it constant.
    ///
    /// Default: 2.
    #[must_use]
    pub fn multiplier(mut self, multiplier: f64) -> Self {
        self.multiplier = multiplier;
        self
    }

    /// Sets the longest wait. A hint of the server may be longer.
    ///
    /// Default: 10 s, or the base if that is longer.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets how the wait is randomised.
    ///
    /// Default: [`Jitter::Full`].
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Ignores the failures of other calls: the wait follows the call's own attempts only.
    ///
    /// By default the ceiling also follows the failures in a row at the host, except for 429. So a call that starts late
    /// in an outage does not spend its first retries on what other calls have just found out. After five failures in a
    /// row, it starts with the ceiling of the fifth retry. The first failure after a success gets the plain formula either
    /// way. A throttle in the chain does this work, so calls behind one always back off alone.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Returns whether the ceiling ignores the failures of other calls.
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Returns the ceiling of the first wait.
    pub fn get_base(&self) -> Duration {
        self.base
    }

    /// Returns the factor by which the ceiling grows with each retry.
    pub fn get_multiplier(&self) -> f64 {
        self.multiplier
    }

    /// Returns the longest wait.
    pub fn get_cap(&self) -> Duration {
        self.cap
    }

    /// Returns how the wait is randomised.
    pub fn get_jitter(&self) -> Jitter {
        self.jitter
    }

    /// Returns the ceiling of the wait before retry `n`, counted from 0.
    pub fn ceiling(&self, n: u32) -> Duration {
        let exponent = i32::try_from(n).unwrap_or(i32::MAX);
        // An overflow gives infinity, which is above any cap.
        let nanos = self.base.as_nanos() as f64 * self.multiplier.powi(exponent);
        if nanos < self.cap.as_nanos() as f64 {
            nanos_to_duration(nanos).min(self.cap)
        } else {
            self.cap
        }
    }

    /// Draws the wait before retry `n`, counted from 0. `previous` is the result of the last draw.
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

    /// Draws the wait before retry `n`, and draws again from `0..=latest` if that would be too long for the deadline.
    ///
    /// A short deadline would otherwise lose most calls to a wait that does not fit. Without jitter the wait is
    /// exact, and too long.
    pub(crate) fn draw_within(
        &self,
        latest: Option<Duration>,
        n: u32,
        previous: Option<Duration>,
        rng: &mut dyn Rng,
    ) -> Duration {
        let wait = self.draw(n, previous, rng);
        match latest {
            Some(latest) if latest < wait && self.jitter != Jitter::None => up_to(latest, rng),
            _ => wait,
        }
    }

    /// Returns the number of the retry whose ceiling applies: the call's own, or a later one if the host has failed
    /// several times in a row.
    pub(crate) fn step(&self, retries: u32, host_failures: u32) -> u32 {
        match self.alone {
            true => retries,
            false => retries.max(host_failures.saturating_sub(1).min(MAX_SHARED_STEP)),
        }
    }

    /// Refuses invalid values.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        longer_than_zero("backoff base", Some(self.base))?;
        // NaN is not at least 1.0.
        let is_valid = self.multiplier >= 1.0 && self.multiplier.is_finite();
        let rule = "should be a finite number of at least 1.0";
        ensure(
            is_valid,
            "backoff multiplier",
            Written(self.multiplier),
            rule,
        )?;
        let base = Written(self.base);
        let rule = format!(
            "should not be shorter than the base ({base}): raise the cap, or lower the base"
        );
        ensure(
            self.cap >= self.base,
            "backoff cap",
            Written(self.cap),
            rule,
        )
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
