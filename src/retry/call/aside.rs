//! What most calls do without, in one box beside the call.

use std::time::Duration;

use reqwest::{Request, Response};
use reqwest_middleware::Result;

use super::super::permit::RetryPermit;
use super::watch::Watch;
use crate::admit::BudgetHold;
use crate::decide::RequestTarget;
use crate::outcome::{AttemptReport, RetryReport, StopReason};
use crate::response::HeldResponse;

/// What most calls do without.
#[derive(Default)]
pub(super) struct Aside<'a> {
    /// Where the request goes, if somebody will ask: it is gone when its answer comes.
    pub(super) target: Option<RequestTarget>,
    /// The attempts before the running one.
    pub(super) earlier: Option<Earlier>,
    /// What was paid for the next attempt, or could not be, where that takes longer than a moment.
    pub(super) paid: Option<Option<BudgetHold>>,
    /// For those who want to know what happens.
    pub(super) watch: Option<Watch<'a>>,
}

/// What is known of the attempts before the running one.
#[derive(Default)]
pub(super) struct Earlier {
    pub(super) history: Vec<AttemptReport>,
    pub(super) backoff: Option<Duration>,
    /// How long they waited in a throttle's queue, all together.
    pub(super) queued: Duration,
    /// The part of it that was before this call, in attempts of another retry around it.
    pub(super) queued_outside: Duration,
    /// How many of them were provably not processed.
    pub(super) unprocessed: u32,
    /// One of them ended without a clear answer.
    pub(super) unclear: bool,
    /// What the last of them came to, where a throttle may not let another one through.
    pub(super) kept: Option<HeldResponse>,
    /// What the running attempt costs, until a throttle lets it through.
    pub(super) permit: Option<RetryPermit>,
}

impl Earlier {
    /// Adds what was before to the report; and to the result, if nothing came after it.
    pub(super) fn complete(&mut self, report: &mut RetryReport, result: &mut Result<Response>) {
        self.history.append(&mut report.earlier);
        report.earlier = std::mem::take(&mut self.history);
        if report.stop != StopReason::Throttled {
            return;
        }
        if let Some(kept) = self.kept.take() {
            *result = kept.into_result();
            if let Some(last) = report.earlier.pop() {
                report.refused_wait = report.last.waited;
                report.last = last;
            }
        }
    }
}

impl Aside<'_> {
    #[cold]
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
