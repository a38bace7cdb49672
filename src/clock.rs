//! The one place that reads clocks, so that everything else can be tested with a given time.

use std::future::poll_fn;
use std::panic::catch_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, sleep_until};

/// Long enough to be never, and short enough that no clock overflows.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Now, on tokio's clock: monotonic, and under control of `tokio::time::pause` in tests.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The wall clock, for dates that a server sent without saying what time it has.
#[allow(clippy::disallowed_methods)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// `start + wait`. A server can ask for more seconds than an `Instant` can count.
pub(crate) fn after(start: Instant, wait: Duration) -> Instant {
    start
        .checked_add(wait)
        .unwrap_or_else(|| start + FAR_FUTURE)
}

/// Returns what comes of a future, if that comes before `end`.
pub(crate) async fn within<F: Future>(end: Instant, future: F) -> Option<F::Output> {
    within_moving(|_| end, future).await
}

/// Returns what comes of a future before its end, which may move while the future runs.
///
/// `end` is asked, with the time, when the future first has to wait, and again when the time that it gave is over.
/// Most futures here are done by then, so the timer is made only when it is needed.
pub(crate) async fn within_moving<F: Future>(
    mut end: impl FnMut(Instant) -> Instant,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut timer = None;
    poll_fn(|context| {
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            // Unconstrained, because a future that is always busy would never run out of time.
            let sleep = || Box::pin(unconstrained(sleep_until(end(now()))));
            ready!(timer.get_or_insert_with(sleep).as_mut().poll(context));
            timer = None;
            let now = now();
            if end(now) <= now {
                return Poll::Ready(None);
            }
        }
    })
    .await
}

/// Remembers whether tokio's timers exist. Checks again until they do.
#[derive(Debug, Default)]
pub(crate) struct Timers(AtomicBool);

/// Why nothing can wait here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoTimers {
    NoRuntime,
    /// The runtime was built without them.
    Disabled,
}

impl Timers {
    /// At the first call rather than at the first wait, which may come only in the first outage.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), NoTimers> {
        match self.0.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.probe(),
        }
    }

    #[cold]
    fn probe(&self) -> Result<(), NoTimers> {
        Handle::try_current().map_err(|_| NoTimers::NoRuntime)?;
        // tokio does not say whether it has timers; it panics where one is made.
        catch_unwind(|| drop(sleep(Duration::ZERO))).map_err(|_| NoTimers::Disabled)?;
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_there_at_once_needs_no_time_and_what_is_busy_runs_out_of_it() {
        let end = now() + Duration::from_secs(1);
        assert_eq!(within(end, async { 7 }).await, Some(7));
        let late = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            7
        };
        assert_eq!(within(end, late).await, None);
        assert_eq!(now(), end);
        // This uses up its turn with every poll.
        let busy = async {
            loop {
                tokio::task::consume_budget().await;
            }
        };
        let past: Option<()> = within(now(), busy).await;
        assert_eq!(past, None);
    }

    #[test]
    fn a_wait_too_long_to_count_ends_in_the_far_future() {
        let start = now();
        assert_eq!(after(start, Duration::MAX), start + FAR_FUTURE);
        assert_eq!(
            after(start, Duration::from_secs(1)),
            start + Duration::from_secs(1)
        );
    }
}
