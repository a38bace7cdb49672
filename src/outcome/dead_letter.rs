//! Whether a dead letter was delivered.

use std::fmt;

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

impl DeadLetterOutcome {
    /// Returns a stable name in snake_case, for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Panicked => "panicked",
        }
    }
}

impl fmt::Display for DeadLetterOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
