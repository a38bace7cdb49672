//! Which allowance the code that runs now is in.
//!
//! A call or scope is current while it is polled, on the thread that polls it, and at no other time: what
//! is nested in it finds it there, and nothing leaks out of a poll. Apart from that, a [`Scope`] that
//! somebody has put into the storage of `task-local-extensions` holds wherever that storage is carried.

use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use task_local_extensions::get_local_item;
use tokio::time::Instant;

use super::allowance::Allowance;
use super::scope::Scope;

thread_local! {
    static CURRENT: RefCell<Option<Allowance>> = const { RefCell::new(None) };
}

/// Does something with the current allowance, if there is one: nothing that could come back here.
pub(super) fn with_current<T>(work: impl FnOnce(&mut Allowance) -> T) -> Option<T> {
    // A thread that is ending has none any more.
    let done = CURRENT.try_with(|current| current.borrow_mut().as_mut().map(work));
    done.ok().flatten()
}

/// The scope in the task's storage, if there is one.
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

/// When what runs now has to end: the deadline of the call or scope that it is in.
pub(crate) fn current_deadline() -> Option<Instant> {
    let current = with_current(|current| current.deadline()).flatten();
    let carried = carried_scope().and_then(|scope| scope.end());
    current.into_iter().chain(carried).min()
}

/// Makes an allowance the current one for as long as `poll` runs.
pub(super) fn enter<T>(own: &mut Option<Allowance>, poll: impl FnOnce() -> T) -> T {
    let mut restore = Restore(own);
    restore.swap();
    // It is swapped back on the way out, also if the poll panics.
    let output = poll();
    drop(restore);
    output
}

/// While an allowance is current, this is what was current before.
struct Restore<'a>(&'a mut Option<Allowance>);

impl Restore<'_> {
    fn swap(&mut self) {
        let _ = CURRENT.try_with(|current| std::mem::swap(self.0, &mut *current.borrow_mut()));
    }
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        self.swap();
    }
}

/// A future that runs in an allowance, if there is one to run in.
pub(crate) struct Covered<'a, F> {
    pub(crate) allowance: &'a mut Option<Allowance>,
    /// Until it is given up.
    pub(crate) future: Option<F>,
}

impl<F> Covered<'_, F> {
    fn enter<T>(&mut self, work: impl FnOnce(&mut Option<F>) -> T) -> T {
        match self.allowance.is_some() {
            true => enter(self.allowance, || work(&mut self.future)),
            false => work(&mut self.future),
        }
    }

    /// Drops what runs in it, which is in the allowance until then.
    pub(crate) fn give_up(&mut self) {
        self.enter(|future| *future = None);
    }
}

impl<F: Future + Unpin> Future for Covered<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.get_mut().enter(|future| match future {
            Some(future) => Pin::new(future).poll(context),
            None => Poll::Pending,
        })
    }
}
