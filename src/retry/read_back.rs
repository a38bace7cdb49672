//! Reads the settings of a retry middleware back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::config::{RetryConfig, RetryParts};
use super::{RetryMiddleware, RetryMiddlewareBuilder};
use crate::admit::Budget;
use crate::config::ShownSettings;
use crate::dead_letter::Secrets;
use crate::decide::{AutoKey, StatusClass};
use crate::fleet::FleetLimits;
use crate::hashed::hash_of;
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::presets::Preset;
use crate::schedule::Backoff;
use crate::settings::RetrySettings;

/// # Settings
///
/// Each has the name of its method in [`RetryMiddlewareBuilder`].
impl RetryMiddleware {
    /// Returns the settings that are data.
    ///
    /// ```
    /// use reqwest_steady::RetryMiddleware;
    ///
    /// let mut settings = RetryMiddleware::default().settings();
    /// settings.max_retries = 3;
    /// let retry = RetryMiddleware::builder().settings(settings.clone()).build()?;
    /// assert_eq!(retry.settings(), settings);
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn settings(&self) -> RetrySettings {
        self.config().data.clone()
    }

    /// What a call that begins now would use.
    pub(super) fn config(&self) -> Arc<RetryConfig> {
        self.state.config.get()
    }

    /// Returns the most retries of one call.
    pub fn max_retries(&self) -> u32 {
        self.config().limits.max_retries
    }

    /// Returns how waits between attempts grow and spread.
    pub fn backoff(&self) -> Backoff {
        self.config().backoff.clone()
    }

    /// Returns the longest pause that a server may ask for.
    pub fn max_server_delay(&self) -> Duration {
        self.config().limits.max_server_delay
    }

    /// Returns the time in which retries may start.
    pub fn retry_window(&self) -> Duration {
        self.config().limits.window
    }

    /// Returns the total time until response headers arrive.
    pub fn deadline(&self) -> Option<Duration> {
        self.config().limits.deadline
    }

    /// Returns the time of each attempt until its response headers arrive.
    pub fn attempt_timeout(&self) -> Option<Duration> {
        self.config().limits.attempt_timeout
    }

    /// Returns the longest random delay of a first attempt.
    pub fn launch_spread(&self) -> Duration {
        self.config().limits.launch_spread
    }

    /// Returns the retry budget that calls to this host use.
    ///
    /// The host is as in [`CallInfo::host`](crate::observe::CallInfo::host): with the port if it is not the default
    /// port of the scheme.
    ///
    /// ```
    /// use reqwest_steady::RetryMiddleware;
    ///
    /// let retry = RetryMiddleware::default();
    /// let budget = retry.budget_for("api.example.com");
    /// assert_eq!(budget.retry_ratio(), Some(0.2));
    /// println!("{} retries left", budget.balance());
    /// ```
    pub fn budget_for(&self, host: &str) -> Budget {
        let budget = |now| self.config().budgets.budget_of(host, now);
        let record = (self.state.hosts).of(host, hash_of(host), budget);
        record.budget.clone()
    }

    /// Returns the fleet that shares the retry budgets.
    pub fn fleet(&self) -> Option<&FleetLimits> {
        self.state.parts.fleet.as_ref()
    }

    /// Returns the class of a status, as set with [`status`](RetryMiddlewareBuilder::status) or by default.
    ///
    /// A [`classify_fn`](RetryMiddlewareBuilder::classify_fn) may decide otherwise, and so may headers with a
    /// [`preset`](RetryMiddlewareBuilder::preset).
    pub fn status_class(&self, status: StatusCode) -> StatusClass {
        self.config().classifier.status_class(status)
    }

    /// Returns the service whose errors the middleware knows.
    pub fn preset(&self) -> Option<Preset> {
        self.config().preset
    }

    /// Returns the header of idempotency keys.
    pub fn idempotency_header(&self) -> HeaderName {
        self.config().keys.header().clone()
    }

    /// Returns whether requests that need a key and have none get one.
    pub fn auto_key(&self) -> AutoKey {
        self.config().keys.auto
    }

    /// Returns whether refused requests are retried without a key.
    pub fn retry_without_key(&self) -> bool {
        self.config().retry_without_key
    }

