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
use crate::throttle::Passage;

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current { allowance: None, passage: None }) };
}

struct Current {
    allowance: Option<Allowance>,
    /// Of the attempt that runs now, if its call wants to know how it gets through a throttle.
    passage: Option<Passage>,
}

/// Does something with the current allowance, if there is one: nothing that could come back here.
pub(super) fn with_current<T>(work: impl FnOnce(&mut Allowance) -> T) -> Option<T> {
    // A thread that is ending has none any more.
    let done = CURRENT.try_with(|current| current.borrow_mut().allowance.as_mut().map(work));
    done.ok().flatten()
}

/// Does something with the passage of the attempt that runs now, if it has one: nothing that could come back
/// here.
#[inline]
pub(crate) fn with_passage<T>(work: impl FnOnce(&mut Passage) -> T) -> Option<T> {
    let done = CURRENT.try_with(|current| current.borrow_mut().passage.as_mut().map(work));
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
    let mut restore = Restore {
        allowance: Some(own),
        passage: None,
    };
    restore.swap();
    // It is swapped back on the way out, also if the poll panics.
    let output = poll();
    drop(restore);
    output
}

/// While something of a call or scope is current, this is what was current before.
struct Restore<'a> {
    allowance: Option<&'a mut Option<Allowance>>,
    passage: Option<&'a mut Option<Passage>>,
}

impl Restore<'_> {
    #[inline]
    fn swap(&mut self) {
        let _ = CURRENT.try_with(|current| {
            let current = &mut *current.borrow_mut();
            if let Some(allowance) = &mut self.allowance {
                exchange(allowance, &mut current.allowance);
            }
            if let Some(passage) = &mut self.passage {
                exchange(passage, &mut current.passage);
            }
        });
    }
}

/// Swaps them. One of the two is nearly always empty, and then only the other has to be moved.
#[inline]
fn exchange<T>(own: &mut Option<T>, current: &mut Option<T>) {
    match (own.is_some(), current.is_some()) {
        (false, false) => {}
        (true, false) => *current = own.take(),
        (false, true) => *own = current.take(),
        (true, true) => swap_both(own, current),
    }
}

#[cold]
fn swap_both<T>(own: &mut Option<T>, current: &mut Option<T>) {
    std::mem::swap(own, current);
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        self.swap();
    }
}

/// A future that runs in an allowance, if there is one to run in, and whose way through a throttle is known.
pub(crate) struct Covered<'a, F> {
    pub(crate) allowance: &'a mut Option<Allowance>,
    pub(crate) passage: &'a mut Option<Passage>,
    /// Until it is given up.
    pub(crate) future: Option<F>,
}

impl<F> Covered<'_, F> {
    #[inline(always)] // Every poll of every call comes by here.
    fn enter<T>(&mut self, work: impl FnOnce(&mut Option<F>) -> T) -> T {
        if self.allowance.is_none() && self.passage.is_none() {
            return work(&mut self.future);
        }
        let mut restore = Restore {
            allowance: Some(&mut *self.allowance).filter(|own| own.is_some()),
            passage: Some(&mut *self.passage),
        };
        restore.swap();
        let output = work(&mut self.future);
        drop(restore);
        output
    }

    /// Drops what runs in it, which can still tell why.
    pub(crate) fn give_up(&mut self) {
        self.enter(|future| *future = None);
    }
}

impl<F: Future + Unpin> Future for Covered<'_, F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.get_mut().enter(|future| match future {
            Some(future) => Pin::new(future).poll(context),
            None => Poll::Pending,
        })
    }
}
