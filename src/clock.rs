//! The one place that reads clocks, so that everything else can be tested with a given time.

use std::future::poll_fn;
use std::panic::catch_unwind;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, sleep_until};

/// Long enough to be never, and short enough that no clock overflows.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Time since an origin that the counting object chooses, usually its creation.
pub(crate) type Time = Duration;

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

/// A timer that is made only when it turns out that somebody has to wait.
#[derive(Default)]
pub(crate) struct Alarm(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Alarm {
    /// Whether it is `end` yet, which is the same every time until it is.
    pub(crate) fn poll(&mut self, end: Instant, context: &mut Context<'_>) -> Poll<()> {
        // It counts against nobody's turn, or what is always busy would never run out of time.
        let sleep = || Box::pin(unconstrained(sleep_until(end))) as _;
        let rings = self.0.get_or_insert_with(sleep).as_mut().poll(context);
        if rings.is_ready() {
            self.0 = None;
        }
        rings
    }
}

/// What comes of a future, if that comes before `end`.
pub(crate) async fn within<F: Future>(end: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut alarm = Alarm::default();
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => alarm.poll(end, context).map(|()| None),
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
