//! What is kept about a request in flight.

use crate::clock::Time;

/// What the controller keeps about a request that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendRecord {
    /// Counts up from 1.
    pub(super) number: u64,
    pub(super) sent_at: Time,
    /// The rate of the pace that it was sent at.
    pub(super) rate: Option<f64>,
}

impl SendRecord {
    /// Selects the first request and every 16th after it, for checks that need not run each time.
    pub(crate) fn is_sample(&self) -> bool {
        self.number % 16 == 1
    }
}
