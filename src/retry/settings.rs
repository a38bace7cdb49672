//! The settings of a retry middleware and their checks, and what all its calls share.

use std::time::Duration;

use http::HeaderName;

use super::inner_chain::InnerChain;
use crate::admit::{BudgetSettings, Hosts};
use crate::config::{CREDENTIALS, ConfigError, Timers, ensure, longer_than_zero, reserved};
use crate::dead_letter::DeadLetters;
use crate::decide::{Classifier, InspectRule, KeyRule};
use crate::entropy::Entropy;
use crate::log::WarnOnce;
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::observe::{Event, Observers};
use crate::request::DEFAULT_HEADER;
use crate::schedule::Backoff;

/// The settings of a retry middleware. Checked when it is built, and never changed after that.
#[derive(Clone, Default)]
pub(crate) struct RetrySettings {
    pub(crate) limits: CallLimits,
    pub(crate) classifier: Classifier,
    /// The first one that selects a response looks at its body.
    pub(crate) inspect: Vec<InspectRule>,
    pub(crate) retry_without_key: bool,
    pub(crate) retry_unsent: bool,
    /// Unless this is `Some(false)`, `retry_without_key` and `retry_unsent` are false (checked in `build`).
    pub(crate) client_follows_redirects: Option<bool>,
    pub(crate) keys: KeyRule,
    pub(crate) backoff: Backoff,
    pub(crate) budgets: BudgetSettings,
    pub(crate) attempt_header: Option<HeaderName>,
    /// The seed of all jitter. `None` outside tests.
    pub(crate) seed: Option<u64>,
    pub(crate) dry_run: bool,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) observers: Observers,
    #[cfg(feature = "tracing")]
    pub(crate) levels: LogLevels,
}

/// What all calls of a middleware share: its settings, and what it has learned.
pub(crate) struct RetryState {
    pub(crate) settings: RetrySettings,
    pub(crate) hosts: Hosts,
    pub(crate) entropy: Entropy,
    pub(crate) timers: Timers,
    pub(crate) inner: InnerChain,
    pub(crate) chain_warning: WarnOnce,
}

impl RetryState {
    /// The settings must be valid.
    pub(crate) fn new(settings: RetrySettings) -> Self {
        Self {
            hosts: Hosts::new(settings.budgets.clone()),
            entropy: Entropy::new(settings.seed),
            timers: Timers::default(),
            inner: InnerChain::default(),
            chain_warning: WarnOnce::default(),
            settings,
        }
    }
}

/// What a call may do at most. A request can have its own retries, deadline and timeout.
#[derive(Clone)]
pub(crate) struct CallLimits {
    pub(crate) max_retries: u32,
    pub(crate) max_server_delay: Duration,
    pub(crate) window: Duration,
    pub(crate) deadline: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) launch_spread: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            max_retries: 5,
            max_server_delay: Duration::from_secs(60),
            window: Duration::from_secs(5 * 60),
            deadline: None,
            attempt_timeout: None,
            launch_spread: Duration::ZERO,
        }
    }
}

impl RetrySettings {
    /// Refuses invalid settings, and settings that contradict each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
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
            if is_set && self.client_follows_redirects != Some(false) {
                return Err(ConfigError::new(
                    option,
                    "for a client that follows redirects",
                    "would repeat requests that were accepted with a redirect: build the client with \
                     `reqwest::redirect::Policy::none()` and set `client_follows_redirects(false)`, \
                     or use an idempotency key",
                ));
            }
        }
        longer_than_zero("retry_window", Some(self.limits.window))?;
        longer_than_zero("deadline", self.limits.deadline)?;
        longer_than_zero("attempt_timeout", self.limits.attempt_timeout)?;
        if let (Some(attempt), Some(deadline)) = (self.limits.attempt_timeout, self.limits.deadline)
        {
            let rule = format!("should not be longer than the deadline ({deadline:?})");
            ensure(attempt <= deadline, "attempt_timeout", attempt, rule)?;
        }
        let (spread, window) = (self.limits.launch_spread, self.limits.window);
        let rule = format!("should not be longer than the retry_window ({window:?})");
        ensure(spread <= window, "launch_spread", spread, rule)?;
        // A request can have a key in the default header, even if this client uses another one.
        for key_header in [self.keys.header(), &DEFAULT_HEADER] {
            if self.attempt_header.as_ref() == Some(key_header) {
                return Err(ConfigError::new(
                    "attempt_header",
                    key_header,
                    "should not be the header of the idempotency key",
                ));
            }
        }
        for (setting, header) in [
            ("idempotency_header", Some(self.keys.header())),
            ("attempt_header", self.attempt_header.as_ref()),
        ] {
            let secrets = &self.dead_letters.secrets;
            let header = header.filter(|header| secrets.names_credentials(header));
            if let Some(header) = header {
                let effect = format!("{CREDENTIALS} (if not, say so with `Secrets::keep`)");
                return Err(reserved(setting, header.as_str(), effect));
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
        self.classifier.by_user.is_some() || self.retry_without_key || !self.inspect.is_empty()
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
