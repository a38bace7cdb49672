//! Reads clocks and keeps time limits.
//!
//! No other module reads a clock, so every rule can be tested with a given time.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::{Duration, SystemTime};

use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

/// Stands for "never": short enough that no clock overflows.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Timers of tokio fire on whole milliseconds, and never early.
pub(crate) const TIMER_TICK: Duration = Duration::from_millis(1);

/// Time since an origin that the counting object chooses, usually its creation.
pub(crate) type Time = Duration;

/// Returns the current time of tokio's monotonic clock, which tests can pause.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the wall-clock time, for dates from a server that sends no `Date` header.
#[allow(clippy::disallowed_methods)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Adds `wait` to `start` without overflow: a server can ask for more seconds than an `Instant` can count.
pub(crate) fn after(start: Instant, wait: Duration) -> Instant {
    start
        .checked_add(wait)
        .unwrap_or_else(|| start + FAR_FUTURE)
}

/// Rounds a duration for people: `0.3 ms`, `380 ms`, `1.2 s`, `10 s`, `2.5 min`.
pub(crate) fn rounded(duration: Duration) -> String {
    let (value, unit) = match duration.as_secs_f64() {
        seconds @ ..0.001 => (format!("{:.1}", seconds * 1000.0), "ms"),
        ..1.0 => (duration.as_millis().to_string(), "ms"),
        seconds @ ..60.0 => (format!("{seconds:.1}"), "s"),
        seconds => (format!("{:.1}", seconds / 60.0), "min"),
    };
    let value = value.strip_suffix(".0").unwrap_or(&value);
    format!("{value} {unit}")
}

/// Runs a future until `end`; returns `None` if it takes longer.
pub(crate) async fn within<F: Future>(end: Instant, future: F) -> Option<F::Output> {
    within_moving(|_| end, pin!(future)).await
}

/// Runs a future until its end, which may move while it runs; returns `None` if it takes longer.
///
/// `end` gets the current time. It is asked when the future first has to wait, and again when the time that it gave
/// has passed. The timer is created at the first poll that has to wait.
pub(crate) fn within_moving<F: Future + Unpin>(
    mut end: impl FnMut(Instant) -> Instant,
    mut future: F,
) -> impl Future<Output = Option<F::Output>> {
    let mut timer = None;
    poll_fn(move |context| {
        loop {
            if let Poll::Ready(output) = Pin::new(&mut future).poll(context) {
                return Poll::Ready(Some(output));
            }
            // `unconstrained`: a busy task uses up tokio's budget, and its timer would never fire.
            let sleep = || Box::pin(unconstrained(sleep_until(end(now()))));
            ready!(timer.get_or_insert_with(sleep).as_mut().poll(context));
            timer = None;
            let now = now();
            if end(now) <= now {
                return Poll::Ready(None);
            }
        }
    })
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
    fn durations_are_rounded_for_people() {
        for (micros, text) in [
            (0, "0 ms"),
            (340, "0.3 ms"),
            (12_900, "12 ms"),
            (999_999, "999 ms"),
            (1_000_000, "1 s"),
            (4_210_000, "4.2 s"),
            (60_000_000, "1 min"),
            (150_000_000, "2.5 min"),
        ] {
            assert_eq!(rounded(Duration::from_micros(micros)), text);
        }
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
