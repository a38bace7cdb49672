//! The line of calls at a host that were refused for their rate and that the budget cannot pay for.
//!
//! A 429 says "not now", so its retry waits for its turn instead of failing. Each success at the host releases the
//! first call in line: the server's own acceptances set the pace, as acknowledgements do in TCP. While nothing
//! succeeds, a trickle releases one call at a time, and ever more rarely. A call that the budget can pay for while others
//! wait goes behind them, and what it pays releases the first.
//!
//! A released call holds a [`Release`]. If it drops the release without sending, the next call in line gets it. A call
//! that leaves the line, for whatever reason, leaves nothing there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::budget::BudgetHold;
use crate::clock;
use crate::lock::lock;

/// As many as the queue of a throttle holds by default.
const MAX_WAITING: usize = 10_000;
/// The trickle slows down to one call per this time.
const MAX_TRICKLE: Duration = Duration::from_secs(128);
/// The trickle is never faster.
const MIN_TRICKLE: Duration = Duration::from_millis(20);
/// After this many usual gaps without a success, the released calls were refused, and the trickle begins.
const TRICKLE_GAPS: u32 = 4;
/// The weight of the latest gap between successes. Eight gaps smooth a burst.
const GAP_WEIGHT: f64 = 1.0 / 8.0;
/// A longer gap is no measure of a rate.
const MAX_GAP: Duration = Duration::from_secs(1);

/// The calls that wait at one host, first in, first out.
#[derive(Debug)]
pub(crate) struct RetryLine {
    /// Length of the queue, so that a success at a host without waiters costs one load.
    length: AtomicUsize,
    /// Releases of the trickle since the last success. Each doubles the time to the next one.
    fruitless: AtomicU32,
    state: Mutex<LineState>,
    /// The longest time from a success to the next release without one. `None` for a budget without a reserve.
    trickle: Option<Duration>,
}

#[derive(Debug)]
struct LineState {
    /// The calls that wait, by their tickets. A released call is not among them.
    queue: BTreeMap<u64, Arc<Waiter>>,
    next_ticket: u64,
    /// The usual time between successes.
    gap: Duration,
    last_success: Option<Instant>,
    next_trickle: Instant,
}

/// What a call in line waits on.
#[derive(Debug, Default)]
struct Waiter {
    /// Set when the call leaves the queue because it is released.
    release: Mutex<Option<Release>>,
    /// The call is released, or it is the first in line now and watches the trickle.
    changed: Notify,
}

/// A call in line. Dropping it leaves the line.
struct InLine<'l> {
    line: &'l Arc<RetryLine>,
    ticket: u64,
    waiter: Arc<Waiter>,
}

/// Why a call was not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReleased {
    /// Too many calls wait already.
    LineFull,
    /// Its time was over first.
    TooLate,
}

/// The right to send one retry. Dropped unused, it goes to the next call in line.
#[derive(Debug)]
pub(crate) struct Release {
    line: Option<Arc<RetryLine>>,
    /// The usual time between successes. The call waits up to that long before it is sent, because the room that the
    /// success has used may not be free yet.
    pub(crate) gap: Duration,
    /// What a later call has paid. `None` if a success or the trickle has released the call. Boxed, because a hold may
    /// be a release itself.
    paid: Option<Box<BudgetHold>>,
}

impl Release {
    /// Marks it as used, because the retry is sent. Then dropping it passes nothing on.
    pub(crate) fn use_up(mut self) {
        self.line = None;
        if let Some(paid) = self.paid.take() {
            paid.spend();
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            line.release(self.gap, self.paid.take());
        }
    }
}

impl RetryLine {
    /// Creates an empty line whose trickle releases at most `per_sec` calls per second.
    pub(crate) fn new(per_sec: f64, now: Instant) -> Self {
        let trickle = Duration::try_from_secs_f64(1.0 / per_sec).ok();
        Self {
            length: AtomicUsize::new(0),
            fruitless: AtomicU32::new(0),
            state: Mutex::new(LineState {
                queue: BTreeMap::new(),
                next_ticket: 0,
                gap: Duration::ZERO,
                last_success: None,
                next_trickle: now,
            }),
            trickle,
        }
    }

    /// Returns how many calls wait.
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    /// Releases the first call after a success.
    pub(crate) fn on_success(self: &Arc<Self>, now: Instant) {
        if self.fruitless.load(Ordering::Relaxed) > 0 {
            self.fruitless.store(0, Ordering::Relaxed);
        }
        if self.len() == 0 {
            return;
        }
        let mut state = lock(&self.state);
        if let Some(last) = state.last_success.replace(now) {
            let gap = now.saturating_duration_since(last).min(MAX_GAP);
            let smoothed = state.gap.as_secs_f64();
            let change = (gap.as_secs_f64() - smoothed) * GAP_WEIGHT;
            state.gap = Duration::from_secs_f64((smoothed + change).max(0.0));
        }
        let gap = state.gap;
        state.next_trickle = clock::after(now, self.trickle_after(gap) + gap);
        drop(state);
        self.release(gap, None);
    }

