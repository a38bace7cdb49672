//! The settings of a retry middleware in the form that its calls use, their checks, and what all its calls share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderName;

use super::inner_chain::InnerChain;
use crate::admit::{Budget, BudgetConfig, Hosts};
use crate::config::{
    CREDENTIALS, ConfigError, Current, Timers, Written, ensure, longer_than_zero, reserved,
    unreserved_header_name,
};
use crate::dead_letter::{DeadLetterSink, DeadLetters};
use crate::decide::{Classifier, ClassifyFn, InspectRule, KeyRule};
use crate::entropy::Entropy;
use crate::fleet::FleetLimits;
use crate::log::WarnOnce;
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::observe::{Event, Observers};
use crate::presets::Preset;
use crate::request::DEFAULT_HEADER;
use crate::schedule::Backoff;
use crate::settings::{BudgetSettings, RetrySettings};

/// What a builder gets that is not data: functions, sinks, and what is shared with other middlewares.
#[derive(Clone, Default)]
pub(crate) struct RetryParts {
    pub(crate) classify_fn: Option<ClassifyFn>,
    pub(crate) inspect: Vec<InspectRule>,
    pub(crate) budget: Option<Budget>,
    /// `budget_per_host` was called. Together with `budget` that is an error, even if it was called with the defaults.
    pub(crate) has_budget_per_host: bool,
    pub(crate) fleet: Option<FleetLimits>,
    pub(crate) dead_letter_sink: Option<Arc<dyn DeadLetterSink>>,
    pub(crate) observers: Observers,
}

/// The settings of a retry middleware, in the form that calls use.
///
/// Always valid and never changed: [`RetryMiddleware::replace`](super::RetryMiddleware::replace) makes a new one.
#[derive(Clone)]
pub(crate) struct RetryConfig {
    /// The settings from which the other fields were made.
    pub(crate) data: RetrySettings,
    pub(crate) preset: Option<Preset>,
    pub(crate) limits: CallLimits,
    pub(crate) classifier: Classifier,
    /// The first rule that selects a response looks at its body.
    pub(crate) inspect: Vec<InspectRule>,
    /// The same, where none of `inspect` has a verdict and the user did not choose the class.
    pub(crate) inspect_by_preset: Vec<InspectRule>,
    pub(crate) retry_without_key: bool,
    pub(crate) retry_unsent: bool,
    /// If this is true, `retry_without_key` and `retry_unsent` are false.
    pub(crate) client_follows_redirects: bool,
    pub(crate) keys: KeyRule,
    pub(crate) backoff: Backoff,
    pub(crate) budgets: BudgetConfig,
    pub(crate) attempt_header: Option<HeaderName>,
    pub(crate) dry_run: bool,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) observers: Observers,
    #[cfg(feature = "tracing")]
    pub(crate) levels: LogLevels,
}

/// What all calls of a middleware share: its settings, and what it has learned.
pub(crate) struct RetryState {
    pub(crate) config: Current<RetryConfig>,
    /// Held while the settings and the budgets of known hosts are replaced, so that they fit together.
    pub(crate) replacing: Mutex<()>,
    pub(crate) parts: RetryParts,
    pub(crate) hosts: Hosts,
    pub(crate) entropy: Entropy,
    pub(crate) timers: Timers,
    pub(crate) inner: InnerChain,
    pub(crate) chain_warning: WarnOnce,
}

impl RetryState {
    pub(crate) fn new(config: RetryConfig, parts: RetryParts) -> Self {
        Self {
            hosts: Hosts::default(),
            entropy: Entropy::new(config.data.seed),
            timers: Timers::default(),
            inner: InnerChain::default(),
            chain_warning: WarnOnce::default(),
            config: Current::new(config),
            replacing: Mutex::default(),
            parts,
        }
    }
}

/// The limits of a call. A request can have its own `max_retries`, `deadline` and `attempt_timeout`.
#[derive(Clone, Copy)]
pub(crate) struct CallLimits {
    pub(crate) max_retries: u32,
    pub(crate) max_server_delay: Duration,
    pub(crate) window: Duration,
    pub(crate) deadline: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) launch_spread: Duration,
}

impl RetryConfig {
    /// Brings settings into the form that calls use.
    ///
    /// # Errors
    ///
    /// If a setting is invalid, or if settings contradict each other.
    pub(crate) fn new(
        data: RetrySettings,
        preset: Option<Preset>,
        parts: &RetryParts,
    ) -> Result<Self, ConfigError> {
        let by_preset = preset.map(Preset::rules).unwrap_or_default();
        let mut keys = KeyRule::default();
        let key_header = data.idempotency_header.as_deref().or(by_preset.key_header);
        if let Some(name) = key_header {
            keys.rename(unreserved_header_name("idempotency_header", name)?);
        }
        keys.auto = data.auto_key;
        let attempt_header = (data.attempt_header.as_deref())
            .map(|name| unreserved_header_name("attempt_header", name))
            .transpose()?;
        let is_usual = data.budget_per_host == BudgetSettings::default();
        let has_per_host = parts.has_budget_per_host || !is_usual;
        let config = Self {
            limits: CallLimits {
                max_retries: data.max_retries,
                max_server_delay: data.max_server_delay,
                window: data.retry_window,
                deadline: data.deadline,
                attempt_timeout: data.attempt_timeout,
                launch_spread: data.launch_spread,
            },
            classifier: Classifier {
                by_status: data
                    .status
                    .iter()
                    .map(|(status, class)| (*status, *class))
                    .collect(),
                by_user: parts.classify_fn.clone(),
                by_preset: by_preset.classify,
            },
            inspect: parts.inspect.clone(),
            inspect_by_preset: by_preset.inspect,
            retry_without_key: data.retry_without_key,
            retry_unsent: data.retry_unsent,
            client_follows_redirects: data.client_follows_redirects,
            keys,
            backoff: data.backoff.clone(),
            budgets: BudgetConfig {
                single: parts.budget.clone(),
                per_host: has_per_host.then(|| data.budget_per_host.builder()),
                fleet: parts.fleet.clone(),
            },
            attempt_header,
            dry_run: data.dry_run,
            dead_letters: DeadLetters {
                sink: parts.dead_letter_sink.clone(),
                secrets: data.secrets.clone(),
                max_body: data.dead_letter_max_body,
                timeout: data.dead_letter_timeout,
            },
            observers: parts.observers.clone(),
            #[cfg(feature = "tracing")]
            levels: data.log_levels,
            data,
            preset,
        };
        config.check()?;
        Ok(config)
    }

