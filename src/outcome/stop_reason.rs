//! The reason why a call ended.

labelled! {
    /// Says why a call ended.
    pub enum StopReason {
        /// The response is not an error: its status is below 400.
        Succeeded = "succeeded",
        /// A retry would end the same way. After a status below 400, a [`BodyVerdict`](crate::BodyVerdict) says so.
        NotRetryable = "not_retryable",
        /// The request may have taken effect, and a retry could repeat that effect.
        ///
        /// Its method is not idempotent and it carries no key.
        NotIdempotent = "not_idempotent",
        /// The body could not be sent again.
        ///
        /// It was a stream, which can be sent only once: see [`body_with`](crate::RequestBuilderExt::body_with). Or it
        /// was a file that changed between attempts. Then the call ends with a [`SteadyError`](crate::SteadyError).
        BodyNotReplayable = "body_not_replayable",
        /// The call has used all its retries.
        RetriesExhausted = "retries_exhausted",
        /// The next retry would start after the retry window, which begins with the call.
        WindowClosed = "window_closed",
        /// The next retry could not get a response before the deadline.
        DeadlineTooClose = "deadline_too_close",
        /// The [`Budget`](crate::Budget) of the client has no retries left.
        ///
        /// After a 429, or a 503 with a hint, the call has waited in line for a minute first, unless the line was full
        /// or a throttle is in the chain.
        BudgetEmpty = "budget_empty",
        /// The enclosing call or [`Scope`](crate::Scope) has no retries left.
        AllowanceSpent = "allowance_spent",
        /// The server asked for a longer wait than the client accepts.
        ServerDelayTooLong = "server_delay_too_long",
        /// The server said not to retry.
        ServerVeto = "server_veto",
        /// Retries were turned off for this call.
        Disabled = "disabled",
        /// A [`ThrottleMiddleware`](crate::ThrottleMiddleware) refused the next attempt.
        ///
        /// The report ends with the last attempt that was sent.
        Throttled = "throttled",
        /// Without [`dry_run`](crate::RetryMiddlewareBuilder::dry_run), a retry would have followed.
        DryRun = "dry_run",
    }
}

impl StopReason {
    /// Returns whether the call gave up although it might succeed later.
    ///
    /// Such calls go to the [`DeadLetterSink`](crate::dead_letter::DeadLetterSink), if there is one.
    pub fn is_given_up(self) -> bool {
        !matches!(
            self,
            Self::Succeeded | Self::NotRetryable | Self::ServerVeto | Self::DryRun
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_found_by_its_label() {
        for (position, reason) in StopReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, position);
            assert_eq!(StopReason::from_label(reason.as_str()), Some(reason));
        }
        assert_eq!(StopReason::from_label("bored"), None);
    }
}
