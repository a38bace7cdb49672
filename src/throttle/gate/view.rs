//! What a gate shows of itself at one moment.

use super::super::config::ThrottleConfig;
use super::Gate;
use super::state::{GateState, closed};
use crate::clock::Time;
use crate::lock::lock;
use crate::observe::{BreakerState, GateView};
use crate::outcome::GateLimit;

impl Gate {
    /// Returns the host of all requests of this gate. `None` if a user's function made the key.
    pub(in crate::throttle) fn host(&self) -> Option<&str> {
        self.key.host()
    }

    /// Shows the gate as it is now. This is no use of the gate, and changes nothing.
    pub(in crate::throttle) fn view(&self, config: &ThrottleConfig) -> GateView {
        let key = self.key.is_public().then(|| self.key.text.to_string());
        let now = self.now();
        let state = lock(&self.state);
        let controller = state.controller.as_ref();
        GateView {
            key,
            breaker: state.breaker(now),
            limited_by: (!state.queue.is_empty())
                .then(|| state.limit_now(now))
                .flatten(),
            failures_in_a_row: controller.map(|it| it.failures_in_a_row()),
            pace: controller.and_then(|it| it.rate_now(now)),
            window: controller.map(|it| it.window_now(now)),
            max_in_flight: state.max_in_flight,
            rate: config.rate.map(|rate| rate.per_second),
            has_fleet: config.fleet.is_some(),
            in_flight: state.in_flight,
            queued: state.queue.len(),
            oldest_wait: state.queue.longest_wait(now),
        }
    }
}

impl GateState {
    fn breaker(&self, now: Time) -> BreakerState {
        let Some(controller) = &self.controller else {
            return BreakerState::Passing;
        };
        match closed(now, controller, self.lease.as_deref()) {
            Some(closed) => BreakerState::Paused {
                remaining: closed.until.saturating_sub(now),
                asked_by: closed.asked_by,
            },
            None if controller.will_probe(now) => BreakerState::Probing,
            None => BreakerState::Passing,
        }
    }

    /// Returns the limit that holds the next request back. Like [`admission`](Self::admission), it is `None` if the
    /// request may go now. Of several limits, it returns the one that says most.
    fn limit_now(&self, now: Time) -> Option<GateLimit> {
        if let BreakerState::Paused { .. } = self.breaker(now) {
            return Some(GateLimit::Pause);
        }
        if self.in_flight >= self.max_in_flight {
            return Some(GateLimit::MaxInFlight);
        }
        if self.bucket.as_ref().is_some_and(|it| now < it.next(now, 0)) {
            return Some(GateLimit::Rate);
        }
        if self.lease.as_ref().is_some_and(|it| it.lacks_token(now)) {
            return Some(GateLimit::Fleet);
        }
        let controller = self.controller.as_ref()?;
        controller.limit_now(now, self.in_flight)
    }
}
