//! The pauses that workers tell each other of.

use std::fmt;
use std::time::Duration;

use super::StoreFuture;

/// All workers have to hold back.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pause {
    /// Which key it is for.
    pub key: String,
    /// For how long, from the moment at which this was told.
    pub length: Duration,
}

impl Pause {
    /// A pause that begins now.
    pub fn new(key: impl Into<String>, length: Duration) -> Self {
        Self {
            key: key.into(),
            length,
        }
    }
}

/// Without the key, which may be a user's secret.
impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pause")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// The pauses of all keys, one after the other, as workers tell of them.
///
/// Some may be lost if they come faster than they are taken: a [`Lease`](super::Lease) tells of its key's
/// pause as well.
pub trait Pauses: fmt::Debug + Send {
    /// Waits for the next. May be dropped while it waits, without losing any. After an error there is
    /// nothing more to come, and it is time to ask the store for [`pauses`](super::FleetStore::pauses)
    /// again.
    fn next(&mut self) -> StoreFuture<'_, Pause>;
}
