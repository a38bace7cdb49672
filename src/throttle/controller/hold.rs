//! Until when the gate is closed, and why.

use std::time::Duration;

use crate::clock::Time;
use crate::observe::PauseSource;

/// Jitter makes a pause longer by at most this much, and by at most a quarter of the hint.
pub(crate) const MAX_PAUSE_JITTER: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Closed until then, because the server asked for it or the controller decided so.
    pub(super) until: Time,
    /// `None` if it is only the interval of a pace that was cut.
    pub(super) source: Option<PauseSource>,
    /// Jitter of the current server pause, from 0 to 1 of the longest. Drawn once per pause.
    jitter: f64,
}

impl Hold {
    /// Closes the gate, unless it is closed for longer.
    pub(super) fn close(&mut self, until: Time, source: Option<PauseSource>) {
        if self.until < until {
            self.until = until;
            self.source = source;
        }
    }

    /// Closes the gate for as long as the server asks, and a little longer by chance: many clients may have the same
    /// hint. `spread` is 1 to 1.25.
    ///
    /// Requests in flight are refused with the same hint. If each drew its own jitter, the longest would count.
    pub(super) fn pause(&mut self, now: Time, hint: Duration, spread: f64) {
        let is_paused = self.source == Some(PauseSource::Server) && now < self.until;
        if !is_paused {
            self.jitter = (spread - 1.0) * 4.0;
        }
        let jitter = (hint / 4).min(MAX_PAUSE_JITTER).mul_f64(self.jitter);
        self.close(now + hint + jitter, Some(PauseSource::Server));
    }
}
