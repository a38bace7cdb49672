//! Why and when a throttle refused a request.

use std::fmt;
use std::time::Duration;

labelled! {
    /// Says why a [`ThrottleMiddleware`](crate::ThrottleMiddleware) refused a request.
    pub enum RefusalReason {
        /// The queue has [`max_queue`](crate::ThrottleMiddlewareBuilder::max_queue) waiting calls.
        QueueFull = "queue_full",
        /// The wait took longer than [`max_queue_wait`](crate::ThrottleMiddlewareBuilder::max_queue_wait), or is known to take
        /// longer.
        WaitTooLong = "wait_too_long",
        /// The request could not be sent before the deadline of the call.
        DeadlineTooClose = "deadline_too_close",
    }
}

/// What a throttle knows about a request that it refused.
#[derive(Clone)]
pub(crate) struct Refusal {
    pub(crate) reason: RefusalReason,
    pub(crate) key: String,
    /// False if a function of the user made the key. Such a key may be secret, so messages show the host instead.
    pub(crate) shows_key: bool,
    pub(crate) depth: usize,
    pub(crate) retry_after: Duration,
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.shows_key { &self.key } else { ".." };
        f.debug_struct("Refusal")
            .field("reason", &self.reason)
            .field("key", &key)
            .field("queue_depth", &self.depth)
            .field("retry_after", &self.retry_after)
            .finish()
    }
}
