//! A value that can be exchanged while others use it.

use std::sync::{Arc, PoisonError, RwLock};

/// Holds the settings that are valid now.
///
/// A call takes them once, at its start. So it never sees half of the old and half of the new ones.
#[derive(Debug)]
pub(crate) struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Exchanges the value. Whoever has the old one keeps it.
    pub(crate) fn set(&self, value: T) {
        let new = Arc::new(value);
        let old = std::mem::replace(
            &mut *self.0.write().unwrap_or_else(PoisonError::into_inner),
            new,
        );
        // Dropped without the lock, because a user's function may be dropped with it.
        drop(old);
    }
}
