//! What a retry middleware goes by.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderName;

use super::inner::InnerRetry;
use crate::admit::Budgets;
use crate::config::Timers;
use crate::dead_letter::{DeadLetters, Secrets};
use crate::decide::{Classifier, KeyRule};
use crate::entropy::Entropy;
use crate::log::two_retries_in_one_chain;
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::observe::{Event, Observers, Tracking};
use crate::schedule::{Backoff, TimeLimits};

/// What a [`RetryMiddleware`] goes by. Checked, and never changed again.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) max_retries: u32,
    pub(crate) classifier: Classifier,
    pub(crate) retry_without_key: bool,
    pub(crate) retry_unsent: bool,
    /// If true, `retry_without_key` and `retry_unsent` are false (checked in `build`).
    pub(crate) client_follows_redirects: bool,
    pub(crate) keys: KeyRule,
    pub(crate) backoff: Backoff,
    pub(crate) max_server_delay: Duration,
    pub(crate) limits: TimeLimits,
    pub(crate) launch_spread: Duration,
    pub(crate) budgets: Budgets,
    pub(crate) attempt_header: Option<HeaderName>,
    pub(crate) entropy: Entropy,
    pub(crate) dry_run: bool,
    pub(crate) dead_letters: Option<DeadLetters>,
    pub(crate) secrets: Secrets,
    pub(crate) observers: Observers,
    pub(crate) tracking: Tracking,
    #[cfg(feature = "tracing")]
    pub(crate) levels: LogLevels,
    pub(crate) timers: Timers,
    pub(crate) inner_retry: InnerRetry,
    warned: AtomicBool,
}

impl Settings {
    /// Says so once.
    pub(crate) fn warn_of_two_in_a_chain(&self) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            two_retries_in_one_chain();
        }
    }

    /// Whether somebody wants to know of every call, from its beginning on.
    pub(crate) fn follows(&self, could_retry: bool) -> bool {
        self.tracking.is_on(could_retry)
    }

    /// Whether the log may say anything of a call that does not go as it should.
    pub(crate) fn says_anything(&self) -> bool {
        #[cfg(feature = "tracing")]
        return self.levels.logs_problems();
        #[cfg(not(feature = "tracing"))]
        false
    }

    /// Tells all who want to know.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        self.observers.notify(event);
        #[cfg(feature = "tracing")]
        self.levels.log(event);
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_retries: 5,
            classifier: Classifier::default(),
            retry_without_key: false,
            retry_unsent: false,
            client_follows_redirects: true,
            keys: KeyRule::default(),
            backoff: Backoff::default(),
            max_server_delay: Duration::from_secs(60),
            limits: TimeLimits {
                window: Duration::from_secs(5 * 60),
                deadline: None,
                attempt: None,
            },
            launch_spread: Duration::ZERO,
            budgets: Budgets::default(),
            attempt_header: None,
            entropy: Entropy::System,
            dry_run: false,
            dead_letters: None,
            secrets: Secrets::default(),
            observers: Observers::default(),
            tracking: Tracking::default(),
            #[cfg(feature = "tracing")]
            levels: LogLevels::default(),
            timers: Timers::default(),
            inner_retry: InnerRetry::default(),
            warned: AtomicBool::new(false),
        }
    }
}
