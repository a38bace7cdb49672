//! Where letters go, and how long a call waits for that.

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

use super::DeadLetter;
use crate::clock;
use crate::decide::chain;
use crate::outcome::DeadLetterOutcome;

/// How large a body may be to be kept, unless the user says otherwise.
const MAX_BODY: usize = 1024 * 1024;
/// How long a delivery may take, unless the user says otherwise.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// A delivery ends in time by itself. Only one that blocks its thread does not, and this much later
/// the call goes on without it.
const GRACE: Duration = Duration::from_millis(50);
/// A call waits so long for its letter even if its deadline is over: most calls with a deadline are given
/// up because it is.
const LEAST_WAIT: Duration = Duration::from_millis(100);

/// Why a sink could not take a letter. Its text goes to the log: it should show nothing private.
pub type SinkError = Box<dyn Error + Send + Sync>;

/// The future that a [`DeadLetterSink`] returns.
pub type Delivery<'a> = Pin<Box<dyn Future<Output = Result<(), SinkError>> + Send + 'a>>;

/// Takes what was given up although it might have worked later.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use reqwest_steady::{DeadLetter, DeadLetterSink, Delivery};
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
/// A call waits for its letter's delivery, up to a limit. A sink that fails, hangs or panics is
/// reported, and never changes what the call returns. A delivery runs in a task of its own, so that a call
/// which is dropped meanwhile does not lose its letter. If it has to block, it should do that on a thread
/// for such work (`tokio::task::spawn_blocking`), or else calls wait for it whatever the limit is. A sink
/// that sends letters over HTTP should use a client without a sink.
pub trait DeadLetterSink: Send + Sync + 'static {
    /// Takes a letter. `Ok` means that it is kept.
    fn deliver(&self, letter: Arc<DeadLetter>) -> Delivery<'_>;
}

impl<S: DeadLetterSink + ?Sized> DeadLetterSink for Arc<S> {
    fn deliver(&self, letter: Arc<DeadLetter>) -> Delivery<'_> {
        S::deliver(self, letter)
    }
}

/// A sink, and what it may cost.
#[derive(Clone)]
pub(crate) struct DeadLetters {
    pub(crate) sink: Arc<dyn DeadLetterSink>,
    pub(crate) max_body: usize,
    pub(crate) max_wait: Duration,
}

impl DeadLetters {
    pub(crate) fn new(sink: Arc<dyn DeadLetterSink>) -> Self {
        Self {
            sink,
            max_body: MAX_BODY,
            max_wait: MAX_WAIT,
        }
    }

    /// Hands a letter over, and waits for that until `latest` at most. What is not done by then goes on
    /// without the caller, as it does if this future is dropped. `report` learns how it ended, with the
    /// text of the sink's error; it is called once.
    //
    // Spawned when it is called, and not when it is first polled.
    pub(crate) fn deliver<F>(
        &self,
        letter: DeadLetter,
        latest: Option<Instant>,
        report: F,
    ) -> impl Future<Output = ()> + Send + use<F>
    where
        F: FnOnce(DeadLetterOutcome, Option<String>) + Send + 'static,
    {
        let now = clock::now();
        let given_up = clock::after(now, self.max_wait.saturating_add(GRACE));
        let latest = latest.map_or(given_up, |latest| {
            latest.max(now + LEAST_WAIT).min(given_up)
        });
        let report = Report(Some(report));
        let task = Handle::try_current().ok().map(|runtime| {
            let (sink, limit) = (self.sink.clone(), self.max_wait);
            runtime.spawn(async move {
                let ended = unless_it_panics(hand_over(sink, letter, limit)).await;
                report.tell(ended);
            })
        });
        async move {
            if let Some(task) = task {
                // Whatever comes of it, the call goes on.
                let _ = timeout_at(latest, task).await;
            }
        }
    }
}

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters")
            .field("max_body", &self.max_body)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

/// Who learns how a delivery ended. Dropped with its task, because the runtime ends or there is none, it
/// tells that.
struct Report<F: FnOnce(DeadLetterOutcome, Option<String>)>(Option<F>);

impl<F: FnOnce(DeadLetterOutcome, Option<String>)> Report<F> {
    fn tell(mut self, (outcome, text): Ended) {
        if let Some(report) = self.0.take() {
            report(outcome, text);
        }
    }
}

impl<F: FnOnce(DeadLetterOutcome, Option<String>)> Drop for Report<F> {
    fn drop(&mut self) {
        if let Some(report) = self.0.take() {
            let text = "there is no tokio runtime to deliver it on, or no longer";
            report(DeadLetterOutcome::Failed, Some(text.to_owned()));
        }
    }
}

/// The text of a sink's error. Those of reqwest have a whole URL in theirs.
fn text_of(error: &SinkError) -> String {
    let of_a_request = chain(&**error)
        .any(|error| error.is::<reqwest::Error>() || error.is::<reqwest_middleware::Error>());
    if of_a_request {
        "a request of the sink's own failed".to_owned()
    } else {
        error.to_string()
    }
}

/// How a delivery ended, with the text of the sink's error.
type Ended = (DeadLetterOutcome, Option<String>);

async fn hand_over(sink: Arc<dyn DeadLetterSink>, letter: DeadLetter, limit: Duration) -> Ended {
    match timeout(limit, async { sink.deliver(Arc::new(letter)).await }).await {
        Ok(Ok(())) => (DeadLetterOutcome::Delivered, None),
        Ok(Err(error)) => (DeadLetterOutcome::Failed, Some(text_of(&error))),
        Err(_) => (DeadLetterOutcome::TimedOut, None),
    }
}

/// Around all that is the sink's own: it can also panic when its future is dropped, or in the text of
/// its error.
async fn unless_it_panics(delivery: impl Future<Output = Ended>) -> Ended {
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
