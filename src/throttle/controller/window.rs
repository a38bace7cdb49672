//! The congestion window: how many requests may be in flight at once.
//!
//! It opens by slow start while it limits the traffic, and halves when the server gets slow.

use std::time::Duration;

use super::SendRecord;
use super::latency::LatencyRounds;
use crate::clock::Time;

/// The size before anything is known about the server.
pub(super) const INITIAL_SIZE: f64 = 16.0;
/// The window never shrinks below this size.
const MIN_SIZE: f64 = 4.0;
/// Growth per success below `ssthresh`.
const SLOW_START_STEP: f64 = 1.25;
/// The smallest growth per success above `ssthresh`.
const MIN_AVOIDANCE_STEP: f64 = 0.02;

#[derive(Debug)]
pub(super) struct CongestionWindow {
    /// Between 1 and `max`.
    pub(super) size: f64,
    /// Slow start below this size, congestion avoidance from there on.
    ssthresh: f64,
    max: f64,
    /// Only the window has held a call back, and since then at least half of it was in use.
    pub(super) is_limiting: bool,
    /// The last request that was sent before the window halved. Responses up to here halve it no more.
    recovery_point: u64,
    latency: LatencyRounds,
}

impl Default for CongestionWindow {
    fn default() -> Self {
        Self::new(u32::MAX)
    }
}

impl CongestionWindow {
    pub(super) fn new(max: u32) -> Self {
        let max = f64::from(max);
        Self {
            size: INITIAL_SIZE.min(max),
            ssthresh: max,
            max,
            is_limiting: false,
            recovery_point: 0,
            latency: LatencyRounds::default(),
        }
    }

    /// Limits the size anew.
    pub(super) fn set_max(&mut self, max: u32) {
        let max = f64::from(max);
        if self.ssthresh >= self.max {
            // Never halved: slow start may go on up to the new limit.
            self.ssthresh = max;
        }
        if self.size >= self.max {
            // Only the old limit kept it so small.
            self.size = self.size.max(INITIAL_SIZE);
        }
        self.max = max;
        self.ssthresh = self.ssthresh.min(max);
        self.size = self.size.min(max);
    }

    /// Returns whether the window has no room, and notes that it limits the traffic then.
    pub(super) fn is_full(&mut self, in_flight: u32) -> bool {
        let is_full = f64::from(in_flight) + 1.0 > self.size;
        self.is_limiting |= is_full;
        is_full
    }

    /// Notes that another limit than the window holds calls back.
    pub(super) fn not_limiting(&mut self) {
        self.is_limiting = false;
    }

    /// Notes that nothing is queued: a window that is less than half used does not limit.
    pub(super) fn on_empty_queue(&mut self, in_flight: u32) {
        if f64::from(in_flight) < self.size / 2.0 {
            self.is_limiting = false;
        }
    }

    /// Grows with each success while it limits, and halves after a round of slow responses.
    pub(super) fn on_success(
        &mut self,
        now: Time,
        record: SendRecord,
        last_sent: u64,
        latency: Duration,
    ) {
        if self.is_limiting && !self.latency.is_slow(latency) {
            self.grow();
        }
        let was_slow_round = (self.latency).add(now, record.number, last_sent, latency);
        if was_slow_round && self.is_limiting {
            self.halve(record, last_sent);
            self.ssthresh = self.size;
        }
    }

    fn grow(&mut self) {
        let step = if self.size < self.ssthresh {
            SLOW_START_STEP
        } else {
            (1.0 / self.size).max(MIN_AVOIDANCE_STEP)
        };
        self.size = (self.size + step).min(self.max);
    }

    /// Halves the window, once for all requests that were in flight together.
    pub(super) fn halve(&mut self, record: SendRecord, last_sent: u64) {
        if record.number > self.recovery_point {
            self.recovery_point = last_sent;
            self.size = (self.size / 2.0).max(MIN_SIZE).min(self.max);
        }
    }

    /// Lets the window grow by slow start again, from its present size.
    pub(super) fn resume_slow_start(&mut self) {
        self.ssthresh = self.max;
    }

    /// Begins slow start from the initial size, or from the present size if that is smaller.
    pub(super) fn restart(&mut self) {
        self.size = self.size.min(INITIAL_SIZE);
        self.resume_slow_start();
    }
}
