//! Whether a dead letter was delivered.

/// Says whether a dead letter was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadLetterOutcome {
    /// The sink accepted the letter.
    Delivered,
    /// The sink returned an error.
    Failed,
    /// The sink took too long. It may have stored the letter nevertheless.
    TimedOut,
    /// The sink panicked.
    Panicked,
}

labels!(DeadLetterOutcome {
    Delivered => "delivered",
    Failed => "failed",
    TimedOut => "timed_out",
    Panicked => "panicked",
});