    /// Returns whether unprocessed requests are retried without a key.
    pub fn retry_unsent(&self) -> bool {
        self.config().retry_unsent
    }

    /// Returns whether the client is said to follow redirects.
    pub fn client_follows_redirects(&self) -> bool {
        self.config().client_follows_redirects
    }

    /// Returns the header that carries the number of the attempt.
    pub fn attempt_header(&self) -> Option<HeaderName> {
        self.config().attempt_header.clone()
    }

    /// Returns whether calls that give up are stored as dead letters.
    pub fn has_dead_letter_sink(&self) -> bool {
        self.state.parts.dead_letter_sink.is_some()
    }

    /// Returns the most bytes of a body that a dead letter keeps.
    pub fn dead_letter_max_body(&self) -> usize {
        self.config().dead_letters.max_body
    }

    /// Returns the time that the sink may take for a letter.
    pub fn dead_letter_timeout(&self) -> Duration {
        self.config().dead_letters.timeout
    }

    /// Returns which headers and parameters dead letters leave out.
    pub fn secrets(&self) -> Secrets {
        self.config().dead_letters.secrets.clone()
    }

    /// Returns the log level of each kind of event.
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn log_levels(&self) -> LogLevels {
        self.config().levels
    }

    /// Returns whether the middleware only decides and reports.
    pub fn dry_run(&self) -> bool {
        self.config().dry_run
    }

    /// Returns the seed of all jitter. `None` outside tests.
    pub fn seed(&self) -> Option<u64> {
        self.config().data.seed
    }
}

impl fmt::Debug for RetryMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = self.config();
        let (data, preset) = (&config.data, config.preset);
        show(f, "RetryMiddleware", data, preset, &self.state.parts)
    }
}

impl fmt::Debug for RetryMiddlewareBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (data, preset) = (&self.data, self.preset);
        show(f, "RetryMiddlewareBuilder", data, preset, &self.parts)
    }
}

/// Shows the limits of a call, and each other setting that is not at its default.
fn show(
    f: &mut fmt::Formatter<'_>,
    type_name: &str,
    data: &RetrySettings,
    preset: Option<Preset>,
    parts: &RetryParts,
) -> fmt::Result {
    let usual = RetrySettings::default();
    let budget = data.budget_per_host.builder();
    let mut shown = ShownSettings::new(f, type_name);
    shown
        .setting("max_retries", data.max_retries)
        .setting("backoff", &data.backoff)
        .setting("max_server_delay", data.max_server_delay)
        .setting("retry_window", data.retry_window)
        .setting("deadline", data.deadline)
        .setting("attempt_timeout", data.attempt_timeout)
        .unless(Duration::ZERO, "launch_spread", data.launch_spread)
        .optional("budget", parts.budget.as_ref())
        .optional("budget_per_host", parts.budget.is_none().then_some(budget))
        .optional("fleet", parts.fleet.as_ref())
        .optional("preset", preset)
        .unless(&usual.status, "status", &data.status)
        .optional("classify_fn", parts.classify_fn.as_ref())
        .optional(
            "inspect_body",
            (!parts.inspect.is_empty()).then_some(&parts.inspect),
        )
        .optional("idempotency_header", data.idempotency_header.as_ref())
        .unless(usual.auto_key, "auto_key", data.auto_key)
        .unless(false, "retry_without_key", data.retry_without_key)
        .unless(false, "retry_unsent", data.retry_unsent)
        .unless(
            true,
            "client_follows_redirects",
            data.client_follows_redirects,
        )
        .optional("attempt_header", data.attempt_header.as_ref())
        .unless(0, "observers", parts.observers.count());
    if parts.dead_letter_sink.is_some() {
        shown
            .setting("dead_letter_sink", format_args!(".."))
            .setting("dead_letter_max_body", data.dead_letter_max_body)
            .setting("dead_letter_timeout", data.dead_letter_timeout)
            .setting("secrets", &data.secrets);
    }
    #[cfg(feature = "tracing")]
    shown.unless(usual.log_levels, "log_levels", data.log_levels);
    shown
        .unless(false, "dry_run", data.dry_run)
        .optional("seed", data.seed)
        .finish()
}
