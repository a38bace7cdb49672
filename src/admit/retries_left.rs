//! Takes a retry from several counters, or from none: that of a call, and of each call and scope around it.
//!
//! `models/` runs this very file under loom, and then with the mistakes that are easy to make here.

use super::sync::{AtomicU32, Ordering};

/// Takes one from each. A counter guards nothing but itself, so no order between them matters: whoever
/// finds one empty puts back what it has taken from the others. Until then another may find those
/// empty, and is refused as well: too few may go for a moment, never too many.
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

/// Gives back what was taken from each.
pub(crate) fn put_back<'a>(counters: impl Iterator<Item = &'a AtomicU32>) {
    for left in counters {
        left.fetch_add(1, Ordering::Relaxed);
    }
}
