//! The report of a call: its attempts, its waits and why it ended.

use std::fmt;
use std::time::Duration;

use reqwest::Response;

use super::{AttemptOutcome, Effect, StopReason, WaitReason};
use crate::clock::rounded;

/// Describes one attempt of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    pub(crate) outcome: AttemptOutcome,
    pub(crate) sent_at: Duration,
    pub(crate) waited: Duration,
    pub(crate) wait_reason: Option<WaitReason>,
    pub(crate) took: Duration,
    pub(crate) hint: Option<Duration>,
    pub(crate) effect: Effect,
}

impl AttemptReport {
    /// Adds the time that the attempt waited in a throttle before it was sent.
    pub(crate) fn add_wait(&mut self, queued: Duration) {
        self.sent_at = self.sent_at.saturating_add(queued);
        self.waited = self.waited.saturating_add(queued);
        self.took = self.took.saturating_sub(queued);
    }

    /// Replaces an attempt that was a whole call of an inner retry with the last attempt of that call.
    ///
    /// Returns the earlier attempts of the inner call, with times relative to the outer call.
    pub(crate) fn replace_with_inner(&mut self, inner: RetryReport) -> Vec<Self> {
        let RetryReport {
            mut earlier, last, ..
        } = inner;
        let whole = std::mem::replace(self, last);
        for attempt in earlier.iter_mut().chain([&mut *self]) {
            attempt.sent_at = attempt.sent_at.saturating_add(whole.sent_at);
        }
        let first = earlier.first_mut().unwrap_or(self);
        first.waited = first.waited.saturating_add(whole.waited);
        let is_doubted = self.effect == Effect::DidNotHappen && self.effect != whole.effect;
        if is_doubted || (self.outcome != whole.outcome && self.effect != whole.effect) {
            // A middleware between the two has changed the result, or has sent another request.
            self.effect = Effect::Unknown;
        }
        self.outcome = whole.outcome;
        self.hint = whole.hint.or(self.hint);
        earlier
    }

    /// Returns how the attempt ended.
    pub fn outcome(&self) -> AttemptOutcome {
        self.outcome
    }

    /// Returns when the attempt was sent, counted from the call's start.
    pub fn sent_at(&self) -> Duration {
        self.sent_at
    }

    /// Returns how long the call waited before this attempt.
    ///
    /// This includes the time in the queue of a [`ThrottleMiddleware`](crate::ThrottleMiddleware).
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns why the call waited before this attempt. `None` for the first attempt.
    ///
    /// The wait may also include time in the queue of a throttle.
    pub fn wait_reason(&self) -> Option<WaitReason> {
        self.wait_reason
    }

    /// Returns the time from sending the attempt to its response headers or error.
    ///
    /// Time in the queue of a throttle is in [`waited`](Self::waited) instead.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Returns whether this attempt took effect on the server.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Returns the wait that the server asked for after this attempt.
    ///
    /// `None` if it asked for none, or if no retry was possible.
    pub fn hint(&self) -> Option<Duration> {
        self.hint
    }
}

/// Describes a call: its attempts, its waits, and why it ended.
///
/// Each response from a [`RetryMiddleware`](crate::RetryMiddleware) carries a report in its extensions. For calls that
/// end with an error, use a [`ReportSlot`](crate::ReportSlot). If a chain has two `RetryMiddleware`s, the report of the outer one
/// contains the attempts of both.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = wiremock::MockServer::start().await;
/// # let url = server.uri();
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::{RetryMiddleware, RetryReport, StopReason};
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::default())
///     .build();
/// let response = client.get(url).send().await?;
///
/// let report = RetryReport::of(&response).expect("every response carries one");
/// assert_eq!(report.retries(), 0);
/// assert_eq!(report.stop_reason(), StopReason::NotRetryable); // this server always returns 404
/// println!("{report}"); // 1 attempt in 12 ms: 404
/// for attempt in report.attempts() {
///     println!("{:?}: {} after {:?}", attempt.sent_at(), attempt.outcome(), attempt.took());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RetryReport {
    /// All attempts but the last. Empty for a call without retries, which saves an allocation.
    pub(crate) earlier: Vec<AttemptReport>,
    pub(crate) last: AttemptReport,
    /// The wait before an attempt that was not sent: a throttle refused it, or the budget stayed empty. The attempts do
    /// not include it.
    pub(crate) refused_wait: Duration,
    pub(crate) took: Duration,
    pub(crate) stop_reason: StopReason,
}

impl RetryReport {
    /// Returns the report that a response carries.
    pub fn of(response: &Response) -> Option<&Self> {
        response.extensions().get()
    }

    /// Returns the number of attempts after the first.
    pub fn retries(&self) -> u32 {
        u32::try_from(self.earlier.len()).unwrap_or(u32::MAX)
    }

    /// Returns the total time that the call waited.
    ///
    /// This is the time before and between its attempts, and before an attempt that was not sent: a throttle refused
    /// it, or the call waited in line for the budget and was not released.
    pub fn waited(&self) -> Duration {
        self.attempts().fold(self.refused_wait, |sum, attempt| {
            sum.saturating_add(attempt.waited)
        })
    }

