//! What most calls do without, in one box beside the call.

use std::time::Duration;

use reqwest::{Request, Response};
use reqwest_middleware::Result;

use super::super::permit::RetryPermit;
use super::events::CallEvents;
use crate::decide::RequestTarget;
use crate::outcome::{AttemptReport, RetryReport, StopReason};
use crate::response::HeldResponse;

/// What most calls do without.
#[derive(Default)]
pub(super) struct CallExtras<'a> {
    /// Where the request goes, if a classifier will ask: the request is gone when its response comes.
    pub(super) target: Option<RequestTarget>,
    /// The attempts before the running one, if there were any.
    pub(super) history: Option<History>,
    /// For observers, the log and dead letters.
    pub(super) events: Option<CallEvents<'a>>,
}

/// What is known of the attempts before the running one.
#[derive(Default)]
pub(super) struct History {
    pub(super) attempts: Vec<AttemptReport>,
    /// The latest backoff, which the next one may build on.
    pub(super) backoff: Option<Duration>,
    /// How long the attempts waited in throttles' queues, all together.
    pub(super) queued: Duration,
    /// The part of `queued` from before this call: attempts of another retry around it.
    pub(super) queued_outside: Duration,
    /// How many attempts were provably not processed.
    pub(super) unprocessed: u32,
    /// An attempt ended without a clear response.
    pub(super) unclear: bool,
    /// The result of the latest attempt, in case a throttle does not send another one.
    pub(super) held: Option<HeldResponse>,
    /// What the next attempt costs, if a throttle may not send it.
    pub(super) permit: Option<RetryPermit>,
}

impl History {
    /// Adds the earlier attempts to the report. If a throttle refused the last one, the result becomes that of the
    /// attempt before.
    pub(super) fn complete(&mut self, report: &mut RetryReport, result: &mut Result<Response>) {
        self.attempts.append(&mut report.earlier);
        report.earlier = std::mem::take(&mut self.attempts);
        if report.stop != StopReason::Throttled {
            return;
        }
        if let Some(held) = self.held.take() {
            *result = held.into_result();
            if let Some(last) = report.earlier.pop() {
                report.refused_wait = report.last.waited;
                report.last = last;
            }
        }
    }

    /// Returns how long the call waited before its earlier attempts.
    pub(super) fn waited(&self) -> Duration {
        let waits = self.attempts.iter().map(AttemptReport::waited);
        waits.fold(Duration::ZERO, Duration::saturating_add)
    }
}

impl CallExtras<'_> {
    pub(super) fn with_target(request: &Request) -> Box<Self> {
        let target = RequestTarget {
            method: request.method().clone(),
            url: request.url().clone(),
        };
        Box::new(Self {
            target: Some(target),
            ..Self::default()
        })
    }
}
