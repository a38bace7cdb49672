//! One-time warnings, and messages that belong to no event. Without the feature `tracing` they do nothing.

use std::fmt::Display;

/// Two retries in one chain share one allowance, but nobody wants two.
pub(crate) fn two_retries_in_one_chain() {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        "there are two RetryMiddlewares in one chain: the inner one only retries what the outer one \
         would retry as well, and both draw from the outer one's retries; remove one of them"
    );
}

/// It works, but less well: it sees calls in place of attempts.
pub(crate) fn throttle_outside_retry() {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        "a ThrottleMiddleware is outside a RetryMiddleware, and does not see each attempt; add it to \
         the ClientBuilder after the retry"
    );
}

/// It works, but less well: everyone who waits pays for the one failure with a retry.
pub(crate) fn coalesce_inside_retry() {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        "a CoalesceMiddleware is inside a RetryMiddleware, and shares attempts in place of calls; add it \
         to the ClientBuilder before the retry"
    );
}

/// A request that is never shared looks like one that nobody else sent.
pub(crate) fn unknown_extensions() {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        "a request carries extensions of unknown meaning, so the CoalesceMiddleware lets it pass: if no \
         inner middleware answers differently because of them, call `ignore_extensions` on its builder"
    );
}

/// The error that the caller gets is reqwest's, and cannot say it.
pub(crate) fn invalid_key(invalid: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!("invalid idempotency key, the request will not be sent: {invalid}");
    #[cfg(not(feature = "tracing"))]
    let _ = invalid;
}

/// Where in the log a call belongs, for what is said of it from elsewhere.
#[derive(Debug)]
pub(crate) struct LogPlace {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl LogPlace {
    pub(crate) fn here() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            span: tracing::Span::current(),
        }
    }

    /// The call is over and has its answer, but nobody may know what it was about.
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

/// It is the observer that is broken, and not the call.
pub(crate) fn observer_panicked() {
    #[cfg(feature = "tracing")]
    tracing::error!("an observer panicked, and missed an event; the call goes on");
}
