//! What a retry costs, and when that is spent.

use crate::admit::{BudgetHold, ScopeHold};
use crate::handoff::Handoff;

/// The permit for a retry that is not sent yet. Dropping it gives everything back.
#[must_use = "it is given back when dropped"]
pub(crate) struct RetryPermit {
    pub(crate) withdrawal: BudgetHold,
    pub(crate) hold: ScopeHold,
}

impl RetryPermit {
    /// Keeps what was paid, because the retry is sent.
    pub(crate) fn spend(self) {
        self.withdrawal.spend();
        self.hold.spend();
    }
}

/// An attempt with a handoff, and the permit for it. Dropping this spends the permit or gives it back.
pub(crate) struct HandedOff {
    pub(crate) handoff: Handoff,
    /// `None` for a first attempt, or for a retry that was paid for when it began.
    permit: Option<RetryPermit>,
}

impl HandedOff {
    pub(crate) fn new(handoff: Handoff, permit: Option<RetryPermit>) -> Self {
        Self { handoff, permit }
    }

    /// Ends an attempt that was not dropped.
    pub(crate) fn end(self) {
        self.handoff.end();
    }
}

impl Drop for HandedOff {
    fn drop(&mut self) {
        let is_paid = self.handoff.close();
        if let Some(permit) = self.permit.take().filter(|_| is_paid) {
            permit.spend();
        }
    }
}