    /// Returns the time from the start of the call to its response headers or error.
    ///
    /// Zero if the call was not measured: see [`effect`](Self::effect).
    ///
    /// With [`buffer_response`](crate::RequestBuilderExt::buffer_response), this includes the time to read the body.
    /// With [`inspect_body`](crate::RetryMiddlewareBuilder::inspect_body), it includes the time to read its beginning.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Returns whether the call took effect on the server.
    ///
    /// [`Effect`] says what follows from which result. For errors and dropped calls, ask [`ReportSlot::effect`].
    ///
    /// A call that cannot be retried, such as a `POST` without a key, is not measured unless it is observed, logged,
    /// has a time limit, or has an option such as [`report_to`](crate::RequestBuilderExt::report_to). Then its times are
    /// zero. Its effect is `Unknown`, unless its method is safe or its client follows no redirects.
    ///
    /// [`ReportSlot::effect`]: crate::ReportSlot::effect
    pub fn effect(&self) -> Effect {
        let effects = self.attempts().map(|attempt| attempt.effect);
        effects.fold(Effect::DidNotHappen, Effect::or)
    }

    /// Returns why the call ended.
    pub fn stop_reason(&self) -> StopReason {
        self.stop_reason
    }

    /// Iterates over the attempts, first to last. There is at least one.
    pub fn attempts(&self) -> impl DoubleEndedIterator<Item = &AttemptReport> {
        self.earlier.iter().chain(std::iter::once(&self.last))
    }
}

/// Shows the number of attempts, the time and the outcomes: `3 attempts in 4.2 s: 503, timeout, 200`.
impl fmt::Display for RetryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.earlier.len() + 1;
        let attempts = if count == 1 { "attempt" } else { "attempts" };
        write!(f, "{count} {attempts}")?;
        if !self.took.is_zero() {
            write!(f, " in {}", rounded(self.took))?;
        }
        let mut separator = ": ";
        for attempt in self.attempts() {
            write!(f, "{separator}{}", attempt.outcome)?;
            separator = ", ";
        }
        Ok(())
    }
}

/// Shows what the methods return.
impl fmt::Debug for RetryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts: Vec<_> = self.attempts().collect();
        f.debug_struct("RetryReport")
            .field("attempts", &format_args!("{attempts:?}"))
            .field("waited", &self.waited())
            .field("took", &self.took)
            .field("stop_reason", &self.stop_reason)
            .field("effect", &self.effect())
            .finish()
    }
}

/// The report of a call that ended with an error, in the extensions.
///
/// An outer retry of the same chain reads it, because there is no response that could carry it.
#[derive(Clone, Debug)]
pub(crate) struct FailedReport(pub(crate) RetryReport);

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::outcome::FailureKind;

    fn attempt(outcome: AttemptOutcome, effect: Effect) -> AttemptReport {
        AttemptReport {
            outcome,
            sent_at: Duration::ZERO,
            waited: Duration::ZERO,
            wait_reason: None,
            took: Duration::ZERO,
            hint: None,
            effect,
        }
    }

    fn status(code: u16, effect: Effect) -> AttemptReport {
        let code = StatusCode::from_u16(code).unwrap();
        attempt(AttemptOutcome::Status(code), effect)
    }

    fn report(mut attempts: Vec<AttemptReport>, took: Duration) -> RetryReport {
        RetryReport {
            last: attempts.pop().unwrap(),
            earlier: attempts,
            refused_wait: Duration::ZERO,
            took,
            stop_reason: StopReason::Succeeded,
        }
    }

    #[test]
    fn a_report_reads_like_a_sentence() {
        let timeout = attempt(
            AttemptOutcome::Failure(FailureKind::Timeout),
            Effect::Unknown,
        );
        let attempts = vec![
            status(503, Effect::Unknown),
            timeout,
            status(200, Effect::Happened),
        ];
        assert_eq!(
            report(attempts, Duration::from_millis(4210)).to_string(),
            "3 attempts in 4.2 s: 503, timeout, 200"
        );
        let one = report(
            vec![status(200, Effect::Happened)],
            Duration::from_millis(12),
        );
        assert_eq!(one.to_string(), "1 attempt in 12 ms: 200");
    }

    #[test]
    fn the_effect_of_a_call_is_that_of_its_attempts() {
        use Effect::{DidNotHappen, Happened, Unknown};

        for (effects, expected) in [
            (vec![Happened], Happened),
            (vec![Unknown, Happened], Happened),
            // The body of the first response broke, and the second attempt failed.
            (vec![Happened, Unknown], Happened),
            (vec![DidNotHappen, DidNotHappen], DidNotHappen),
            (vec![Unknown, DidNotHappen], Unknown),
            (vec![DidNotHappen, Unknown], Unknown),
        ] {
            let attempts = effects.iter().map(|effect| status(500, *effect));
            let report = report(attempts.collect(), Duration::ZERO);
            assert_eq!(report.effect(), expected, "{effects:?}");
        }
    }

    #[test]
    fn an_inner_retry_keeps_what_it_knows_of_its_effect() {
        use Effect::{DidNotHappen, Happened, Unknown};

        let reset = || AttemptOutcome::Failure(FailureKind::Reset);
        for (inner, outer, expected) in [
            // The same result: the inner retry knows more about it.
            (
                attempt(reset(), Happened),
                attempt(reset(), Unknown),
                Happened,
            ),
            (status(409, Unknown), status(409, DidNotHappen), Unknown),
            // Another result.
            (status(404, DidNotHappen), status(200, Happened), Unknown),
            (
                status(404, DidNotHappen),
                status(400, DidNotHappen),
                DidNotHappen,
            ),
        ] {
            let mut merged = outer;
            merged.replace_with_inner(report(vec![inner], Duration::ZERO));
            assert_eq!(merged.effect, expected, "{merged:?}");
        }
    }
}
