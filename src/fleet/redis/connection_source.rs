//! Where connections to Redis come from.

use redis::Client;
use redis::aio::ConnectionLike;

/// A connection of any type that can have several handles.
pub(super) trait SharedConnection: ConnectionLike + Send + Sync {
    fn clone_box(&self) -> Box<dyn SharedConnection>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> SharedConnection for C {
    fn clone_box(&self) -> Box<dyn SharedConnection> {
        Box::new(self.clone())
    }
}

pub(super) enum ConnectionSource {
    /// Connects when needed, and again after a loss.
    Client(Client),
    /// The user's connection, which reconnects by itself.
    Given(Box<dyn SharedConnection>),
}
