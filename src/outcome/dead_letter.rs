//! What became of a dead letter.

use std::fmt;

/// What became of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadLetterOutcome {
    /// The sink has it.
    Delivered,
    /// The sink could not take it.
    Failed,
    /// The sink took too long. It may have it all the same.
    TimedOut,
    /// The sink panicked.
    Panicked,
}

impl DeadLetterOutcome {
    /// A stable name in snake_case, for logs and metrics.
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
