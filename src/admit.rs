//! **Admit**: is there room for it now?
//!
//! A retry that is safe and due may still be one too many. The budget bounds what a client adds to
//! the load of a server in trouble; the allowance bounds what layers of retries add up to.

mod allowance;
mod budget;
mod current;
mod retries_left;
mod scope;

/// What `retries_left` stands on. In `models/` it is loom's.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU32, Ordering};
}

pub(crate) use allowance::{Allowance, Draw, Opener};
pub use budget::{Budget, BudgetBuilder, Deposit};
pub(crate) use budget::{BudgetHold, Budgets};
pub(crate) use current::{Covered, current_deadline};
pub use scope::Scope;