    /// Returns how long the trickle waits for a success before its next release.
    fn trickle_after(&self, gap: Duration) -> Duration {
        let longest = self.trickle.unwrap_or_default();
        let pause = match gap {
            // Nothing is known yet.
            Duration::ZERO => longest,
            gap => (gap * TRICKLE_GAPS).max(MIN_TRICKLE).min(longest),
        };
        let doubled = 2u32.saturating_pow(self.fruitless.load(Ordering::Relaxed));
        pause.saturating_mul(doubled).min(MAX_TRICKLE)
    }

    /// Waits until a success or the trickle releases this call, until `end` at most.
    ///
    /// What was paid for this call goes to the first in line, which may be this call.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        end: Instant,
        paid: Option<BudgetHold>,
    ) -> Result<Release, NotReleased> {
        let place = self.join(clock::now(), paid.is_some());
        let place = place.ok_or(NotReleased::LineFull)?;
        if let Some(paid) = paid {
            // The first has waited for longer than this call, so it is sent at once.
            self.release(Duration::ZERO, Some(Box::new(paid)));
        }
        loop {
            if let Some(release) = place.take_release() {
                return Ok(release);
            }
            let next = match place.next_trickle() {
                Some(next) => end.min(next),
                None => end,
            };
            if clock::within(next, place.waiter.changed.notified())
                .await
                .is_some()
            {
                continue;
            }
            let now = clock::now();
            if now >= end {
                // A release that has come at this very moment is passed on.
                return Err(NotReleased::TooLate);
            }
            self.trickle(now);
        }
    }

    /// Takes the last place. A call that pays finds one in a full line, too, because the first leaves at once.
    fn join(self: &Arc<Self>, now: Instant, pays: bool) -> Option<InLine<'_>> {
        let mut state = lock(&self.state);
        if state.queue.len() >= MAX_WAITING && !pays {
            return None;
        }
        if state.queue.is_empty() {
            // Nothing is known of the time without a line.
            state.last_success = None;
            let pause = self.trickle_after(state.gap);
            state.next_trickle = clock::after(now, pause);
        }
        let (ticket, waiter) = (state.next_ticket, Arc::<Waiter>::default());
        state.next_ticket += 1;
        state.queue.insert(ticket, Arc::clone(&waiter));
        self.length.store(state.queue.len(), Ordering::Relaxed);
        Some(InLine {
            line: self,
            ticket,
            waiter,
        })
    }

    /// Releases one call if nothing was released for a while.
    fn trickle(self: &Arc<Self>, now: Instant) {
        let mut state = lock(&self.state);
        if now < state.next_trickle {
            return;
        }
        self.fruitless.fetch_add(1, Ordering::Relaxed);
        state.next_trickle = clock::after(now, self.trickle_after(state.gap));
        drop(state);
        self.release(Duration::ZERO, None);
    }

    /// Gives a release to the first call in line. If there is none, nothing waits for it, and what was paid goes back.
    fn release(self: &Arc<Self>, gap: Duration, paid: Option<Box<BudgetHold>>) {
        let mut state = lock(&self.state);
        let Some((_, first)) = state.queue.pop_first() else {
            drop(state);
            return;
        };
        self.length.store(state.queue.len(), Ordering::Relaxed);
        // Under the lock, so that a call which leaves now finds either its ticket or its release.
        *lock(&first.release) = Some(Release {
            line: Some(Arc::clone(self)),
            gap,
            paid,
        });
        let next = state.first();
        drop(state);
        first.changed.notify_one();
        if let Some(next) = next {
            next.changed.notify_one();
        }
    }
}

impl LineState {
    fn first(&self) -> Option<Arc<Waiter>> {
        self.queue
            .first_key_value()
            .map(|(_, first)| Arc::clone(first))
    }
}

impl InLine<'_> {
    fn take_release(&self) -> Option<Release> {
        lock(&self.waiter.release).take()
    }

    /// Returns when the trickle releases a call, if this call is to see to it.
    ///
    /// Only the first in line does. If all did, each release would wake thousands.
    fn next_trickle(&self) -> Option<Instant> {
        self.line.trickle?;
        let state = lock(&self.line.state);
        let (first, _) = state.queue.first_key_value()?;
        (*first == self.ticket).then_some(state.next_trickle)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.line.state);
        let left = state.queue.remove(&self.ticket);
        self.line.length.store(state.queue.len(), Ordering::Relaxed);
        let next = state.first();
        drop(state);
        if left.is_none() {
            // It was released. If it has not taken the release, the drop here passes it on.
            drop(self.take_release());
        } else if let Some(next) = next {
            // It may have been the first in line, and now another call watches the trickle.
            next.changed.notify_one();
        }
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
