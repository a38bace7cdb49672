//! Builds a throttle.

use std::time::Duration;

use super::config::ThrottleParts;
use super::key::KeyBy;
use crate::config::ConfigError;
use crate::fleet::FleetLimits;
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::observe::{Event, Observer, Observers};
use crate::settings::{KeyChoice, RateLimit, ThrottleSettings};
use crate::throttle::ThrottleMiddleware;

/// Builds a [`ThrottleMiddleware`].
///
/// [`build`](ThrottleMiddlewareBuilder::build) checks all values and returns an error for an invalid one. The page
/// [admit](crate::guide::admit) of the guide explains the settings.
///
/// | setting | default |
/// |---|---|
/// | [`adaptive`](Self::adaptive) | on: learns the rate limit of each server |
/// | [`max_in_flight`](Self::max_in_flight) | 1024 per key |
/// | [`max_queue`](Self::max_queue) | 10,000 calls per key |
/// | [`max_queue_wait`](Self::max_queue_wait) | 30 s per call |
/// | [`rate`](Self::rate) | none |
/// | [`key_by`](Self::key_by) | [`KeyBy::Host`] |
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::{KeyBy, ThrottleMiddleware};
///
/// let throttle = ThrottleMiddleware::builder()
///     .max_in_flight(64)
///     .max_queue(1000)
///     .max_queue_wait(Duration::from_secs(10))
///     .rate(100.0, 20)
///     .key_by(KeyBy::HostAndPath(1))
///     .build()?;
///
/// let refused = ThrottleMiddleware::builder().rate(f64::NAN, 1).build();
/// assert_eq!(
///     refused.unwrap_err().to_string(),
///     "rate (nan/s) should be between 1 per day and 1,000,000 per second",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ThrottleMiddlewareBuilder {
    pub(super) data: ThrottleSettings,
    pub(super) parts: ThrottleParts,
}

impl ThrottleMiddlewareBuilder {
    /// Sets everything that is data, and keeps functions, observers and a fleet.
    ///
    /// Methods that are called later change single settings. See [`settings`](crate::settings).
    pub fn settings(mut self, settings: ThrottleSettings) -> Self {
        self.data = settings;
        self
    }

    /// Limits the requests in flight per key.
    ///
    /// A request is in flight until its response headers arrive.
    ///
    /// Default: 1024.
    pub fn max_in_flight(mut self, requests: u32) -> Self {
        self.data.max_in_flight = requests;
        self
    }

    /// Limits the calls in the queue of one key.
    ///
    /// More are refused at once. Retries wait ahead of first attempts, and have a limit of the same size
    /// for themselves.
    ///
    /// Default: 10,000.
    pub fn max_queue(mut self, calls: usize) -> Self {
        self.data.max_queue = calls;
        self
    }

    /// Limits the time of one call in the queue, over all its attempts.
    ///
    /// After that, the call ends with a [`SteadyError`](crate::SteadyError), or with the response or error of its
    /// last attempt. An attempt that would certainly wait longer is refused at once. The time of the
    /// attempts and the backoff between them does not count: limit those with `attempt_timeout` or
    /// `deadline`.
    ///
    /// Default: 30 s.
    pub fn max_queue_wait(mut self, wait: Duration) -> Self {
        self.data.max_queue_wait = wait;
        self
    }

    /// Limits the requests per second and key.
    ///
    /// After idling, `burst` requests can go at once.
    ///
    /// Default: none. The throttle learns which rate the server accepts.
    pub fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.data.rate = Some(RateLimit { per_second, burst });
        self
    }

    /// Shares the limits of each key with all workers of a fleet.
    ///
    /// The [`rate`](Self::rate) is then the rate of all workers together. When a server asks one worker to
    /// pause, all workers pause. They also share the rate that they learn. A throttle that is not
    /// [`adaptive`](Self::adaptive) shares only the fixed rate, and ignores pauses. See [`FleetLimits`].
    ///
    /// ```
    /// use reqwest_steady::fleet::FleetLimits;
    /// use reqwest_steady::ThrottleMiddleware;
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
        self.parts.fleet = Some(fleet);
        self
    }

    /// Sets whether the throttle learns from responses.
    ///
    /// If not, only the fixed limits hold: there is no pause, no learned rate and no congestion window.
    ///
    /// Default: on.
    pub fn adaptive(mut self, adaptive: bool) -> Self {
        self.data.adaptive = adaptive;
        self
    }

    /// Sets which requests share one gate.
    ///
    /// Default: [`KeyBy::Host`].
    pub fn key_by(mut self, key_by: KeyBy) -> Self {
        self.data.key_by = match &key_by {
            KeyBy::Host => KeyChoice::Host,
            KeyBy::HostAndPath(segments) => KeyChoice::HostAndPath(*segments),
            KeyBy::FromFn(_) => KeyChoice::FromFn,
        };
        self.parts.key_fn = Some(key_by).filter(|_| self.data.key_by == KeyChoice::FromFn);
        self
    }

    /// Adds an [`Observer`] of events at the gates.
    ///
    /// There can be several. A [`RetryMiddleware`](crate::RetryMiddleware) can have the same one.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.parts.observers.add(observer);
        self
    }

    /// Adds a function that is called for each event at the gates.
    pub fn observe_fn(mut self, observe: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.parts.observers.add_fn(observe);
        self
    }

    /// Sets the log level of each kind of event.
    ///
    /// Default: the levels of [`LogLevels::default`].
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn log_levels(mut self, levels: LogLevels) -> Self {
        self.data.log_levels = levels;
        self
    }

    /// Adds the observers that several middlewares share.
    pub(crate) fn observers(mut self, observers: &Observers) -> Self {
        self.parts.observers.add_all(observers);
        self
    }

    /// Draws all jitter from a generator with this seed.
    ///
    /// Use it in tests and simulations that must repeat exactly. Never use it in production, because
    /// clients with the same seed send at the same moments.
    pub fn seed(mut self, seed: u64) -> Self {
        self.data.seed = Some(seed);
        self
    }

    /// Builds the middleware.
    ///
    /// # Errors
    ///
    /// Returns an error if `max_in_flight` or the burst is 0, or if the rate is not between one request
    /// per day and a million per second.
    pub fn build(self) -> Result<ThrottleMiddleware, ConfigError> {
        ThrottleMiddleware::new(self.data, self.parts)
    }
}
