//! The reason why a call ended.

use std::fmt;

/// Says why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The response is not an error: its status is below 400.
    Succeeded,
    /// A retry would end the same way.
    NotRetryable,
    /// The request may have taken effect, and a retry could repeat that effect.
    ///
    /// Its method is not idempotent and it carries no key.
    NotIdempotent,
    /// The body was a stream, which can be sent only once. See [`body_with`](crate::RequestBuilderExt::body_with).
    BodyNotReplayable,
    /// The call has used all its retries.
    RetriesExhausted,
    /// The next retry would start after the retry window, which begins with the call.
    WindowClosed,
    /// The next retry could not get a response before the deadline.
    DeadlineTooClose,
    /// The [`Budget`](crate::Budget) of the client has no retries left.
    BudgetEmpty,
    /// The enclosing call or [`Scope`](crate::Scope) has no retries left.
    AllowanceSpent,
    /// The server asked for a longer wait than the client accepts.
    ServerDelayTooLong,
    /// The server said not to retry.
    ServerVeto,
    /// Retries were turned off for this call.
    Disabled,
    /// A [`ThrottleMiddleware`](crate::ThrottleMiddleware) refused the next attempt.
    ///
    /// The report ends with the last attempt that was sent.
    Throttled,
    /// Without [`dry_run`](crate::RetryMiddlewareBuilder::dry_run), a retry would have followed.
    DryRun,
}

impl StopReason {
    /// Returns a stable name in snake_case, for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::NotRetryable => "not_retryable",
            Self::NotIdempotent => "not_idempotent",
            Self::BodyNotReplayable => "body_not_replayable",
            Self::RetriesExhausted => "retries_exhausted",
            Self::WindowClosed => "window_closed",
            Self::DeadlineTooClose => "deadline_too_close",
            Self::BudgetEmpty => "budget_empty",
            Self::AllowanceSpent => "allowance_spent",
            Self::ServerDelayTooLong => "server_delay_too_long",
            Self::ServerVeto => "server_veto",
            Self::Disabled => "disabled",
            Self::Throttled => "throttled",
            Self::DryRun => "dry_run",
        }
    }

    /// Returns whether the call gave up although it might succeed later.
    ///
    /// Such calls go to the [`DeadLetterSink`](crate::DeadLetterSink), if there is one.
    pub fn is_given_up(self) -> bool {
        match self {
            Self::Succeeded | Self::NotRetryable | Self::ServerVeto | Self::DryRun => false,
            Self::NotIdempotent
            | Self::BodyNotReplayable
            | Self::RetriesExhausted
            | Self::WindowClosed
            | Self::DeadlineTooClose
            | Self::BudgetEmpty
            | Self::AllowanceSpent
            | Self::ServerDelayTooLong
            | Self::Disabled
            | Self::Throttled => true,
        }
    }

    /// All reasons. The position of each is its discriminant, so that it can index arrays.
    pub(crate) const ALL: [Self; 14] = [
        Self::Succeeded,
        Self::NotRetryable,
        Self::NotIdempotent,
        Self::BodyNotReplayable,
        Self::RetriesExhausted,
        Self::WindowClosed,
        Self::DeadlineTooClose,
        Self::BudgetEmpty,
        Self::AllowanceSpent,
        Self::ServerDelayTooLong,
        Self::ServerVeto,
        Self::Disabled,
        Self::Throttled,
        Self::DryRun,
    ];

    /// Returns the reason with this label, if this version knows it.
    pub(crate) fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.label() == label)
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_found_by_its_label() {
        for (position, reason) in StopReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, position);
            // A new reason does not compile here. Add it to `ALL` as well.
            match reason {
                StopReason::Succeeded
                | StopReason::NotRetryable
                | StopReason::NotIdempotent
                | StopReason::BodyNotReplayable
                | StopReason::RetriesExhausted
                | StopReason::WindowClosed
                | StopReason::DeadlineTooClose
                | StopReason::BudgetEmpty
                | StopReason::AllowanceSpent
                | StopReason::ServerDelayTooLong
                | StopReason::ServerVeto
                | StopReason::Disabled
                | StopReason::Throttled
                | StopReason::DryRun => {}
            }
            assert_eq!(StopReason::from_label(reason.label()), Some(reason));
        }
        assert_eq!(StopReason::from_label("bored"), None);
    }
}
