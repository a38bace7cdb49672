//! What observers and the log know about a gate, so that each change is reported once and none too often.
//!
//! Pure: time and the state of the gate come in, changes come out. A server that asks for a new pause with every
//! response, or a pace that follows every refusal, must not flood a log.

use std::time::Duration;

use super::super::controller::MAX_PAUSE_JITTER;
use crate::clock::Time;
use crate::observe::{PauseSource, ThrottlePaced, ThrottlePaused};

/// Changes of one kind are reported no more often than this.
const QUIET: Duration = Duration::from_secs(1);
/// A pause that is this many times as long as the last one is reported at once.
const MUCH_LONGER: u32 = 10;
/// A pace that changes by less than this part is not reported.
const MIN_PACE_CHANGE: f64 = 0.1;

#[derive(Debug, Default)]
pub(super) struct Reported {
    /// Until when the gate is closed, as reported. `None` while it is open.
    closed_until: Option<Time>,
    /// When the last pause was reported, and its length.
    last_pause: Option<(Time, Duration)>,
    pace: Option<f64>,
    /// The highest pace since the last report.
    highest_pace: f64,
    last_pace: Time,
    /// When a lower pace was last reported.
    last_cut: Time,
    refusals: u64,
    last_refusal: Option<Time>,
}

/// A gate that is closed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::throttle) struct Closed {
    pub(in crate::throttle) until: Time,
    pub(in crate::throttle) asked_by: PauseSource,
}

/// What a gate reports after a change.
#[derive(Debug, Default, PartialEq)]
pub(super) struct GateChanges {
    pub(super) paused: Option<ThrottlePaused>,
    pub(super) is_released: bool,
    pub(super) paced: Option<ThrottlePaced>,
}

impl Reported {
    /// Returns a pause that is not known yet.
    pub(super) fn pause(&mut self, now: Time, closed: Closed) -> Option<ThrottlePaused> {
        let Closed { until, asked_by } = closed;
        let pause = until.saturating_sub(now);
        // Many responses ask for the same pause, each with its own jitter.
        let known = self.closed_until.filter(|known| now < *known);
        let is_known = known.is_some_and(|known| until <= known + MAX_PAUSE_JITTER);
        let is_too_soon = |(at, length): (Time, Duration)| {
            now < at + QUIET && pause < length.saturating_mul(MUCH_LONGER)
        };
        if is_known || self.last_pause.is_some_and(is_too_soon) {
            return None;
        }
        self.closed_until = Some(until);
        self.last_pause = Some((now, pause));
        Some(ThrottlePaused { pause, asked_by })
    }

    /// Returns whether a reported pause is over. Call it when the gate is open.
    pub(super) fn release(&mut self) -> bool {
        self.closed_until.take().is_some()
    }

    /// Returns a pace that is not known yet. A rise does not hide the cut that follows it.
    pub(super) fn pace(&mut self, now: Time, per_second: Option<f64>) -> Option<ThrottlePaced> {
        let before = match (self.pace, per_second) {
            (None, None) => return None,
            (Some(known), Some(rate)) => {
                let highest = self.highest_pace.max(rate);
                self.highest_pace = highest;
                let is_lower = rate <= (1.0 - MIN_PACE_CHANGE) * highest;
                let is_higher = rate >= (1.0 + MIN_PACE_CHANGE) * known;
                if is_lower && now >= self.last_cut + QUIET {
                    self.last_cut = now;
                    Some(highest)
                } else if !is_lower && is_higher && now >= self.last_pace + QUIET {
                    Some(known)
                } else {
                    return None;
                }
            }
            (known, _) => {
                self.last_cut = now;
                known
            }
        };
        (self.pace, self.last_pace) = (per_second, now);
        self.highest_pace = per_second.unwrap_or_default();
        Some(ThrottlePaced { per_second, before })
    }

    /// Counts a refusal. Returns how many there were, and whether this one is logged.
    pub(super) fn refusal(&mut self, now: Time) -> (u64, bool) {
        self.refusals += 1;
        let is_logged = self.last_refusal.is_none_or(|last| now >= last + QUIET);
        if is_logged {
            self.last_refusal = Some(now);
        }
        (self.refusals, is_logged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn closed(until: u32) -> Closed {
        Closed {
            until: until * MS,
            asked_by: PauseSource::Server,
        }
    }

    #[test]
    fn a_pause_is_reported_once_and_so_is_its_end() {
        let mut reported = Reported::default();
        let first = reported.pause(Time::ZERO, closed(5000)).unwrap();
        assert_eq!(
            (first.pause, first.asked_by),
            (5000 * MS, PauseSource::Server)
        );
        // The same pause, with another jitter.
        assert_eq!(reported.pause(MS, closed(6000)), None);
        assert!(reported.release());
        assert!(!reported.release());
    }

    #[test]
    fn a_server_that_extends_its_pause_cannot_flood_the_log() {
        let mut reported = Reported::default();
        let lines = (0..1000).filter(|response| {
            let until = 10 + response * 1100;
            reported.pause(Time::ZERO, closed(until)).is_some()
        });
        assert_eq!(lines.collect::<Vec<_>>(), [0, 1, 11, 111]);
        // After a second, the whole pause is reported.
        let last = reported.pause(1000 * MS, closed(2_000_000)).unwrap();
        assert_eq!(last.pause, 1_999_000 * MS);
    }

    #[test]
    fn short_pauses_are_reported_once_a_second() {
        let mut reported = Reported::default();
        let mut lines = 0;
        for start in (0..10_000).step_by(20) {
            let pause = reported.pause(start * MS, closed(start + 10));
            lines += u32::from(pause.is_some());
            assert_eq!(reported.release(), pause.is_some());
        }
        assert_eq!(lines, 10);
    }

    #[test]
    fn a_pace_is_reported_if_it_changes_by_a_tenth() {
        let mut reported = Reported::default();
        let mut at = |time: u32, rate| {
            let paced = reported.pace(time * MS, rate);
            paced.map(|it| (it.before, it.per_second))
        };
        assert_eq!(at(0, None), None);
        assert_eq!(at(0, Some(100.0)), Some((None, Some(100.0))));
        assert_eq!(at(5000, Some(91.0)), None);
        assert_eq!(at(5000, Some(85.0)), Some((Some(100.0), Some(85.0))));
        // Too soon, and told later.
        assert_eq!(at(5999, Some(10.0)), None);
        assert_eq!(at(6000, Some(10.0)), Some((Some(85.0), Some(10.0))));
        assert_eq!(at(7000, Some(11.0)), Some((Some(10.0), Some(11.0))));
        // A rise that was not told, and the cut after it.
        assert_eq!(at(7500, Some(40.0)), None);
        assert_eq!(at(7501, Some(34.0)), Some((Some(40.0), Some(34.0))));
        assert_eq!(at(7502, None), Some((Some(34.0), None)));
        assert_eq!(at(7503, None), None);
    }

    #[test]
    fn a_pace_that_alternates_is_reported_twice_a_second() {
        let mut reported = Reported::default();
        let changes = (0..10_000).filter(|time| {
            let rate = if time % 2 == 0 { 10.0 } else { 1000.0 };
            reported.pace(*time * MS, Some(rate)).is_some()
        });
        assert!(changes.count() <= 20);
    }

    #[test]
    fn refusals_are_counted_and_logged_once_a_second() {
        let mut reported = Reported::default();
        let logged = (0..3000).filter_map(|time| {
            let (count, is_logged) = reported.refusal(time * MS);
            is_logged.then_some(count)
        });
        assert_eq!(logged.collect::<Vec<_>>(), [1, 1001, 2001]);
    }
}
