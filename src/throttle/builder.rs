//! Settings of the throttle: defaults, and every check.

use std::sync::Arc;
use std::time::Duration;

use super::key::KeyBy;
use super::rate::Rate;
use crate::config::ConfigError;
use crate::entropy::Entropy;
use crate::fleet::{FleetLimits, SharedRate};
use crate::observe::{Event, Observer, Observers};
use crate::throttle::ThrottleMiddleware;

/// What a [`ThrottleMiddleware`] goes by. Checked, and never changed again.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) max_in_flight: u32,
    pub(super) max_queue: usize,
    pub(super) max_wait: Duration,
    /// That of this client alone.
    pub(super) rate: Option<Rate>,
    pub(super) common: Option<Common>,
    pub(super) adaptive: bool,
    pub(super) key_by: KeyBy,
    pub(super) entropy: Entropy,
    pub(super) observers: Observers,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_in_flight: 1024,
            max_queue: 10_000,
            max_wait: Duration::from_secs(30),
            rate: None,
            common: None,
            adaptive: true,
            key_by: KeyBy::Host,
            entropy: Entropy::System,
            observers: Observers::default(),
        }
    }
}

impl Settings {
    /// Whether somebody wants to know.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        !self.observers.is_empty()
    }
}

/// What is shared with other workers.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) fleet: FleetLimits,
    pub(super) rate: Option<SharedRate>,
}

/// Builds a [`ThrottleMiddleware`]. A value that makes no sense is refused in
/// [`build`](ThrottleMiddlewareBuilder::build).
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::{KeyBy, ThrottleMiddleware};
///
/// let throttle = ThrottleMiddleware::builder()
///     .max_in_flight(64)
///     .max_queue(1000)
///     .max_wait(Duration::from_secs(10))
///     .rate(100.0, 20)
///     .key_by(KeyBy::HostAndPath(1))
///     .build()?;
///
/// let refused = ThrottleMiddleware::builder().rate(f64::NAN, 1).build();
/// assert_eq!(
///     refused.unwrap_err().to_string(),
///     "rate (NaN a second) should be between one a day and a million a second",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ThrottleMiddlewareBuilder {
    settings: Settings,
    rate: Option<(f64, u32)>,
    fleet: Option<FleetLimits>,
}

impl ThrottleMiddlewareBuilder {
    /// At most this many requests of one key wait for the head of their answer. Default: 1024.
    pub fn max_in_flight(mut self, requests: u32) -> Self {
        self.settings.max_in_flight = requests;
        self
    }

    /// At most this many calls of one key wait for their turn; more are refused at once. Repeated
    /// attempts, which go first, are counted apart. Default: 10,000.
    pub fn max_queue(mut self, calls: usize) -> Self {
        self.settings.max_queue = calls;
        self
    }

    /// Limits the time that a call spends in the queue, all its attempts together.
    ///
    /// When the time is used up, the call ends with a [`Refusal`](crate::Refusal), or with the response or error of its
    /// last attempt. An attempt that would certainly wait longer is refused at once. The attempts themselves and the
    /// backoff between them do not count: set `attempt_timeout` or `deadline` to limit those.
    ///
    /// Default: 30 s.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.settings.max_wait = wait;
        self
    }

    /// At most so many requests of one key a second, and `burst` at once after a silence. Default:
    /// none; the adaptive rate finds out what the server takes.
    pub fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = Some((per_second, burst));
        self
    }

    /// Shares the limits of each key with all workers of a fleet: the [`rate`](Self::rate) is that of all of
    /// them together then, a pause that one was asked for holds for all, and so does what they learn of the
    /// rate that the server accepts. One that is not [`adaptive`](Self::adaptive) shares the rate only: it neither
    /// tells of pauses nor is held by them. See [`FleetLimits`].
    ///
    /// ```
    /// use reqwest_steady::{FleetLimits, ThrottleMiddleware};
    ///
    /// // With the feature `redis`: FleetLimits::redis("redis://redis.internal")?
    /// let fleet = FleetLimits::in_memory();
    /// let throttle = ThrottleMiddleware::builder()
    ///     .rate(500.0, 50) // of all workers
    ///     .fleet(fleet)
    ///     .build()?;
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn fleet(mut self, fleet: FleetLimits) -> Self {
        self.fleet = Some(fleet);
        self
    }

    /// Whether to learn from the server's answers. Without it there are only the fixed limits: no
    /// pause, no pace, and a window that is always open. Default: on.
    pub fn adaptive(mut self, adaptive: bool) -> Self {
        self.settings.adaptive = adaptive;
        self
    }

    /// Which requests share one throttle. Default: those to one host.
    pub fn key_by(mut self, key_by: KeyBy) -> Self {
        self.settings.key_by = key_by;
        self
    }

    /// Tells this [`Observer`] of what happens at the gates. There can be several, and the same one may
    /// be told by a [`RetryMiddleware`](crate::RetryMiddleware) as well.
    pub fn observer<O: Observer + ?Sized>(mut self, observer: Arc<O>) -> Self {
        self.settings.observers.add(observer);
        self
    }

    /// Tells a function of yours of what happens at the gates: an [`Observer`] in one piece.
    pub fn observe_fn(mut self, observe: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.settings.observers.add_fn(observe);
        self
    }

    /// Draws all jitter from a generator with this seed, for tests and simulations that must come
    /// out the same every time. Never in production: clients with one seed come back in step.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.entropy = Entropy::seeded(seed);
        self
    }

    /// Checks every value.
    pub fn build(mut self) -> Result<ThrottleMiddleware, ConfigError> {
        if self.settings.max_in_flight == 0 {
            return Err(ConfigError::new("max_in_flight", 0, "should be at least 1"));
        }
        if let Some((per_second, burst)) = self.rate {
            // Written so that NaN fails.
            if !(1.0 / 86_400.0..=1e6).contains(&per_second) {
                return Err(ConfigError::new(
                    "rate",
                    format_args!("{per_second} a second"),
                    "should be between one a day and a million a second",
                ));
            }
            if burst == 0 {
                return Err(ConfigError::new(
                    "burst of the rate",
                    0,
                    "should be at least 1",
                ));
            }
        }
        let rate = self.rate;
        match self.fleet {
            None => {
                self.settings.rate = rate.map(|(per_second, burst)| Rate {
                    each: Duration::from_secs_f64(1.0 / per_second),
                    burst,
                });
            }
            Some(fleet) => {
                let rate = rate.map(|(per_second, burst)| SharedRate { per_second, burst });
                self.settings.common = Some(Common { fleet, rate });
            }
        }
        Ok(ThrottleMiddleware::new(Arc::new(self.settings)))
    }
}
