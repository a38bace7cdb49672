//! Log lines that belong to no event: warnings about misuse, and failures outside a call.
//!
//! This is the lowest layer, so that every module may warn. Without the feature `tracing` nothing is logged. A line
//! names its event first. Details are in fields, and `advice` comes last.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

/// The target of all log lines of this crate.
#[cfg(feature = "tracing")]
pub(crate) const TARGET: &str = "reqwest_steady";

/// A misuse, and how to mend it.
#[derive(Debug)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code))]
pub(crate) struct Warning {
    event: &'static str,
    advice: &'static str,
}

/// They share their retries, so the inner one is of little use.
pub(crate) const TWO_RETRIES_IN_ONE_CHAIN: Warning = Warning {
    event: "two RetryMiddlewares in one chain share their retries",
    advice: "remove one of them",
};

/// The throttle sees calls instead of attempts.
pub(crate) const THROTTLE_OUTSIDE_RETRY: Warning = Warning {
    event: "ThrottleMiddleware is outside RetryMiddleware and does not see each attempt",
    advice: "add it to the ClientBuilder after the retry",
};

/// Calls share attempts: after one failed attempt, each of them retries.
pub(crate) const COALESCE_INSIDE_RETRY: Warning = Warning {
    event: "CoalesceMiddleware is inside RetryMiddleware and shares attempts instead of calls",
    advice: "add it to the ClientBuilder before the retry",
};

/// A request is never shared. Without the warning this looks like a request without duplicates.
pub(crate) const UNKNOWN_EXTENSIONS: Warning = Warning {
    event: "request not coalesced because it has unknown extensions",
    advice: "call ignore_extensions(true) if no inner middleware responds differently because of them",
};

/// Logs a warning at most once.
#[derive(Debug, Default)]
pub(crate) struct WarnOnce(AtomicBool);

impl WarnOnce {
    pub(crate) fn warn(&self, warning: &Warning) {
        if !self.0.swap(true, Ordering::Relaxed) {
            #[cfg(feature = "tracing")]
            tracing::warn!(target: TARGET, advice = warning.advice, "{}", warning.event);
            #[cfg(not(feature = "tracing"))]
            let _ = warning;
        }
    }

    /// Returns whether the warning was logged.
    pub(crate) fn is_done(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Says why a key is invalid, because the builder error of reqwest does not.
pub(crate) fn invalid_key(error: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: TARGET, %error, "request will not be sent");
    #[cfg(not(feature = "tracing"))]
    let _ = error;
}

/// Reports a panic in an observer. The call is not affected.
pub(crate) fn observer_panicked() {
    #[cfg(feature = "tracing")]
    tracing::error!(target: TARGET, "observer panicked and missed an event");
}

/// Reports that a download broke off and asks for the rest.
pub(crate) fn download_resumes(host: &str, received: u64, resumes: u32, cause: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: TARGET, %host, received, resumes, %cause, "download broke off, asking for the rest");
    #[cfg(not(feature = "tracing"))]
    let _ = (host, received, resumes, cause);
}

/// Warns that a fleet's store does not respond.
pub(crate) fn store_lost(error: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: TARGET, %error, "fleet store lost, using local limits");
    #[cfg(not(feature = "tracing"))]
    let _ = error;
}

/// Reports that a fleet's store responds again.
pub(crate) fn store_back() {
    #[cfg(feature = "tracing")]
    tracing::info!(target: TARGET, "fleet store back, sharing limits again");
}

/// The tracing span of a call, for messages that are logged outside it.
#[derive(Debug)]
pub(crate) struct LogContext {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl LogContext {
    pub(crate) fn current() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            span: tracing::Span::current(),
        }
    }

    /// Warns about a letter that may be lost. The call has already returned, so no error reports it.
    pub(crate) fn letter_not_confirmed(&self, host: &str, outcome: &str, error: Option<&str>) {
        #[cfg(feature = "tracing")]
        self.span.in_scope(|| {
            tracing::warn!(target: TARGET, %host, %outcome, error, "dead letter not confirmed");
        });
        #[cfg(not(feature = "tracing"))]
        let _ = (host, outcome, error);
    }
}
