//! The one place that reads clocks, so that everything else can be tested with a given time.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

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

#[cfg(test)]
mod tests {
    use super::*;

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
