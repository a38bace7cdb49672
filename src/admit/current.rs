//! Which allowance the code that runs now is in.
//!
//! It is kept in the storage of `task-local-extensions`, which belongs to a thread, or to a task where
//! somebody has opened one. Only a place of ours is put there, and it is filled for the length of a
//! poll: nothing that others keep there is hidden, and nothing leaks out of a poll.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use task_local_extensions::{get_local_item, set_local_item};
use tokio::time::Instant;

use super::allowance::Allowance;

/// What we put into the storage, once for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Place(Arc<Mutex<Option<Allowance>>>);

impl Place {
    pub(super) fn here() -> Self {
        at_once(get_local_item()).flatten().unwrap_or_else(|| {
            let place = Self::default();
            at_once(set_local_item(place.clone()));
            place
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Allowance>> {
        // Held for single assignments only.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The storage's functions are async, but wait for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// When what runs now has to end: the deadline of the call or scope that it is in.
pub(crate) fn current_deadline() -> Option<Instant> {
    let place = Place::here();
    let current = place.lock();
    current.as_ref().and_then(Allowance::deadline)
}

/// Makes an allowance the current one for as long as `poll` runs.
pub(super) fn enter<T>(own: &mut Option<Allowance>, poll: impl FnOnce() -> T) -> T {
    let known = own.as_mut().and_then(Allowance::take_place);
    let place = known.unwrap_or_else(Place::here);
    std::mem::swap(own, &mut *place.lock());
    // On the way out, also if the poll panics.
    let restore = Restore { place: &place, own };
    let output = poll();
    drop(restore);
    output
}

struct Restore<'a> {
    place: &'a Place,
    /// While it is current, what was current before.
    own: &'a mut Option<Allowance>,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        std::mem::swap(self.own, &mut *self.place.lock());
    }
}

/// A future that runs in an allowance, if there is one to run in.
pub(crate) struct Covered<'a, F> {
    pub(crate) allowance: &'a mut Option<Allowance>,
    pub(crate) future: F,
}

impl<F: Future + Unpin> Future for Covered<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let future = Pin::new(&mut this.future);
        if this.allowance.is_some() {
            enter(this.allowance, || future.poll(context))
        } else {
            future.poll(context)
        }
    }
}
