//! Reads the settings of a retry middleware back.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::settings::{CallLimits, RetrySettings};
use super::{RetryMiddleware, RetryMiddlewareBuilder};
use crate::admit::Budget;
use crate::config::ShownSettings;
use crate::dead_letter::{DeadLetters, Secrets};
use crate::decide::{AutoKey, StatusClass};
use crate::fleet::FleetLimits;
use crate::hashed::hash_of;
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::schedule::Backoff;

/// # Settings
///
/// Each has the name of its method in [`RetryMiddlewareBuilder`].
impl RetryMiddleware {
    /// Returns the most retries of one call.
    pub fn max_retries(&self) -> u32 {
        self.state.settings.limits.max_retries
    }

    /// Returns how waits between attempts grow and spread.
    pub fn backoff(&self) -> &Backoff {
        &self.state.settings.backoff
    }

    /// Returns the longest pause that a server may ask for.
    pub fn max_server_delay(&self) -> Duration {
        self.state.settings.limits.max_server_delay
    }

    /// Returns the time in which retries may start.
    pub fn retry_window(&self) -> Duration {
        self.state.settings.limits.window
    }

    /// Returns the total time until response headers arrive.
    pub fn deadline(&self) -> Option<Duration> {
        self.state.settings.limits.deadline
    }

    /// Returns the time of each attempt until its response headers arrive.
    pub fn attempt_timeout(&self) -> Option<Duration> {
        self.state.settings.limits.attempt_timeout
    }

    /// Returns the longest random delay of a first attempt.
    pub fn launch_spread(&self) -> Duration {
        self.state.settings.limits.launch_spread
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
        self.state.hosts.of(host, hash_of(host)).budget.clone()
    }

    /// Returns the fleet that shares the retry budgets.
    pub fn fleet(&self) -> Option<&FleetLimits> {
        self.state.settings.budgets.fleet.as_ref()
    }

    /// Returns the class of a status, as set with [`status`](RetryMiddlewareBuilder::status) or by default.
    ///
    /// A [`classify_fn`](RetryMiddlewareBuilder::classify_fn) may decide otherwise.
    pub fn status_class(&self, status: StatusCode) -> StatusClass {
        self.state.settings.classifier.status_class(status, false)
    }

    /// Returns the header of idempotency keys.
    pub fn idempotency_header(&self) -> &HeaderName {
        self.state.settings.keys.header()
    }

    /// Returns whether requests that need a key and have none get one.
    pub fn auto_key(&self) -> AutoKey {
        self.state.settings.keys.auto
    }

    /// Returns whether refused requests are retried without a key.
    pub fn retry_without_key(&self) -> bool {
        self.state.settings.retry_without_key
    }

    /// Returns whether unprocessed requests are retried without a key.
    pub fn retry_unsent(&self) -> bool {
        self.state.settings.retry_unsent
    }

    /// Returns whether the client is said to follow redirects.
    pub fn client_follows_redirects(&self) -> bool {
        self.state.settings.client_follows_redirects != Some(false)
    }

    /// Returns the header that carries the number of the attempt.
    pub fn attempt_header(&self) -> Option<&HeaderName> {
        self.state.settings.attempt_header.as_ref()
    }

    /// Returns whether calls that give up are stored as dead letters.
    pub fn has_dead_letter_sink(&self) -> bool {
        self.state.settings.dead_letters.sink.is_some()
    }

    /// Returns the most bytes of a body that a dead letter keeps.
    pub fn dead_letter_max_body(&self) -> usize {
        self.state.settings.dead_letters.max_body
    }

    /// Returns the time that the sink may take for a letter.
    pub fn dead_letter_timeout(&self) -> Duration {
        self.state.settings.dead_letters.timeout
    }

    /// Returns which headers and parameters dead letters leave out.
    pub fn secrets(&self) -> &Secrets {
        &self.state.settings.dead_letters.secrets
    }

    /// Returns the log level of each kind of event.
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn log_levels(&self) -> LogLevels {
        self.state.settings.levels
    }

    /// Returns whether the middleware only decides and reports.
    pub fn dry_run(&self) -> bool {
        self.state.settings.dry_run
    }

    /// Returns the seed of all jitter. `None` outside tests.
    pub fn seed(&self) -> Option<u64> {
        self.state.settings.seed
    }
}

impl fmt::Debug for RetryMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.settings.show(f, "RetryMiddleware")
    }
}

impl fmt::Debug for RetryMiddlewareBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.show(f, "RetryMiddlewareBuilder")
    }
}

impl RetrySettings {
    /// Shows the limits of a call, and each other setting that is not at its default.
    fn show(&self, f: &mut fmt::Formatter<'_>, type_name: &str) -> fmt::Result {
        let CallLimits {
            max_retries,
            max_server_delay,
            window,
            deadline,
            attempt_timeout,
            launch_spread,
        } = self.limits;
        let usual = Self::default();
        let DeadLetters {
            sink,
            secrets,
            max_body,
            timeout,
        } = &self.dead_letters;
        let mut shown = ShownSettings::new(f, type_name);
        shown
            .setting("max_retries", max_retries)
            .setting("backoff", &self.backoff)
            .setting("max_server_delay", max_server_delay)
            .setting("retry_window", window)
            .setting("deadline", deadline)
            .setting("attempt_timeout", attempt_timeout)
            .unless(Duration::ZERO, "launch_spread", launch_spread)
            .optional("budget", self.budgets.single.as_ref())
            .optional("budget_per_host", self.budgets.shown_per_host())
            .optional("fleet", self.budgets.fleet.as_ref())
            .unless(
                &usual.classifier.by_status,
                "status",
                &self.classifier.by_status,
            )
            .optional("classify_fn", self.classifier.by_user.as_ref())
            .optional(
                "inspect_body",
                (!self.inspect.is_empty()).then_some(&self.inspect),
            )
            .unless(
                usual.keys.header(),
                "idempotency_header",
                self.keys.header(),
            )
            .unless(usual.keys.auto, "auto_key", self.keys.auto)
            .unless(false, "retry_without_key", self.retry_without_key)
            .unless(false, "retry_unsent", self.retry_unsent)
            .optional("client_follows_redirects", self.client_follows_redirects)
            .optional("attempt_header", self.attempt_header.as_ref())
            .unless(0, "observers", self.observers.count());
        if sink.is_some() {
            shown
                .setting("dead_letter_sink", format_args!(".."))
                .setting("dead_letter_max_body", max_body)
                .setting("dead_letter_timeout", timeout)
                .setting("secrets", secrets);
        }
        #[cfg(feature = "tracing")]
        shown.unless(usual.levels, "log_levels", self.levels);
        shown
            .unless(false, "dry_run", self.dry_run)
            .optional("seed", self.seed)
            .finish()
    }
}
