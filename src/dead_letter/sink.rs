//! Delivers letters to a sink, within a time limit.
//!
//! A delivery runs in a spawned task, the only one of a call. So a dropped call does not lose its letter.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};

use super::{DeadLetter, Secrets};
use crate::clock;
use crate::decide::chain;
use crate::outcome::DeadLetterOutcome;

/// The call stops waiting this long after the limit. A delivery normally ends at the limit; only one that blocks
/// its thread does not.
const GRACE: Duration = Duration::from_millis(50);
/// The least time that a call waits for its letter, even if its deadline has passed. Most calls with a deadline
/// give up because of the deadline, and their letters should be delivered when they return.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// The error of a sink. Its text goes to the log, so it should contain no private data.
pub type SinkError = Box<dyn Error + Send + Sync>;

/// The future that a [`DeadLetterSink`] returns.
pub type Delivery<'a> = Pin<Box<dyn Future<Output = Result<(), SinkError>> + Send + 'a>>;

/// Stores dead letters of calls that gave up, so that they can be sent later.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use reqwest_steady::dead_letter::{DeadLetter, DeadLetterSink, Delivery};
///
/// #[derive(Default)]
/// struct Outbox(Mutex<Vec<Arc<DeadLetter>>>);
///
/// impl DeadLetterSink for Outbox {
///     fn deliver(&self, letter: Arc<DeadLetter>) -> Delivery<'_> {
///         Box::pin(async move {
///             println!("{letter}"); // POST api.example.com/orders, given up after 6 attempts …
///             self.0.lock().map_err(|_| "the outbox is broken")?.push(letter);
///             Ok(())
///         })
///     }
/// }
///
/// let sink: Arc<dyn DeadLetterSink> = Arc::new(Outbox::default());
/// ```
///
/// A call waits for the delivery of its letter, up to a time limit. A sink that fails, hangs or panics is reported to
/// observers and the log. It never changes the result of the call.
///
/// Each delivery runs in its own task, so that a dropped call does not lose its letter. A sink that blocks should use
/// `tokio::task::spawn_blocking`; otherwise calls wait longer than the limit. A sink that sends letters over HTTP
/// should use a client without a sink.
pub trait DeadLetterSink: Send + Sync + 'static {
    /// Stores a letter. `Ok` means that the letter is safe.
    fn deliver(&self, letter: Arc<DeadLetter>) -> Delivery<'_>;
}

impl<S: DeadLetterSink + ?Sized> DeadLetterSink for Arc<S> {
    fn deliver(&self, letter: Arc<DeadLetter>) -> Delivery<'_> {
        S::deliver(self, letter)
    }
}

/// The settings of dead letters.
#[derive(Clone)]
pub(crate) struct DeadLetters {
    /// Without a sink there are no letters.
    pub(crate) sink: Option<Arc<dyn DeadLetterSink>>,
    pub(crate) secrets: Secrets,
    /// The most bytes of a body in a letter.
    pub(crate) max_body: usize,
    /// The longest time of a delivery.
    pub(crate) timeout: Duration,
}

impl Default for DeadLetters {
    fn default() -> Self {
        Self {
            sink: None,
            secrets: Secrets::default(),
            max_body: 1024 * 1024,
            timeout: Duration::from_secs(5),
        }
    }
}

impl DeadLetters {
    /// Starts the delivery of a letter, and returns a future that waits for it until `latest`.
    ///
    /// The delivery starts before the first poll. It continues after `latest`, and if the future is dropped.
    /// `report` is called exactly once, with the outcome and the text of the sink's error. Returns `None` without a
    /// sink.
    pub(crate) fn deliver<F>(
        &self,
        letter: DeadLetter,
        latest: Option<Instant>,
        report: F,
    ) -> Option<impl Future<Output = ()> + Send + use<F>>
    where
        F: FnOnce(DeadLetterOutcome, Option<String>) + Send + 'static,
    {
        let (sink, limit) = (self.sink.clone()?, self.timeout);
        let now = clock::now();
        let give_up = clock::after(now, limit.saturating_add(GRACE));
        let latest = latest.map_or(give_up, |latest| latest.max(now + MIN_WAIT).min(give_up));
        let report = ReportOnce(Some(report));
        let task = Handle::try_current().ok().map(|runtime| {
            runtime.spawn(async move {
                let result = catch_panic(hand_over(sink, letter, limit)).await;
                report.call(result);
            })
        });
        Some(async move {
            if let Some(task) = task {
                // The call ends in the same way, whatever the result.
                let _ = timeout_at(latest, task).await;
            }
        })
    }
}

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters")
            .field("secrets", &self.secrets)
            .field("max_body", &self.max_body)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Calls `report` once. If the task is dropped, because the runtime ends or is missing, it reports a failure.
struct ReportOnce<F: FnOnce(DeadLetterOutcome, Option<String>)>(Option<F>);

impl<F: FnOnce(DeadLetterOutcome, Option<String>)> ReportOnce<F> {
    fn call(mut self, (outcome, text): DeliveryResult) {
        if let Some(report) = self.0.take() {
            report(outcome, text);
        }
    }
}

impl<F: FnOnce(DeadLetterOutcome, Option<String>)> Drop for ReportOnce<F> {
    fn drop(&mut self) {
        if let Some(report) = self.0.take() {
            let text = "there is no tokio runtime to deliver it on, or no longer";
            report(DeadLetterOutcome::Failed, Some(text.to_owned()));
        }
    }
}

/// Returns the text of a sink's error. Errors of reqwest are replaced, because their text contains the whole URL.
fn error_text(error: &SinkError) -> String {
    let is_request_error = chain(&**error)
        .any(|error| error.is::<reqwest::Error>() || error.is::<reqwest_middleware::Error>());
    if is_request_error {
        "a request of the sink's own failed".to_owned()
    } else {
        error.to_string()
    }
}

/// The outcome of a delivery, and the text of the sink's error.
type DeliveryResult = (DeadLetterOutcome, Option<String>);

async fn hand_over(
    sink: Arc<dyn DeadLetterSink>,
    letter: DeadLetter,
    limit: Duration,
) -> DeliveryResult {
    match timeout(limit, async { sink.deliver(Arc::new(letter)).await }).await {
        Ok(Ok(())) => (DeadLetterOutcome::Delivered, None),
        Ok(Err(error)) => (DeadLetterOutcome::Failed, Some(error_text(&error))),
        Err(_) => (DeadLetterOutcome::TimedOut, None),
    }
}

/// Runs the sink's code and catches its panics.
///
/// A sink can also panic in the drop of its future and in the text of its error, so `hand_over` runs inside.
async fn catch_panic(delivery: impl Future<Output = DeliveryResult>) -> DeliveryResult {
    let mut delivery = Box::pin(delivery);
    poll_fn(|context| {
        let poll = catch_unwind(AssertUnwindSafe(|| delivery.as_mut().poll(context)));
        poll.unwrap_or(Poll::Ready((DeadLetterOutcome::Panicked, None)))
    })
    .await
}

#[cfg(test)]
#[path = "sink_tests.rs"]
mod tests;
