//! Builds the bundle: settings for all its middlewares, and those of each.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Steady;
use super::replace::{in_coalesce, in_retry, in_throttle};
use crate::coalesce::CoalesceMiddlewareBuilder;
use crate::config::{ConfigError, ShownSettings};
use crate::fleet::FleetLimits;
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::observe::{Event, Observer, Observers};
use crate::presets::Preset;
use crate::retry::RetryMiddlewareBuilder;
use crate::settings::SteadySettings;
use crate::throttle::ThrottleMiddlewareBuilder;

/// Builds a [`Steady`].
///
/// Settings on this builder win over the same settings in the builders that you pass to
/// [`retry`](Self::retry) and [`throttle`](Self::throttle), whatever the order of the calls. They also win over
/// [`settings`](Self::settings).
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::{CoalesceMiddleware, RetryMiddleware, Steady, ThrottleMiddleware};
///
/// let steady = Steady::builder()
///     .attempt_timeout(Duration::from_secs(10))
///     .deadline(Duration::from_secs(60))
///     .retry(RetryMiddleware::builder().max_retries(3))
///     .throttle(ThrottleMiddleware::builder().max_in_flight(64))
///     .coalesce(CoalesceMiddleware::builder()) // off unless you ask for it
///     .observe_fn(|event| println!("{}: {:?}", event.call.host, event.kind))
///     .build()?;
/// assert_eq!(steady.retry().max_retries(), 3);
/// assert_eq!(steady.retry().deadline(), Some(Duration::from_secs(60)));
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct SteadyBuilder {
    retry: RetryMiddlewareBuilder,
    throttle: ThrottleMiddlewareBuilder,
    coalesce: Option<CoalesceMiddlewareBuilder>,
    pub(super) settings: Option<SteadySettings>,
    max_retries: Option<u32>,
    deadline: Option<Duration>,
    attempt_timeout: Option<Duration>,
    preset: Option<Preset>,
    observers: Observers,
    fleet: Option<FleetLimits>,
    #[cfg(feature = "tracing")]
    log_levels: Option<LogLevels>,
}

impl SteadyBuilder {
    /// Limits the time of each attempt until its response headers arrive.
    ///
    /// See [`RetryMiddlewareBuilder::attempt_timeout`].
    ///
    /// Default: none. Set one: without it, a silent server blocks the call forever.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Limits the total time until response headers arrive, including retries and queues.
    ///
    /// See [`RetryMiddlewareBuilder::deadline`].
    ///
    /// Default: none.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Limits the retries of one call.
    ///
    /// Default: 5.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Adds what is known of the errors of a service.
    ///
    /// See [`Preset`] and [`RetryMiddlewareBuilder::preset`].
    ///
    /// Default: none.
    ///
    /// ```
    /// use reqwest_steady::{Preset, Steady};
    ///
    /// let steady = Steady::builder().preset(Preset::S3).build()?;
    /// assert_eq!(steady.settings().preset, Some(Preset::S3));
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = Some(preset);
        self
    }

    /// Sets everything else about retries: backoff, budget, idempotency keys, dead letters.
    pub fn retry(mut self, retry: RetryMiddlewareBuilder) -> Self {
        self.retry = retry;
        self
    }

    /// Sets everything about the throttle: rate limits, queue, keys.
    pub fn throttle(mut self, throttle: ThrottleMiddlewareBuilder) -> Self {
        self.throttle = throttle;
        self
    }

    /// Turns on coalescing: identical requests that run at the same time are sent once.
    ///
    /// Read [where to put it](crate::CoalesceMiddleware#where-to-put-it) first if other middleware adds credentials.
    ///
    /// Default: off.
    pub fn coalesce(mut self, coalesce: CoalesceMiddlewareBuilder) -> Self {
        self.coalesce = Some(coalesce);
        self
    }

    /// Adds an [`Observer`] to the retry and the throttle.
    ///
    /// There can be several.
    ///
    /// Default: none.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.add(observer);
        self
    }

    /// Adds a function that gets every event of the retry and the throttle.
    pub fn observe_fn(mut self, observe: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.observers.add_fn(observe);
        self
    }

    /// Shares the rate limits, pauses and retry budgets with all workers of a fleet.
    ///
    /// Default: none.
    pub fn fleet(mut self, fleet: FleetLimits) -> Self {
        self.fleet = Some(fleet);
        self
    }

    /// Sets the log level of each kind of event.
    ///
    /// Default: the levels of [`LogLevels::default`].
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn log_levels(mut self, levels: LogLevels) -> Self {
        self.log_levels = Some(levels);
        self
    }

    /// Builds the middlewares.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is invalid. The error names the value and the place in [`SteadySettings`], such as
    /// `retry.deadline`.
    pub fn build(self) -> Result<Steady, ConfigError> {
        let (mut retry, mut throttle) = (self.retry, self.throttle);
        let mut coalesce = self.coalesce;
        if let Some(settings) = self.settings {
            retry = retry.all_settings(&settings);
            throttle = throttle.settings(settings.throttle);
            let set = |new| coalesce.clone().unwrap_or_default().settings(new);
            coalesce = settings.coalesce.map(set).or(coalesce);
        }
        retry = retry.observers(&self.observers);
        throttle = throttle.observers(&self.observers);
        if let Some(retries) = self.max_retries {
            retry = retry.max_retries(retries);
        }
        if let Some(deadline) = self.deadline {
            retry = retry.deadline(deadline);
        }
        if let Some(timeout) = self.attempt_timeout {
            retry = retry.attempt_timeout(timeout);
        }
        if let Some(preset) = self.preset {
            retry = retry.preset(preset);
        }
        if let Some(fleet) = self.fleet {
            retry = retry.fleet(fleet.clone());
            throttle = throttle.fleet(fleet);
        }
        #[cfg(feature = "tracing")]
        if let Some(levels) = self.log_levels {
            retry = retry.log_levels(levels);
            throttle = throttle.log_levels(levels);
        }
        Ok(Steady {
            retry: retry.build().map_err(in_retry)?,
            throttle: throttle.build().map_err(in_throttle)?,
            coalesce: (coalesce.map(|it| it.build()).transpose()).map_err(in_coalesce)?,
            replacing: Arc::default(),
        })
    }
}

impl fmt::Debug for SteadyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = ShownSettings::new(f, "SteadyBuilder");
        shown
            .optional("settings", self.settings.as_ref())
            .optional("max_retries", self.max_retries)
            .optional("deadline", self.deadline)
            .optional("attempt_timeout", self.attempt_timeout)
            .optional("preset", self.preset)
            .setting("retry", &self.retry)
            .setting("throttle", &self.throttle)
            .optional("coalesce", self.coalesce.as_ref())
            .unless(0, "observers", self.observers.count())
            .optional("fleet", self.fleet.as_ref());
        #[cfg(feature = "tracing")]
        shown.optional("log_levels", self.log_levels);
        shown.finish()
    }
}
