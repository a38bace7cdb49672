//! Pauses that workers announce to each other.

use std::fmt;
use std::time::Duration;

use super::StoreFuture;

/// Describes a pause that holds for all workers.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pause {
    /// The key that pauses.
    pub key: String,
    /// Length of the pause, from the moment it was announced.
    pub length: Duration,
}

impl Pause {
    /// Creates a pause that begins now.
    pub fn new(key: impl Into<String>, length: Duration) -> Self {
        Self {
            key: key.into(),
            length,
        }
    }
}

/// Hides the key, because it may be a secret.
impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pause")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// Receives the pauses of all keys, in the order in which workers announce them.
///
/// A slow reader may miss some. A [`Lease`](super::Lease) carries the pause of its key as well.
pub trait Pauses: fmt::Debug + Send {
    /// Waits for the next pause. Dropping the future loses no pause.
    ///
    /// # Errors
    ///
    /// After an error, no more pauses come. Call [`pauses`](super::FleetStore::pauses) again.
    fn next(&mut self) -> StoreFuture<'_, Pause>;
}
