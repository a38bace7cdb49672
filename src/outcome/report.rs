//! What a call went through, kept with its answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Response;

use super::{Attempt, AttemptOutcome, StopReason};

/// One attempt of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    pub(crate) outcome: AttemptOutcome,
    pub(crate) sent_at: Duration,
    pub(crate) waited: Duration,
    pub(crate) hint: Option<Duration>,
}

impl AttemptReport {
    /// Adds the time that it waited in a throttle before it was sent.
    pub(crate) fn add_wait(&mut self, queued: Duration) {
        self.sent_at = self.sent_at.saturating_add(queued);
        self.waited = self.waited.saturating_add(queued);
    }

    /// Takes the place of an attempt that was a whole call of another retry inside this one. Returns the earlier
    /// attempts of that call.
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

    /// How it ended.
    pub fn outcome(&self) -> AttemptOutcome {
        self.outcome
    }

    /// When it was sent, counted from the beginning of the call.
    pub fn sent_at(&self) -> Duration {
        self.sent_at
    }

    /// How long the call waited before it, for its turn in a
    /// [`ThrottleMiddleware`](crate::ThrottleMiddleware) as well.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How long the server asked to wait after it, if it did and if a retry was considered.
    pub fn hint(&self) -> Option<Duration> {
        self.hint
    }
}

/// What a call went through: its attempts, its waits, and why it ended.
///
/// Every answer that came through a [`RetryMiddleware`](crate::RetryMiddleware) carries one in its
/// extensions. For calls that end with an error, see [`ReportSlot`]. If a chain has two `RetryMiddleware`s,
/// the report of the outer one contains the attempts of both.
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
/// assert_eq!(report.stop(), StopReason::NotRetryable); // this server knows nothing but 404
/// for attempt in report.attempts() {
///     println!("{:?}: {}", attempt.sent_at(), attempt.outcome());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryReport {
    /// Empty, and so without an allocation, for a call that was not retried.
    pub(crate) earlier: Vec<AttemptReport>,
    pub(crate) last: AttemptReport,
    /// The wait before an attempt that a throttle refused, and that is not among the attempts.
    pub(crate) refused_wait: Duration,
    pub(crate) stop: StopReason,
}

impl RetryReport {
    /// The report that a response carries.
    pub fn of(response: &Response) -> Option<&Self> {
        response.extensions().get()
    }

    /// How many attempts were made after the first.
    pub fn retries(&self) -> u32 {
        u32::try_from(self.earlier.len()).unwrap_or(u32::MAX)
    }

    /// The number of the last attempt.
    pub(crate) fn last_attempt(&self) -> Attempt {
        Attempt::after(self.retries())
    }

    /// How long the call waited in all: before and between its attempts, and for one that a throttle refused.
    pub fn waited(&self) -> Duration {
        self.attempts().fold(self.refused_wait, |sum, attempt| {
            sum.saturating_add(attempt.waited)
        })
    }

    /// Why the call ended.
    pub fn stop(&self) -> StopReason {
        self.stop
    }

    /// The attempts, first to last. There is at least one.
    pub fn attempts(&self) -> impl DoubleEndedIterator<Item = &AttemptReport> {
        self.earlier.iter().chain(std::iter::once(&self.last))
    }
}

/// The report of a call that ended with an error, in the extensions: another retry of the same chain, around this one,
/// has no response to find it on.
#[derive(Clone, Debug)]
pub(crate) struct FailedReport(pub(crate) RetryReport);

/// Keeps the [`RetryReport`] of a call, also when the call ends with an error.
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
/// assert_eq!(slot.get().map(|report| report.stop()), Some(StopReason::NotRetryable));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ReportSlot(Arc<Mutex<Option<RetryReport>>>);

impl ReportSlot {
    /// An empty slot. Its clones share it.
    pub fn new() -> Self {
        Self::default()
    }

    /// The report of the last call, if it has ended. A call that is refused before anything is sent
    /// leaves none.
    pub fn get(&self) -> Option<RetryReport> {
        self.lock().clone()
    }

    pub(crate) fn put(&self, report: RetryReport) {
        *self.lock() = Some(report);
    }

    pub(crate) fn clear(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<RetryReport>> {
        // Nothing panics while it is held, and a report is replaced as a whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
