//! Log messages that belong to no event: warnings about misuse, and failures outside a call.
//!
//! This is the lowest layer, so that every module may warn. Without the feature `tracing` nothing is logged.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

/// Logs a warning at most once.
#[derive(Debug, Default)]
pub(crate) struct WarnOnce(AtomicBool);

impl WarnOnce {
    pub(crate) fn warn(&self, text: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            warn(&text);
        }
    }

    /// Returns whether the warning was logged.
    pub(crate) fn is_done(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn warn(text: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!("{text}");
    #[cfg(not(feature = "tracing"))]
    let _ = text;
}

/// Warns about two retries in one chain. They share their retries, so the inner one is of little use.
pub(crate) const TWO_RETRIES_IN_ONE_CHAIN: &str = "there are two RetryMiddlewares in one chain: the inner one only \
    retries what the outer one would retry as well, and both draw from the outer one's retries; remove one of them";

/// Warns that the throttle sees calls instead of attempts.
pub(crate) const THROTTLE_OUTSIDE_RETRY: &str = "a ThrottleMiddleware is outside a RetryMiddleware, and does not see \
    each attempt; add it to the ClientBuilder after the retry";

/// Warns that calls share attempts: after one failed attempt, each of them retries.
pub(crate) const COALESCE_INSIDE_RETRY: &str = "a CoalesceMiddleware is inside a RetryMiddleware, and shares attempts \
    in place of calls; add it to the ClientBuilder before the retry";

/// Warns that a request is never shared. Without the warning this looks like a request without duplicates.
pub(crate) const UNKNOWN_EXTENSIONS: &str = "a request carries extensions of unknown meaning, so the \
    CoalesceMiddleware lets it pass: if no inner middleware answers differently because of them, call \
    `ignore_extensions` on its builder";

/// Says why a key is invalid, because the builder error of reqwest does not.
pub(crate) fn invalid_key(invalid: &dyn Display) {
    warn(&format_args!(
        "invalid idempotency key, the request will not be sent: {invalid}"
    ));
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

    /// Warns about a lost letter. The call has already returned, so no error reports it.
    pub(crate) fn letter_not_delivered(&self, host: &str, outcome: &str, error: Option<&str>) {
        #[cfg(feature = "tracing")]
        self.span.in_scope(|| {
            let error = error.unwrap_or("no more is known");
            tracing::warn!(
                target: "reqwest_steady",
                host,
                outcome,
                "a dead letter about a call to {host} was not delivered ({outcome}): {error}"
            );
        });
        #[cfg(not(feature = "tracing"))]
        let _ = (host, outcome, error);
    }
}

/// Reports a panic in an observer. The call is not affected.
pub(crate) fn observer_panicked() {
    #[cfg(feature = "tracing")]
    tracing::error!("an observer panicked, and missed an event; the call goes on");
}
