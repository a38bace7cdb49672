//! What a controller would decide now, without changing anything.

use super::window::INITIAL_SIZE;
use super::{Controller, PACE_MEMORY, SILENCE};
use crate::clock::Time;
use crate::outcome::GateLimit;

impl Controller {
    /// Returns the limit that holds the next request back. Like [`admission`](Self::admission), it is `None` if the
    /// request may go now.
    pub(crate) fn limit_now(&self, now: Time, in_flight: u32) -> Option<GateLimit> {
        if now < self.closed_until(now) {
            // Without a source, it is the interval of a pace that was cut.
            let is_pause = self.closed_by(now).is_some();
            return Some(if is_pause {
                GateLimit::Pause
            } else {
                GateLimit::Pace
            });
        }
        if let Some(half_open) = &self.half_open {
            return half_open.probe_expires().map(|_| GateLimit::Probe);
        }
        if let Some(reset) = self.quota.used_up_until() {
            // After the reset, the next request is a probe.
            return (now < reset).then_some(GateLimit::Quota);
        }
        let is_full = f64::from(in_flight) + 1.0 > self.window.size;
        if is_full && now < self.silent_from() {
            return Some(GateLimit::Window);
        }
        match &self.pace {
            Some(pace) => (now < pace.next).then_some(GateLimit::Pace),
            // Responses that arrive together may change the window.
            None => (now < self.read_until).then_some(GateLimit::Window),
        }
    }

    /// Whether the next request is a probe: half-open, or after the reset of a quota that was used up.
    pub(crate) fn will_probe(&self, now: Time) -> bool {
        let reset = self.quota.used_up_until();
        self.is_half_open() || reset.is_some_and(|reset| reset <= now)
    }

    /// The rate of the pace for a request that comes now. `None` if there is no pace, or if that request makes the
    /// controller forget it.
    pub(crate) fn rate_now(&self, now: Time) -> Option<f64> {
        self.rate().filter(|_| !self.forgets_pace(now))
    }

    /// How many requests may be in flight, for a request that comes now.
    pub(crate) fn window_now(&self, now: Time) -> u32 {
        let size = self.window.size;
        let size = if self.forgets_pace(now) {
            size.min(INITIAL_SIZE)
        } else {
            size
        };
        // Rounded down, because a part of a request does not go.
        size as u32
    }

    /// How many failures there were since the last success.
    pub(crate) fn failures_in_a_row(&self) -> u32 {
        self.failures.failures_in_a_row()
    }

    /// Whether a request that comes now makes it forget the pace.
    pub(super) fn forgets_pace(&self, now: Time) -> bool {
        let Some(pace) = &self.pace else { return false };
        let is_old = now.saturating_sub(self.recovery.last_refused) > PACE_MEMORY;
        let is_free = || pace.next <= now && !pace.is_in_use(now, SILENCE);
        is_old && self.half_open.is_none() && is_free()
    }

    /// From then on, the requests in flight are silent, unless something is sent or ends before.
    pub(super) fn silent_from(&self) -> Time {
        self.last_event + SILENCE.max(self.round_trip.get() * 2)
    }
}
