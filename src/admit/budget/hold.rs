//! A retry that the budget has paid for and that is not sent yet.

use std::sync::Arc;

use super::fleet_budget::FleetBudget;
use super::state::BudgetState;
use super::window::SlotEnd;

/// Gives the retry back to its budget when dropped, unless it is [spent](BudgetHold::spend).
#[must_use = "the retry is given back when this is dropped"]
pub(crate) struct BudgetHold(pub(super) HoldSource);

/// Where the retry was paid from.
pub(super) enum HoldSource {
    /// The retry costs nothing, or was spent.
    Free,
    /// The worker's own window.
    Window(Arc<BudgetState>, SlotEnd),
    /// What all workers of a fleet have.
    Fleet(Arc<FleetBudget>),
}

impl BudgetHold {
    /// For a retry that costs nothing.
    pub(crate) fn free() -> Self {
        Self(HoldSource::Free)
    }

    /// Keeps what was paid, because the retry is sent.
    pub(crate) fn spend(mut self) {
        self.0 = HoldSource::Free;
    }
}

impl Drop for BudgetHold {
    fn drop(&mut self) {
        match &self.0 {
            HoldSource::Free => {}
            HoldSource::Window(state, slot) => state.window.give_back(*slot, state.cost),
            HoldSource::Fleet(fleet) => fleet.retries.put_back(),
        }
    }
}
