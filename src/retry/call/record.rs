//! What a call keeps of its request and its attempts.

use std::time::Duration;

use reqwest::Response;
use reqwest_middleware::Result;

use super::super::permit::RetryPermit;
use crate::outcome::{AttemptReport, RetryReport, StopReason};
use crate::request::RequestSnapshot;
use crate::response::HeldResponse;

/// The request and the earlier attempts of a call, in one box beside the call.
pub(super) struct CallRecord {
    pub(super) request: RequestSnapshot,
    /// The attempts before the running one, if there were any.
    pub(super) history: Option<Box<History>>,
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
    /// The body of the next attempt could not be built, so that attempt did not begin.
    pub(super) is_unbuilt: bool,
    /// The permit of the next attempt, kept here because a throttle may refuse that attempt.
    pub(super) permit: Option<RetryPermit>,
}

impl History {
    /// Adds the earlier attempts to the report. If a throttle refused the last one, the result becomes that of the
    /// attempt before. If the last one did not begin, the report ends with the attempt before.
    pub(super) fn complete(&mut self, report: &mut RetryReport, result: &mut Result<Response>) {
        self.attempts.append(&mut report.earlier);
        report.earlier = std::mem::take(&mut self.attempts);
        if self.is_unbuilt {
            end_with_earlier(report);
        } else if report.stop_reason == StopReason::Throttled {
            if let Some(held) = self.held.take() {
                *result = held.into_result();
                end_with_earlier(report);
            }
        }
    }
}

/// Removes the last attempt from the report, because it was not sent. Its wait is kept.
fn end_with_earlier(report: &mut RetryReport) {
    if let Some(last) = report.earlier.pop() {
        report.refused_wait = report.last.waited;
        report.last = last;
    }
}
