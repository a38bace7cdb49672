//! The quota that a server announces in its headers: how many requests are left until a reset.

use std::time::Duration;

use super::super::signal::Quota;
use super::{MAX_PAUSE, SendRecord};
use crate::clock::Time;

/// Shorter resets are ignored: a `Date` rounded down and a reset rounded up make 2 s of almost nothing.
const MIN_RESET: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct QuotaTracker {
    current: Option<Remaining>,
    /// The request that finds out the quota after a reset.
    first_after_reset: Option<u64>,
    /// The quota was spent right after its reset, so it does not count our requests.
    is_ignored: bool,
}

/// What is left of the announced quota.
#[derive(Debug)]
struct Remaining {
    /// Counts our requests down since the response that announced the quota.
    left: u64,
    /// The server itself announced that nothing is left.
    is_spent: bool,
    reset: Time,
    /// The request whose response announced the quota. Responses to older requests do not replace it.
    source: u64,
}

impl QuotaTracker {
    /// Returns the reset of a quota that is spent, as the server says.
    pub(super) fn spent_until(&self) -> Option<Time> {
        let spent = self.current.as_ref().filter(|quota| quota.is_spent);
        spent.map(|quota| quota.reset)
    }

    /// Returns the reset of a quota that is used up by our own count.
    ///
    /// Responses in flight may still announce more.
    pub(super) fn used_up_until(&self) -> Option<Time> {
        let used_up = self.current.as_ref().filter(|quota| quota.left == 0);
        used_up.map(|quota| quota.reset)
    }

    /// Forgets a quota after its reset. Returns whether it was used up, so that a probe has to find
    /// out the new quota; `next` is the number of that probe.
    pub(super) fn renew(&mut self, now: Time, next: u64) -> bool {
        let over = self.current.take_if(|quota| quota.reset <= now);
        let needs_probe = over.is_some_and(|quota| quota.left == 0);
        if needs_probe {
            self.first_after_reset = Some(next);
        }
        needs_probe
    }

    pub(super) fn send(&mut self) {
        if let Some(quota) = &mut self.current {
            quota.left = quota.left.saturating_sub(1);
        }
    }

    pub(super) fn undo_send(&mut self) {
        if let Some(quota) = &mut self.current {
            quota.left = quota.left.saturating_add(1);
        }
    }

    /// Learns from the headers of a response, less what was sent since that request.
    pub(super) fn learn(
        &mut self,
        now: Time,
        record: SendRecord,
        last_sent: u64,
        quota: Quota,
        round_trip: Duration,
    ) {
        if self.first_after_reset == Some(record.number) {
            self.is_ignored = quota.left == 0;
        }
        let source = self.current.as_ref().map_or(0, |quota| quota.source);
        let is_far = quota.reset >= MIN_RESET.max(round_trip * 4);
        if is_far && record.number >= source && !self.is_ignored {
            let sent_since = last_sent - record.number;
            self.current = Some(Remaining {
                left: quota.left.saturating_sub(sent_since),
                is_spent: quota.left == 0,
                reset: now + quota.reset.min(MAX_PAUSE),
                source: record.number,
            });
        }
    }
}
