//! Builds a bundle from settings, returns its settings, and replaces them while it runs.

use super::{Steady, SteadyBuilder};
use crate::coalesce::CoalesceMiddleware;
use crate::config::ConfigError;
use crate::lock::lock;
use crate::retry::RetryMiddleware;
use crate::settings::{KeyChoice, SteadySettings};
use crate::throttle::ThrottleMiddleware;

impl Steady {
    /// Builds the bundle from settings that are data.
    ///
    /// To add functions, sinks, observers or a fleet, use [`SteadyBuilder::settings`].
    ///
    /// ```
    /// use reqwest_steady::{Steady, SteadySettings};
    ///
    /// let mut settings = SteadySettings::default();
    /// settings.retry.max_retries = 3;
    /// let steady = Steady::from_settings(&settings)?;
    ///
    /// settings.retry.backoff = settings.retry.backoff.multiplier(0.5);
    /// assert_eq!(
    ///     Steady::from_settings(&settings).unwrap_err().to_string(),
    ///     "retry.backoff.multiplier (0.5) should be a finite number of at least 1.0",
    /// );
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a setting is invalid. The error names its place and its value.
    pub fn from_settings(settings: &SteadySettings) -> Result<Self, ConfigError> {
        Ok(Self {
            retry: (RetryMiddleware::builder().all_settings(settings).build()).map_err(in_retry)?,
            throttle: (ThrottleMiddleware::builder()
                .settings(settings.throttle.clone())
                .build())
            .map_err(in_throttle)?,
            coalesce: (settings.coalesce.clone())
                .map(|it| CoalesceMiddleware::builder().settings(it).build())
                .transpose()
                .map_err(in_coalesce)?,
            ..Self::default()
        })
    }

    /// Returns the settings that are data.
    pub fn settings(&self) -> SteadySettings {
        let _replacing = lock(&self.replacing);
        SteadySettings {
            preset: self.retry.preset(),
            retry: self.retry.settings(),
            throttle: self.throttle.settings(),
            coalesce: self.coalesce.as_ref().map(CoalesceMiddleware::settings),
        }
    }

    /// Replaces all settings that are data, for all clients with clones of this bundle.
    ///
    /// New calls use the new settings. A call that has started keeps its retry settings. Budgets, learned paces, queues
    /// and circuit breakers stay, and so do functions, sinks, observers and a fleet. The page
    /// [settings](crate::guide::settings) of the guide has the details.
    ///
    /// ```
    /// use reqwest_middleware::ClientBuilder;
    /// use reqwest_steady::{ClientBuilderExt, Steady};
    ///
    /// let steady = Steady::default();
    /// let client = ClientBuilder::new(reqwest::Client::new()).with_steady(steady.clone()).build();
    ///
    /// let mut settings = steady.settings();
    /// settings.throttle.max_in_flight = 8;
    /// steady.replace(&settings)?; // the client has it, too
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a setting is invalid, or cannot change while the client runs. Those are a seed, what a fleet shares, and
    /// whether there is coalescing. After an error, all settings are as before.
    pub fn replace(&self, settings: &SteadySettings) -> Result<(), ConfigError> {
        let _replacing = lock(&self.replacing);
        let retry = self
            .retry
            .prepare(settings.retry.clone(), settings.preset)
            .map_err(in_retry)?;
        let throttle = (self.throttle.prepare(settings.throttle.clone())).map_err(in_throttle)?;
        let coalesce = match (&self.coalesce, &settings.coalesce) {
            (Some(running), Some(new)) => Some(running.prepare(new.clone()).map_err(in_coalesce)?),
            (None, None) => None,
            (Some(_), None) => return Err(fixed_coalescing("missing")),
            (None, Some(_)) => return Err(fixed_coalescing("set")),
        };
        // All are valid, so all take effect or none. The inner ones come first: a call takes the settings of coalescing,
        // retry and throttle in this order, so it finds new ones inside new ones.
        throttle();
        retry();
        if let Some(coalesce) = coalesce {
            coalesce();
        }
        Ok(())
    }
}

impl SteadySettings {
    /// Checks all settings, as [`Steady::from_settings`] does.
    ///
    /// Use it after a plain `Deserialize`. It accepts [`KeyChoice::FromFn`], which needs a function in a builder.
    ///
    /// # Errors
    ///
    /// For the first invalid setting. The error names its place and its value.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut settings = self.clone();
        // These settings may be for a builder that has the function.
        if settings.throttle.key_by == KeyChoice::FromFn {
            settings.throttle.key_by = KeyChoice::Host;
        }
        Steady::from_settings(&settings).map(drop)
    }
}

impl SteadyBuilder {
    /// Sets everything that is data. Functions, sinks, observers and a fleet stay.
    ///
    /// It replaces what the builders for [`retry`](Self::retry), [`throttle`](Self::throttle) and
    /// [`coalesce`](Self::coalesce) have set, apart from functions and sinks. The other settings on this builder win over
    /// it. The order of the calls does not matter. Without a section for coalescing, that stays as the builder has it.
    ///
    /// ```
    /// use reqwest_steady::{Steady, SteadySettings};
    ///
    /// let settings = SteadySettings::default(); // from a file, perhaps
    /// let steady = Steady::builder()
    ///     .settings(&settings)
    ///     .observe_fn(|event| println!("{}", event.call.host))
    ///     .build()?;
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn settings(mut self, settings: &SteadySettings) -> Self {
        self.settings = Some(settings.clone());
        self
    }
}

/// Names a setting by its place in [`SteadySettings`].
pub(super) fn in_retry(error: ConfigError) -> ConfigError {
    match error.setting() {
        "ttl" | "min_retries_per_sec" | "retry_ratio" => error.within("retry.budget_per_host"),
        // It is set for the bundle, and in no file.
        "fleet" => error,
        _ => error.within("retry"),
    }
}

pub(super) fn in_throttle(error: ConfigError) -> ConfigError {
    error.within("throttle")
}

pub(super) fn in_coalesce(error: ConfigError) -> ConfigError {
    error.within("coalesce")
}

fn fixed_coalescing(value: &'static str) -> ConfigError {
    let rule = "cannot be turned on or off while the client runs: build a new client";
    ConfigError::new("coalesce", value, rule)
}
