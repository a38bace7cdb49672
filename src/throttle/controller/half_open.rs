//! Half-open: one probe at a time, with longer holds between them, until a probe comes through.

use std::time::Duration;

use crate::clock::Time;

/// The first hold; each one after it in a row is twice as long.
const FIRST_HOLD: Duration = Duration::from_millis(100);
/// Holds double up to this, or up to an eighth of the outage if that is longer.
pub(super) const LONG_HOLD: Duration = Duration::from_secs(2);
const MAX_HOLD: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct HalfOpen {
    since: Time,
    holds: u32,
    /// The probe in flight.
    probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u64,
    /// From then on, the probe counts as failed.
    expires: Time,
}

impl HalfOpen {
    pub(super) fn new(now: Time) -> Self {
        Self {
            since: now,
            holds: 0,
            probe: None,
        }
    }

    /// Returns how long to hold all requests before the next probe.
    pub(super) fn next_hold(&mut self, now: Time) -> Duration {
        let hold = FIRST_HOLD.saturating_mul(1 << self.holds.min(16));
        self.holds = self.holds.saturating_add(1);
        let outage = now.saturating_sub(self.since);
        hold.min(LONG_HOLD.max(outage / 8)).min(MAX_HOLD)
    }

    /// Returns when the response to the probe in flight is due.
    pub(super) fn probe_expires(&self) -> Option<Time> {
        self.probe.map(|probe| probe.expires)
    }

    pub(super) fn start_probe(&mut self, now: Time, number: u64, round_trip: Duration) {
        let patience = (round_trip * 4).clamp(LONG_HOLD, MAX_HOLD);
        self.probe = Some(Probe {
            number,
            expires: now + patience,
        });
    }

    /// Counts the probe as failed, and returns how long to hold before the next one.
    pub(super) fn give_up_probe(&mut self, now: Time) -> Duration {
        self.probe = None;
        self.next_hold(now)
    }

    /// Makes room for the next probe if this request is the one in flight.
    pub(super) fn end_probe(&mut self, number: u64) {
        self.probe = self.probe.filter(|probe| probe.number != number);
    }
}
