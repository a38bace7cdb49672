//! Whether a dead letter was delivered.

labelled! {
    /// Says whether a dead letter was delivered.
    pub enum DeadLetterOutcome {
        /// The sink accepted the letter.
        Delivered = "delivered",
        /// The sink returned an error.
        Failed = "failed",
        /// The sink took too long. It may have stored the letter nevertheless.
        TimedOut = "timed_out",
        /// The sink panicked.
        Panicked = "panicked",
    }
}
