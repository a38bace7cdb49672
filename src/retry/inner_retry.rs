//! Whether another retry is inside this one.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the chain has another retry further inside, as far as calls have shown.
///
/// An inner retry finds the handoff of an outer one. Most chains have one retry, and a handoff in every attempt
/// would cost 1,160 instructions a call. So the first calls insert one to look for an inner retry, and later
/// calls only if there is one.
#[derive(Debug, Default)]
pub(crate) struct InnerRetry {
    looked: AtomicBool,
    found: AtomicBool,
}

impl InnerRetry {
    pub(crate) fn may_exist(&self) -> bool {
        !self.looked.load(Ordering::Relaxed) || self.found.load(Ordering::Relaxed)
    }

    /// Notes whether an attempt that has ended met one.
    pub(crate) fn learn(&self, found: bool) {
        if found && !self.found.load(Ordering::Relaxed) {
            self.found.store(true, Ordering::Relaxed);
        }
        if !self.looked.load(Ordering::Relaxed) {
            self.looked.store(true, Ordering::Relaxed);
        }
    }
}
