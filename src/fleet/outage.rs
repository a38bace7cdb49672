//! How often to ask a store that does not respond.

use std::time::Duration;

use super::Time;

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The store did not respond. The wait before the next ask doubles with each failure.
#[derive(Debug)]
pub(super) struct Outage {
    wait: Duration,
    try_at: Time,
}

impl Outage {
    /// Records one more failed ask.
    pub(super) fn after(before: Option<Self>, now: Time) -> Self {
        let longer = |outage: Self| (outage.wait * 2).min(LONGEST_WAIT);
        let wait = before.map_or(FIRST_WAIT, longer);
        Self {
            wait,
            try_at: now.saturating_add(wait),
        }
    }

    pub(super) fn may_try(&self, now: Time) -> bool {
        now >= self.try_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_less_and_less_often_up_to_every_two_seconds() {
        let mut now = Time::ZERO;
        let mut outage = None;
        let mut waits = Vec::new();
        for _ in 0..6 {
            let next = Outage::after(outage.take(), now);
            assert!(!next.may_try(next.try_at - Duration::from_nanos(1)));
            assert!(next.may_try(next.try_at));
            waits.push((next.try_at - now).as_millis());
            now = next.try_at;
            outage = Some(next);
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 2000, 2000]);
    }
}
