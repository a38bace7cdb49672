//! **Admit**: is there room for it now?
//!
//! A retry that is safe and due may still be one too many. The budget bounds what a client adds to
//! the load of a server in trouble; scopes bound what layers of retries add up to.

mod budget;
mod current;
mod retries_left;
mod scope;
mod scope_node;

/// What `retries_left` stands on. In `models/` it is loom's.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU32, Ordering};
}

pub use budget::{Budget, BudgetBuilder, Deposit};
pub(crate) use budget::{BudgetHold, Budgets};
pub(crate) use current::{current_deadline, in_scope};
pub use scope::Scope;
pub(crate) use scope_node::{ScopeHandle, ScopeHold};
