//! What a retry costs, and when that is spent.

use crate::admit::{BudgetHold, ScopeHold};
use crate::handoff::{AttemptTrace, Handoff};

/// The permit for a retry that is not sent yet. Dropping it refunds both parts.
#[must_use = "it is refunded when dropped"]
pub(crate) struct RetryPermit {
    pub(crate) budget: BudgetHold,
    pub(crate) scope: ScopeHold,
}

impl RetryPermit {
    /// Keeps what was paid, because the retry is sent.
    pub(crate) fn spend(self) {
        self.budget.spend();
        self.scope.spend();
    }
}

/// An attempt with a handoff, and the permit for it. Dropping this spends or refunds the permit.
pub(crate) struct HandedOff {
    pub(crate) handoff: Handoff,
    /// `None` for a first attempt, or for a retry that was paid for when it began.
    permit: Option<RetryPermit>,
    is_over: bool,
}

impl HandedOff {
    pub(crate) fn new(handoff: Handoff, permit: Option<RetryPermit>) -> Self {
        Self {
            handoff,
            permit,
            is_over: false,
        }
    }

    /// Ends an attempt that was not dropped, and returns what happened to it. `left` is in the extensions now.
    pub(crate) fn end(mut self, left: Option<&Handoff>) -> AttemptTrace {
        self.is_over = true;
        let trace = self.handoff.end(left);
        self.pay(trace.paid);
        trace
    }

    fn pay(&mut self, is_paid: bool) {
        if let Some(permit) = self.permit.take().filter(|_| is_paid) {
            permit.spend();
        }
    }
}

impl Drop for HandedOff {
    fn drop(&mut self) {
        if !self.is_over {
            let is_paid = self.handoff.close();
            self.pay(is_paid);
        }
    }
}
