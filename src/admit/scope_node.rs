//! What a call and the calls inside it may do together: a chain of nodes, one for each call and scope.
//!
//! A client inside a client, or a middleware that fetches a token, retries by itself; if all that fails, the outer
//! call retries the whole of it. So layers multiply. Here each call takes its retries from all that are around it.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use tokio::time::Instant;

use super::current::{carried_scope, current};
use super::hosts::HostRecord;
use super::retries_left;
use super::scope::Scope;

/// What one call or scope allows, linked to the one around it.
#[derive(Debug)]
pub(crate) struct ScopeNode {
    left: RetriesLeft,
    /// No later than the deadline of any node around it.
    pub(crate) deadline: Option<Instant>,
    /// The record of its host. `None` for a scope, and for a call that cannot be retried.
    call: Option<Arc<HostRecord>>,
    around: Option<ScopeHandle>,
}

/// A node, which all calls inside it share.
pub(crate) type ScopeHandle = Arc<ScopeNode>;

/// How many retries are left. Every call has a counter, so that of a call takes no allocation.
#[derive(Debug)]
enum RetriesLeft {
    Call(AtomicU32),
    /// Several tasks may share a scope.
    Scope(Arc<AtomicU32>),
}

impl ScopeNode {
    /// Opens a node for a call that begins here. `host`: if it could be retried.
    pub(crate) fn of_call(
        retries: u32,
        deadline: Option<Instant>,
        host: Option<Arc<HostRecord>>,
    ) -> ScopeHandle {
        let left = RetriesLeft::Call(retries.into());
        Self::new(left, deadline, host, around())
    }

    /// Opens a node for a scope that is entered here.
    pub(super) fn of_scope(scope: &Scope) -> ScopeHandle {
        Self::of_scope_in(scope, around())
    }

    fn of_scope_in(scope: &Scope, around: Option<ScopeHandle>) -> ScopeHandle {
        // A scope that is opened within itself is not drawn from twice.
        let left = match &around {
            Some(around) if around.contains(scope) => RetriesLeft::Call(u32::MAX.into()),
            _ => RetriesLeft::Scope(Arc::clone(&scope.left)),
        };
        Self::new(left, scope.end(), None, around)
    }

    fn new(
        left: RetriesLeft,
        deadline: Option<Instant>,
        call: Option<Arc<HostRecord>>,
        around: Option<ScopeHandle>,
    ) -> ScopeHandle {
        let limit = around.as_ref().and_then(|around| around.deadline);
        Arc::new(Self {
            left,
            deadline: deadline.into_iter().chain(limit).min(),
            call,
            around,
        })
    }

    /// Returns whether this scope is among this node and those around it.
    fn contains(&self, scope: &Scope) -> bool {
        self.chain().any(|node| match &node.left {
            RetriesLeft::Scope(left) => Arc::ptr_eq(left, &scope.left),
            RetriesLeft::Call(_) => false,
        })
    }

    /// Returns this node, and all around it.
    fn chain(&self) -> impl Iterator<Item = &Self> + Clone {
        std::iter::successors(Some(self), |node| node.around.as_deref())
    }

    /// Returns the counters of this node and all around it.
    fn counters(&self) -> impl Iterator<Item = &AtomicU32> + Clone {
        self.chain().map(|node| match &node.left {
            RetriesLeft::Call(left) => left,
            RetriesLeft::Scope(left) => left,
        })
    }

    /// Returns the hosts of all calls around this node that could be retried.
    fn calls_around(&self) -> impl Iterator<Item = &Arc<HostRecord>> {
        self.chain().skip(1).filter_map(|node| node.call.as_ref())
    }

    /// Returns whether this call could be retried, and another one around it as well.
    pub(crate) fn is_in_another_call(&self) -> bool {
        self.call.is_some() && self.calls_around().next().is_some()
    }

    /// Returns whether a call around this one has the same budget.
    pub(crate) fn shares_budget(&self) -> bool {
        let is_own = |own: &HostRecord| {
            let mut around = self.calls_around();
            around.any(|other| own.budget.is_same(&other.budget))
        };
        self.call.as_deref().is_some_and(is_own)
    }

    /// Returns whether a call around this one has the same host and the same retry.
    pub(crate) fn shares_host(&self) -> bool {
        let is_own = |own| self.calls_around().any(|other| Arc::ptr_eq(own, other));
        self.call.as_ref().is_some_and(is_own)
    }

    /// Takes a retry, if this call and all around it have one left.
    pub(crate) fn take_retry(self: &Arc<Self>) -> Option<ScopeHold> {
        retries_left::take(self.counters()).then(|| ScopeHold(Some(Arc::clone(self))))
    }
}

/// Returns what is around a call or scope that begins here.
fn around() -> Option<ScopeHandle> {
    let current = current();
    match carried_scope() {
        Some(scope) if !(current.as_ref()).is_some_and(|current| current.contains(&scope)) => {
            Some(ScopeNode::of_scope_in(&scope, current))
        }
        _ => current,
    }
}

/// A retry that was taken but not sent yet. Dropping it puts the retry back.
#[must_use = "it is put back when dropped"]
pub(crate) struct ScopeHold(Option<ScopeHandle>);

impl ScopeHold {
    /// Keeps the retry, because it is sent.
    pub(crate) fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for ScopeHold {
    fn drop(&mut self) {
        if let Some(scope) = self.0.take() {
            retries_left::put_back(scope.counters());
        }
    }
}
