//! What is further inside the chain of a retry.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::handoff::AttemptTrace;

/// Whether the chain has another retry or a throttle further inside, as far as calls have shown.
///
/// An inner retry finds the handoff of an outer one. Most chains have one retry, and a handoff in every attempt
/// would cost 1,160 instructions a call. So the first calls insert one to look for an inner retry, and later
/// calls only if there is one. A throttle marks the same handoff.
#[derive(Debug, Default)]
pub(crate) struct InnerChain {
    looked: AtomicBool,
    retry: AtomicBool,
    throttle: AtomicBool,
}

impl InnerChain {
    pub(crate) fn may_have_retry(&self) -> bool {
        !self.looked.load(Ordering::Relaxed) || self.retry.load(Ordering::Relaxed)
    }

    pub(crate) fn has_throttle(&self) -> bool {
        self.throttle.load(Ordering::Relaxed)
    }

    /// Notes that there is a retry further inside.
    pub(crate) fn learn_retry(&self) {
        set(&self.retry, true);
    }

    /// Notes what an attempt has met. An attempt without a handoff has nothing to say.
    pub(crate) fn learn(&self, trace: AttemptTrace) {
        set(&self.looked, true);
        set(&self.retry, trace.inner_retry);
        set(&self.throttle, trace.throttle);
    }
}

/// Writes only if that changes something, because all calls share the flags.
fn set(flag: &AtomicBool, found: bool) {
    if found && !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}
