//! A retry that the budget has paid for and that is not sent yet.

use std::fmt;
use std::sync::Arc;

use super::fleet_budget::FleetBudget;
use super::state::BudgetState;
use super::window::SlotEnd;
use crate::admit::line::Release;

/// Gives the retry back to its budget when dropped, unless it is [spent](BudgetHold::spend).
#[must_use = "the retry is given back when this is dropped"]
pub(crate) struct BudgetHold(pub(super) HoldSource);

/// Where the retry was paid from.
pub(super) enum HoldSource {
    /// The retry costs nothing, or was spent.
    Free,
    /// The worker's own reserve.
    Pool(Arc<BudgetState>),
    /// The worker's own window.
    Window(Arc<BudgetState>, SlotEnd),
    /// What all workers of a fleet have.
    Fleet(Arc<FleetBudget>),
    /// A success at the host, for which the call has waited in line. Dropping it passes it on.
    Line(Release),
}

impl BudgetHold {
    /// For a retry that costs nothing.
    pub(crate) fn free() -> Self {
        Self(HoldSource::Free)
    }

    /// For a retry that waited in line.
    pub(crate) fn released(release: Release) -> Self {
        Self(HoldSource::Line(release))
    }

    /// Whether dropping it gives something back.
    pub(crate) fn is_paid(&self) -> bool {
        !matches!(self.0, HoldSource::Free)
    }

    /// Takes out what was paid, and leaves a retry that costs nothing.
    pub(crate) fn take_paid(&mut self) -> Option<Self> {
        let paid = Self(std::mem::replace(&mut self.0, HoldSource::Free));
        paid.is_paid().then_some(paid)
    }

    /// Keeps what was paid, because the retry is sent.
    pub(crate) fn spend(mut self) {
        if let HoldSource::Line(release) = std::mem::replace(&mut self.0, HoldSource::Free) {
            release.use_up();
        }
    }
}

impl fmt::Debug for BudgetHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BudgetHold")
    }
}

impl Drop for BudgetHold {
    fn drop(&mut self) {
        match &self.0 {
            HoldSource::Free | HoldSource::Line(_) => {}
            HoldSource::Pool(state) => state.pool.put_back(),
            HoldSource::Window(state, slot) => state.window.give_back(*slot, state.cost),
            HoldSource::Fleet(fleet) => fleet.retries.put_back(),
        }
    }
}
