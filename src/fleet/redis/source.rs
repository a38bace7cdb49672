//! Where connections come from.

use redis::Client;
use redis::aio::ConnectionLike;

/// A connection of any kind, of which there can be more than one handle.
pub(super) trait Connection: ConnectionLike + Send + Sync {
    fn again(&self) -> Box<dyn Connection>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connection for C {
    fn again(&self) -> Box<dyn Connection> {
        Box::new(self.clone())
    }
}

pub(super) enum Source {
    /// One is made when it is needed, and another when that is lost.
    Client(Client),
    /// The user's own.
    Given(Box<dyn Connection>),
}
