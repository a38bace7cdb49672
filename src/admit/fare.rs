//! What was paid for a retry.

use super::{Draw, Withdrawal};

/// What a retry costs that has not been sent yet. Unless it is, it is given back when dropped.
#[must_use = "it is given back when dropped"]
pub(crate) struct Fare {
    pub(crate) withdrawal: Withdrawal,
    pub(crate) draw: Draw,
}

impl Fare {
    /// The retry is sent.
    pub(crate) fn spend(self) {
        self.withdrawal.spend();
        self.draw.spend();
    }
}
