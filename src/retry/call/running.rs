//! An attempt under way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use reqwest::Response;
use reqwest_middleware::Result;
use tokio::time::Instant;

use crate::admit::Covered;
use crate::clock::{self, Alarm};
use crate::schedule::{CallTime, Limit};
use crate::throttle::Passage;

/// An attempt in what its call allows, and for as long as it may take.
pub(crate) struct Running<'a, F> {
    pub(super) answer: Covered<'a, F>,
    pub(super) limited: Option<Limited<'a>>,
}

/// The time of an attempt that has a limit.
pub(crate) struct Limited<'a> {
    time: &'a CallTime<'a>,
    passage: Option<&'a Passage>,
    sent_at: Duration,
    end: Instant,
    in_time: bool,
    alarm: Alarm,
}

impl<'a> Limited<'a> {
    /// If there is a limit.
    pub(super) fn new(
        time: &'a CallTime<'a>,
        sent_at: Duration,
        passage: Option<&'a Passage>,
    ) -> Option<Self> {
        let end = time.attempt_limit(sent_at)?.end();
        Some(Self {
            time,
            passage,
            sent_at,
            end,
            // With no time left, nothing is sent.
            in_time: clock::now() < end,
            alarm: Alarm::default(),
        })
    }

    /// What the limit is by now: the attempt may have come to a throttle on its way.
    fn by_now(&self, now: Instant) -> Option<Limit> {
        let passage = self.passage.filter(|_| self.time.limits.attempt.is_some());
        self.time.attempt_limit_by(now, self.sent_at, passage)
    }

    /// Whether there is some time left after all.
    fn extend(&mut self) -> bool {
        let now = clock::now();
        if let Some(limit) = self.by_now(now) {
            self.end = limit.end();
        }
        now < self.end
    }
}

impl<F: Future<Output = Result<Response>> + Unpin> Future for Running<'_, F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { answer, limited } = self.get_mut();
        let Some(limited) = limited else {
            return Pin::new(answer).poll(context);
        };
        while limited.in_time {
            if let Poll::Ready(result) = Pin::new(&mut *answer).poll(context) {
                return Poll::Ready(result);
            }
            ready!(limited.alarm.poll(limited.end, context));
            limited.in_time = limited.extend();
        }
        let limit = limited.by_now(clock::now());
        if let (Some(passage), true) = (limited.passage, limited.time.limits.attempt.is_some()) {
            passage.time_out();
        }
        match limit {
            Some(limit) => Poll::Ready(Err(limit.error())),
            // There is no limit after all.
            None => Pin::new(answer).poll(context),
        }
    }
}
