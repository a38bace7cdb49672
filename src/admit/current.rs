//! Which call or scope the running code is in.
//!
//! A call or scope is current while it is polled, on the thread that polls it. So a nested call finds it there, and
//! nothing leaks out of a poll. Besides, a [`Scope`] in the storage of `task-local-extensions` holds wherever that
//! storage is carried.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use task_local_extensions::get_local_item;
use tokio::time::Instant;

use super::scope::Scope;
use super::scope_node::ScopeHandle;

thread_local! {
    static CURRENT: RefCell<Option<ScopeHandle>> = const { RefCell::new(None) };
}

/// Returns the call or scope that is polled now.
pub(super) fn current() -> Option<ScopeHandle> {
    // A thread that is ending has none any more.
    let current = CURRENT.try_with(|current| current.borrow().clone());
    current.ok().flatten()
}

/// Returns the scope in the task's storage.
pub(super) fn carried_scope() -> Option<Scope> {
    if !Scope::any_exists() {
        return None;
    }
    // The storage's functions are async, but wait for nothing.
    match pin!(get_local_item()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(scope) => scope,
        Poll::Pending => None,
    }
}

/// Returns the deadline of the call or scope that the running code is in.
pub(crate) fn current_deadline() -> Option<Instant> {
    let deadline = |current: &RefCell<Option<ScopeHandle>>| current.borrow().as_ref()?.deadline;
    let current = CURRENT.try_with(deadline).ok().flatten();
    match carried_scope() {
        None => current,
        Some(scope) => current.into_iter().chain(scope.end()).min(),
    }
}

/// Runs a future in a call or scope, if there is one to run in.
pub(crate) fn in_scope<F: Future + Unpin>(
    mut scope: Option<ScopeHandle>,
    mut future: F,
) -> impl Future<Output = F::Output> + Unpin {
    poll_fn(move |context| {
        // It is swapped back on the way out, also if the poll panics.
        let _restore = scope.is_some().then(|| Entered::new(&mut scope));
        Pin::new(&mut future).poll(context)
    })
}

/// While a scope is current, this holds what was current before.
struct Entered<'a>(&'a mut Option<ScopeHandle>);

impl<'a> Entered<'a> {
    fn new(scope: &'a mut Option<ScopeHandle>) -> Self {
        let mut entered = Self(scope);
        entered.swap();
        entered
    }

    fn swap(&mut self) {
        let _ = CURRENT.try_with(|current| std::mem::swap(self.0, &mut *current.borrow_mut()));
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.swap();
    }
}
