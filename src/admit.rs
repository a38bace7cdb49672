//! **Admit**: is there room for a retry now?
//!
//! A retry that is safe and due may still be one too many. The [`Budget`] limits what a client adds to the load of a
//! server in trouble. Scopes ([`ScopeNode`]) limit what layers of retries add up to.

mod budget;
mod current;
mod hosts;
mod line;
mod retries_left;
mod scope;
mod scope_node;
mod streak;

/// The atomics of `retries_left`. In `models/` they are loom's.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU32, Ordering};
}

pub(crate) use budget::BudgetHold;
pub use budget::{Budget, BudgetBuilder, Deposit};
pub(crate) use current::{current_deadline, in_scope};
pub(crate) use hosts::{BudgetConfig, HostRecord, Hosts};
pub(crate) use line::{NotReleased, Release};
pub use scope::Scope;
pub(crate) use scope_node::{ScopeHandle, ScopeHold, ScopeNode};
