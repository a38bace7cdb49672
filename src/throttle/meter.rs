//! The rate at which a server accepts requests.

use std::time::Duration;

use crate::clock::Time;
use crate::two_windows::{Advance, TwoWindows};

const SPAN: Duration = Duration::from_secs(1);

/// Requests per second, over the last one to two seconds.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Begin with the first request. After a restart, the first second counts as the previous window, so
    /// `start` lies up to a second ahead.
    windows: Option<TwoWindows>,
}

impl Meter {
    /// Counts a request.
    pub(super) fn count(&mut self, now: Time) {
        let windows = self.advance(now);
        if now < windows.start() {
            windows.previous += 1;
        } else {
            windows.current += 1;
        }
    }

    /// Requests per second; `None` if there was at most one.
    pub(super) fn rate(&mut self, now: Time) -> Option<f64> {
        let windows = self.advance(now);
        let count = windows.sum();
        let began = windows.start().saturating_sub(SPAN);
        let passed = now.saturating_sub(began).as_secs_f64();
        (count > 1 && passed > 0.0).then(|| f64::from(count) / passed)
    }

    /// Returns how many requests it has counted in the last one to two seconds.
    pub(super) fn sum(&mut self, now: Time) -> u32 {
        self.advance(now).sum()
    }

    /// Moves the windows on. The first call, when the first request is sent, starts the measurement.
    pub(super) fn advance(&mut self, now: Time) -> &mut TwoWindows {
        let windows = (self.windows).get_or_insert_with(|| TwoWindows::new(SPAN, now + SPAN));
        if windows.advance(now) == Advance::Restarted {
            windows.start_at(now + SPAN);
        }
        windows
    }
}
