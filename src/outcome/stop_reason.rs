//! Why a call ended.

use std::fmt;

/// Why a call ended as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The answer is not an error (its status is below 400).
    Succeeded,
    /// Another try would end the same way.
    NotRetryable,
    /// The request may have had its effect, and nothing keeps a second one from having it again:
    /// its method is not idempotent and it carries no key.
    NotIdempotent,
    /// The body was a stream, which is gone once it is sent. See
    /// [`body_with`](crate::RequestBuilderExt::body_with).
    BodyNotReplayable,
    /// All allowed retries were made.
    RetriesExhausted,
    /// The next retry would have started too long after the call began.
    WindowClosed,
    /// The next retry could not have been answered before the deadline.
    DeadlineTooClose,
    /// The client has made as many retries as its [`Budget`](crate::Budget) allows.
    BudgetEmpty,
    /// The call around this one, or its [`Scope`](crate::Scope), has no retries left.
    AllowanceSpent,
    /// The server asked for a longer pause than the client is ready to make.
    ServerDelayTooLong,
    /// The server said that another try is of no use.
    ServerVeto,
    /// Retries were turned off for this call.
    Disabled,
    /// A [`ThrottleMiddleware`](crate::ThrottleMiddleware) did not let the next attempt through. The
    /// last attempt that it did let through is the last in the report.
    Throttled,
    /// The call would have been sent again: see
    /// [`dry_run`](crate::RetryMiddlewareBuilder::dry_run).
    DryRun,
}

impl StopReason {
    /// A stable name in snake_case, for logs and metrics.
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

    /// Whether the call was given up although it might have worked later: such calls go to the
    /// [`DeadLetterSink`](crate::DeadLetterSink), if there is one.
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

    /// Each at its own place: what is kept for each is found there.
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

    /// The reason with this label, if this version knows it.
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
        for (place, reason) in StopReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            // A new one is missed here first, and belongs into `ALL` as well.
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
