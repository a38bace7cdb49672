//! Takes a retry from several counters or from none: those of a call, and of each call and scope around it.
//!
//! `models/` runs this file under loom, and then with the mistakes that are easy to make here.

use super::sync::{AtomicU32, Ordering};

/// Takes one from each counter; returns false, and takes nothing, if one is empty.
///
/// A counter guards nothing but itself, so `Relaxed` is enough. A call that finds one empty puts back what it took from
/// the others. Until then, another call may find those empty and is refused: for a moment too few retries are
/// allowed, never too many.
pub(crate) fn take<'a>(counters: impl Iterator<Item = &'a AtomicU32> + Clone) -> bool {
    for (taken, left) in counters.clone().enumerate() {
        let one_less = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(1)
        });
        if one_less.is_err() {
            put_back(counters.take(taken));
            return false;
        }
    }
    true
}

/// Puts one back into each counter.
pub(crate) fn put_back<'a>(counters: impl Iterator<Item = &'a AtomicU32>) {
    for left in counters {
        left.fetch_add(1, Ordering::Relaxed);
    }
}
