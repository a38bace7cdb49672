//! A place for the report of a call that may fail.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::{Effect, RetryReport};
use crate::lock::lock;

/// Holds the [`RetryReport`] of a call, even if the call fails.
///
/// Use one slot for each call: [`report_to`](crate::RequestBuilderExt::report_to) empties it.
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
#[derive(Clone, Default)]
pub struct ReportSlot(Arc<Mutex<SlotState>>);

#[derive(Default)]
struct SlotState {
    report: Option<RetryReport>,
    /// `None` until a retry has seen the request. It may be sent without one, and then nobody knows.
    effect: Option<Effect>,
    /// Of earlier calls with the same request: a middleware outside the retry may send it twice.
    earlier: Option<Effect>,
}

impl ReportSlot {
    /// Creates an empty slot. Its clones share one report.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the report of the last call.
    ///
    /// `None` if that call has not ended, or failed before its first attempt.
    pub fn get(&self) -> Option<RetryReport> {
        lock(&self.0).report.clone()
    }

    /// Returns whether the request took effect on the server, however its call ended.
    ///
    /// | call | effect |
    /// |---|---|
    /// | ended with a response or an error | that of its [report](RetryReport::effect) |
    /// | refused before its first attempt: invalid key or setting | `DidNotHappen` |
    /// | dropped before its first attempt, during [`launch_spread`](crate::RetryMiddlewareBuilder::launch_spread) | `DidNotHappen` |
    /// | in progress, or dropped later, also in the queue of a throttle | `Unknown` |
    /// | not seen by a [`RetryMiddleware`](crate::RetryMiddleware) | `Unknown` |
    ///
    /// The last row includes requests that cannot be built for another reason than their key. Their error says so:
    /// [`FailureKind::of`](crate::observe::FailureKind::of) returns `Builder`.
    ///
    /// If a middleware outside the retry sends the request twice, this is the effect of both calls together.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use reqwest_steady::testing::{Reply, ScriptedServer};
    /// use reqwest_steady::{Effect, ReportSlot, RequestBuilderExt, RetryMiddleware};
    ///
    /// let server = ScriptedServer::statuses([422]);
    /// let client = server.client(RetryMiddleware::default());
    /// let slot = ReportSlot::new();
    /// client.post("https://api.example.com/charges").report_to(&slot).send().await?;
    /// assert_eq!(slot.effect(), Effect::DidNotHappen);
    /// # Ok(()) }
    /// ```
    pub fn effect(&self) -> Effect {
        lock(&self.0).effect()
    }

    /// Empties the slot for another request.
    pub(crate) fn clear(&self) {
        *lock(&self.0) = SlotState::default();
    }

    /// Notes that a call starts. It has sent nothing yet.
    pub(crate) fn start(&self) {
        let mut state = lock(&self.0);
        state.earlier = state.effect.map(|_| state.effect());
        state.effect = Some(Effect::DidNotHappen);
        state.report = None;
    }

    /// Notes that the first attempt of the call begins.
    pub(crate) fn begin_attempt(&self) {
        lock(&self.0).effect = Some(Effect::Unknown);
    }

    pub(crate) fn put(&self, report: RetryReport) {
        let mut state = lock(&self.0);
        state.effect = Some(report.effect());
        state.report = Some(report);
    }
}

impl fmt::Debug for ReportSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportSlot")
            .field("effect", &self.effect())
            .field("report", &self.get())
            .finish()
    }
}

impl SlotState {
    fn effect(&self) -> Effect {
        let effect = self.effect.unwrap_or(Effect::Unknown);
        self.earlier.map_or(effect, |earlier| earlier.or(effect))
    }
}
