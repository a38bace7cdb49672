//! The report of a call: its attempts, its waits and why it ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Response;

use super::{AttemptOutcome, StopReason};
use crate::lock::lock;

/// Describes one attempt of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    pub(crate) outcome: AttemptOutcome,
    pub(crate) sent_at: Duration,
    pub(crate) waited: Duration,
    pub(crate) hint: Option<Duration>,
}

impl AttemptReport {
    /// Adds the time that the attempt waited in a throttle before it was sent.
    pub(crate) fn add_wait(&mut self, queued: Duration) {
        self.sent_at = self.sent_at.saturating_add(queued);
        self.waited = self.waited.saturating_add(queued);
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
/// end with an error, use a [`ReportSlot`]. If a chain has two `RetryMiddleware`s, the report of the outer one
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
/// for attempt in report.attempts() {
///     println!("{:?}: {}", attempt.sent_at(), attempt.outcome());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryReport {
    /// All attempts but the last. Empty for a call without retries, which saves an allocation.
    pub(crate) earlier: Vec<AttemptReport>,
    pub(crate) last: AttemptReport,
    /// The wait before an attempt that a throttle refused. The attempts do not include that one.
    pub(crate) refused_wait: Duration,
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
    /// This is the time before and between its attempts, and before an attempt that a throttle refused.
    pub fn waited(&self) -> Duration {
        self.attempts().fold(self.refused_wait, |sum, attempt| {
            sum.saturating_add(attempt.waited)
        })
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

/// The report of a call that ended with an error, in the extensions.
///
/// An outer retry of the same chain reads it, because there is no response that could carry it.
#[derive(Clone, Debug)]
pub(crate) struct FailedReport(pub(crate) RetryReport);

/// Holds the [`RetryReport`] of a call, even if the call fails.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::{ReportSlot, RequestBuilderExt, RetryMiddleware, StopReason};
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::default())
///     .build();
/// let slot = ReportSlot::new();
/// let result = client.get("ftp://example.com/").report_to(&slot).send().await;
///
/// assert!(result.is_err());
/// assert_eq!(slot.get().map(|report| report.stop_reason()), Some(StopReason::NotRetryable));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ReportSlot(Arc<Mutex<Option<RetryReport>>>);

impl ReportSlot {
    /// Creates an empty slot. Its clones share one report.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the report of the last call.
    ///
    /// `None` if that call has not ended, or failed before anything was sent.
    pub fn get(&self) -> Option<RetryReport> {
        lock(&self.0).clone()
    }

    pub(crate) fn put(&self, report: RetryReport) {
        *lock(&self.0) = Some(report);
    }

    pub(crate) fn clear(&self) {
        *lock(&self.0) = None;
    }
}
