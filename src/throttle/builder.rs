//! Settings of the throttle: defaults, builder and checks.

use std::time::Duration;

use super::key::KeyBy;
use crate::config::{ConfigError, ensure};
use crate::fleet::{FleetLimits, SharedRate};
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::observe::{Event, Observer, Observers};
use crate::throttle::ThrottleMiddleware;

/// The settings of a [`ThrottleMiddleware`], checked by `build`.
#[derive(Clone)]
pub(super) struct ThrottleSettings {
    pub(super) max_in_flight: u32,
    pub(super) max_queue: usize,
    pub(super) max_queue_wait: Duration,
    /// The fixed rate: of all workers if there is a `fleet`, else of this client alone.
    pub(super) rate: Option<SharedRate>,
    pub(super) fleet: Option<FleetLimits>,
    pub(super) adaptive: bool,
    pub(super) key_by: KeyBy,
    /// The seed of all jitter. `None` outside tests.
    pub(super) seed: Option<u64>,
    pub(super) observers: Observers,
    #[cfg(feature = "tracing")]
    pub(super) levels: LogLevels,
}

impl ThrottleSettings {
    /// Whether observers or the log want to know about gates. If not, that work is skipped.
    pub(super) fn is_watched(&self) -> bool {
        #[cfg(feature = "tracing")]
        if self.levels.logs_throttle() {
            return true;
        }
        !self.observers.is_empty()
    }

    pub(super) fn log(&self, event: &Event<'_>) {
        #[cfg(feature = "tracing")]
        self.levels.log(event);
        #[cfg(not(feature = "tracing"))]
        let _ = event;
    }
}

impl Default for ThrottleSettings {
    fn default() -> Self {
        Self {
            max_in_flight: 1024,
            max_queue: 10_000,
            max_queue_wait: Duration::from_secs(30),
            rate: None,
            fleet: None,
            adaptive: true,
            key_by: KeyBy::Host,
            seed: None,
            observers: Observers::default(),
            #[cfg(feature = "tracing")]
            levels: LogLevels::default(),
        }
    }
}

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
///     "rate (NaN per second) should be between 1 per day and 1,000,000 per second",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ThrottleMiddlewareBuilder {
    pub(super) settings: ThrottleSettings,
}

impl ThrottleMiddlewareBuilder {
    /// Limits the requests in flight per key.
    ///
    /// A request is in flight until its response headers arrive.
    ///
    /// Default: 1024.
    pub fn max_in_flight(mut self, requests: u32) -> Self {
        self.settings.max_in_flight = requests;
        self
    }

    /// Limits the calls in the queue of one key.
    ///
    /// More are refused at once. Retries wait ahead of first attempts, and have a limit of the same size
    /// for themselves.
    ///
    /// Default: 10,000.
    pub fn max_queue(mut self, calls: usize) -> Self {
        self.settings.max_queue = calls;
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
        self.settings.max_queue_wait = wait;
        self
    }

    /// Limits the requests per second and key.
    ///
    /// After idling, `burst` requests can go at once.
    ///
    /// Default: none. The throttle learns which rate the server accepts.
    pub fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.settings.rate = Some(SharedRate { per_second, burst });
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
        self.settings.fleet = Some(fleet);
        self
    }

    /// Sets whether the throttle learns from responses.
    ///
    /// If not, only the fixed limits hold: there is no pause, no learned rate and no congestion window.
    ///
    /// Default: on.
    pub fn adaptive(mut self, adaptive: bool) -> Self {
        self.settings.adaptive = adaptive;
        self
    }

    /// Sets which requests share one gate.
    ///
    /// Default: [`KeyBy::Host`].
    pub fn key_by(mut self, key_by: KeyBy) -> Self {
        self.settings.key_by = key_by;
        self
    }

    /// Adds an [`Observer`] of events at the gates.
    ///
    /// There can be several. A [`RetryMiddleware`](crate::RetryMiddleware) can have the same one.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings.observers.add(observer);
        self
    }

    /// Adds a function that is called for each event at the gates.
    pub fn observe_fn(mut self, observe: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.settings.observers.add_fn(observe);
        self
    }

    /// Sets the log level of each kind of event.
    ///
    /// Default: the levels of [`LogLevels::default`].
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn log_levels(mut self, levels: LogLevels) -> Self {
        self.settings.levels = levels;
        self
    }

    /// Adds the observers that several middlewares share.
    pub(crate) fn observers(mut self, observers: &Observers) -> Self {
        self.settings.observers.add_all(observers);
        self
    }

    /// Draws all jitter from a generator with this seed.
    ///
    /// Use it in tests and simulations that must repeat exactly. Never use it in production, because
    /// clients with the same seed send at the same moments.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = Some(seed);
        self
    }

    /// Builds the middleware.
    ///
    /// # Errors
    ///
    /// Returns an error if `max_in_flight` or the burst is 0, or if the rate is not between one request
    /// per day and a million per second.
    pub fn build(self) -> Result<ThrottleMiddleware, ConfigError> {
        let (settings, at_least_1) = (self.settings, "should be at least 1");
        ensure(settings.max_in_flight > 0, "max_in_flight", 0, at_least_1)?;
        if let Some(SharedRate { per_second, burst }) = settings.rate {
            // NaN is in no range.
            let in_range = (1.0 / 86_400.0..=1e6).contains(&per_second);
            let rule = "should be between 1 per day and 1,000,000 per second";
            ensure(
                in_range,
                "rate",
                format_args!("{per_second} per second"),
                rule,
            )?;
            ensure(burst > 0, "burst of the rate", 0, at_least_1)?;
        }
        Ok(ThrottleMiddleware::new(settings))
    }
}
