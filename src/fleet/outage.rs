//! Whether the store responds, and how often to ask one that does not.

use std::time::Duration;

use super::Time;

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// After this long, a probe of a lost store no longer keeps others from asking, because it may be dropped.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// On while the store does not respond. Then one ask at a time probes whether it is back.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Doubles with each failure. Zero while the store responds.
    wait: Duration,
    /// When to ask again.
    try_at: Time,
    is_probing: bool,
}

impl Outage {
    pub(super) fn is_on(&self) -> bool {
        !self.wait.is_zero()
    }

    /// Returns whether to ask the store now. During an outage, `true` makes the caller the probe, so it must ask.
    pub(super) fn may_ask(&mut self, now: Time) -> bool {
        if !self.is_on() {
            return true;
        }
        let is_due = now >= self.try_at;
        if is_due {
            self.try_at = now.saturating_add(PROBE_LIMIT);
            self.is_probing = true;
        }
        is_due
    }

    /// Records a failed ask. Asks that fail together are one failure.
    pub(super) fn fail(&mut self, now: Time) {
        if !self.is_on() || self.is_probing {
            self.wait = (self.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
            self.try_at = now.saturating_add(self.wait);
            self.is_probing = false;
        }
    }

    /// The store has responded.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_less_and_less_often_up_to_every_two_seconds() {
        let mut now = Time::ZERO;
        let mut outage = Outage::default();
        assert!(outage.may_ask(now));
        let mut waits = Vec::new();
        for _ in 0..6 {
            outage.fail(now);
            // Another ask that was under way is not another failure.
            outage.fail(now);
            let try_at = outage.try_at;
            assert!(!outage.may_ask(try_at - Duration::from_nanos(1)));
            assert!(outage.may_ask(try_at));
            // While the probe is under way.
            assert!(!outage.may_ask(try_at));
            waits.push((try_at - now).as_millis());
            now = try_at;
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 2000, 2000]);
        outage.end();
        assert!(outage.may_ask(now) && outage.may_ask(now));
    }
}
