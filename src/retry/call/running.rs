//! An attempt under way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use reqwest::Response;
use reqwest_middleware::{Error, Result};
use tokio::time::Instant;

use crate::admit::Covered;
use crate::clock::{self, Alarm};
use crate::handoff::Handoff;
use crate::schedule::{CallTime, Limit};

/// An attempt in what its call allows, and for as long as it may take.
pub(crate) struct Running<'a, F> {
    pub(super) answer: Covered<'a, F>,
    pub(super) limited: Option<Limited<'a>>,
}

/// The time of an attempt that has a limit.
pub(crate) struct Limited<'a> {
    time: &'a CallTime<'a>,
    sent_at: &'a Duration,
    /// Of an attempt with a timeout, which stands still in a throttle's queue.
    handoff: Option<&'a Handoff>,
    /// Until there is no time left.
    end: Option<Instant>,
    alarm: Alarm,
}

impl<'a> Limited<'a> {
    /// If there is a limit.
    pub(super) fn new(
        time: &'a CallTime<'a>,
        sent_at: &'a Duration,
        handoff: Option<&'a Handoff>,
    ) -> Option<Self> {
        if !time.limits_attempts() {
            return None;
        }
        let begun = match sent_at.is_zero() {
            true => time.started,
            false => clock::after(time.started, *sent_at),
        };
        let end = time.attempt_end(begun)?;
        Some(Self {
            time,
            sent_at,
            handoff: handoff.filter(|_| time.attempt.is_some()),
            // With no time left, nothing is sent.
            end: Some(end).filter(|end| begun < *end),
            alarm: Alarm::default(),
        })
    }

    /// What the limit is by now: the attempt may have come to a throttle on its way.
    fn by_now(&self, now: Instant) -> Option<Limit> {
        let begun = self.handoff.and_then(|handoff| handoff.clock_start(now));
        self.time.attempt_limit_from(*self.sent_at, begun)
    }

    /// A call inside this one knew only what was left of our time when it began.
    fn name(&self, error: Error) -> Error {
        match self.by_now(clock::now()) {
            Some(limit) => limit.name(error),
            None => error,
        }
    }

    /// Whether there is some time left after all.
    fn extend(&mut self) {
        let now = clock::now();
        if let Some(limit) = self.by_now(now) {
            self.end = Some(limit.end());
        }
        self.end = self.end.filter(|end| now < *end);
    }

    /// Polls an answer for as long as it may take.
    #[inline(never)] // Most calls have no limit, and need not have this in their way.
    fn poll<F: Future<Output = Result<Response>> + Unpin>(
        &mut self,
        answer: &mut Covered<'_, F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        while let Some(end) = self.end {
            if let Poll::Ready(result) = Pin::new(&mut *answer).poll(context) {
                return Poll::Ready(result.map_err(|error| self.name(error)));
            }
            ready!(self.alarm.poll(end, context));
            self.extend();
        }
        let limit = self.by_now(clock::now());
        if let Some(handoff) = self.handoff {
            handoff.time_out();
        }
        match limit {
            Some(limit) => {
                answer.give_up();
                Poll::Ready(Err(limit.error()))
            }
            // There is no limit after all.
            None => Pin::new(answer).poll(context),
        }
    }
}

impl<F: Future<Output = Result<Response>> + Unpin> Future for Running<'_, F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { answer, limited } = self.get_mut();
        match limited {
            None => Pin::new(answer).poll(context),
            Some(limited) => limited.poll(answer, context),
        }
    }
}