    /// Refuses invalid settings, and settings that contradict each other.
    fn check(&self) -> Result<(), ConfigError> {
        longer_than_zero("dead_letter_timeout", Some(self.dead_letters.timeout))?;
        self.backoff.check()?;
        self.budgets.check()?;
        for rule in &self.inspect {
            rule.what.check()?;
        }
        for (option, is_set) in [
            ("retry_without_key", self.retry_without_key),
            ("retry_unsent", self.retry_unsent),
        ] {
            if is_set && self.client_follows_redirects {
                return Err(ConfigError::new(
                    option,
                    true,
                    "needs a client that follows no redirects, because a request may be accepted with a \
                     redirect: if yours follows none, set `client_follows_redirects` to false, otherwise \
                     use idempotency keys",
                ));
            }
        }
        longer_than_zero("retry_window", Some(self.limits.window))?;
        longer_than_zero("deadline", self.limits.deadline)?;
        longer_than_zero("attempt_timeout", self.limits.attempt_timeout)?;
        if let (Some(attempt), Some(deadline)) = (self.limits.attempt_timeout, self.limits.deadline)
        {
            let rule = format!(
                "should not be longer than the deadline ({})",
                Written(deadline)
            );
            let attempt_timeout = Written(attempt);
            ensure(
                attempt <= deadline,
                "attempt_timeout",
                attempt_timeout,
                rule,
            )?;
        }
        let (spread, window) = (self.limits.launch_spread, self.limits.window);
        let rule = format!(
            "should not be longer than the retry_window ({})",
            Written(window)
        );
        ensure(spread <= window, "launch_spread", Written(spread), rule)?;
        // A request can have a key in the default header, even if this client uses another one.
        for key_header in [self.keys.header(), &DEFAULT_HEADER] {
            let is_same = self.attempt_header.as_ref() == Some(key_header);
            let rule = "should not be the header of the idempotency key";
            let attempt_header = self.data.attempt_header.as_deref().unwrap_or_default();
            ensure(!is_same, "attempt_header", attempt_header, rule)?;
        }
        let key_header = Some(self.keys.header());
        // Errors show the name as the user wrote it. A preset has no header that is refused.
        for (setting, header, written) in [
            (
                "idempotency_header",
                key_header,
                &self.data.idempotency_header,
            ),
            (
                "attempt_header",
                self.attempt_header.as_ref(),
                &self.data.attempt_header,
            ),
        ] {
            let secrets = &self.dead_letters.secrets;
            if header.is_some_and(|header| secrets.names_credentials(header)) {
                let written = written.as_deref().unwrap_or_default();
                let effect = format!("{CREDENTIALS} (if not, add it to retry.secrets.keep)");
                return Err(reserved(setting, written, effect));
            }
        }
        Ok(())
    }

    /// Returns whether calls are tracked from their start. Such a call keeps its method and host, because the
    /// request is gone when its response arrives. Calls that nothing observes skip this work.
    pub(crate) fn tracks(&self, could_retry: bool) -> bool {
        #[cfg(feature = "tracing")]
        if self.levels.tracks(could_retry) {
            return true;
        }
        #[cfg(not(feature = "tracing"))]
        let _ = could_retry;
        !self.observers.is_empty() || self.dead_letters.sink.is_some()
    }

    /// Returns whether the class of an outcome can depend on the method and the URL.
    pub(crate) fn needs_target(&self) -> bool {
        self.classifier.by_user.is_some() || self.retry_without_key || self.inspects()
    }

    /// Returns whether there are rules that look at bodies.
    pub(crate) fn inspects(&self) -> bool {
        !self.inspect.is_empty() || !self.inspect_by_preset.is_empty()
    }

    /// Returns whether the log mentions calls that fail.
    pub(crate) fn logs_problems(&self) -> bool {
        #[cfg(feature = "tracing")]
        return self.levels.logs_problems();
        #[cfg(not(feature = "tracing"))]
        false
    }

    /// Notifies observers and the log.
    #[inline]
    pub(crate) fn notify(&self, event: &Event<'_>) {
        self.observers.notify(event);
        #[cfg(feature = "tracing")]
        self.levels.log(event);
    }
}
