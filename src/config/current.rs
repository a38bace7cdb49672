//! A value that can be replaced while calls use it.

use std::sync::{Arc, PoisonError, RwLock};

/// Holds the settings for new calls.
///
/// A call takes them once, at its start. So it never mixes old and new settings.
#[derive(Debug)]
pub(crate) struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the value. Calls that took the old one keep it.
    pub(crate) fn set(&self, value: T) {
        let new = Arc::new(value);
        let old = std::mem::replace(
            &mut *self.0.write().unwrap_or_else(PoisonError::into_inner),
            new,
        );
        // Dropped after the lock is released, because its drop may run a user's code.
        drop(old);
    }
}
