//! **Observe**: who gets to know?

mod attempt;
// Until the retry writes letters.
#[allow(dead_code)]
mod dead_letter;
mod log;
mod report;
#[allow(dead_code)]
mod secrets;

pub use attempt::Attempt;
pub use dead_letter::{
    ChannelSink, Credentials, DeadLetter, DeadLetterOutcome, DeadLetterReceiver, DeadLetterSink,
    Delivery, LetterBody, Replay, ReplayError, SinkError, dead_letter_channel,
};
// Until a retry writes letters.
#[allow(unused_imports)]
pub(crate) use dead_letter::{DeadLetters, Draft};
#[cfg(feature = "dead-letter-file")]
pub use dead_letter::{JsonLinesReader, JsonLinesSink, UnreadableLetter};
pub(crate) use log::{
    coalesce_inside_retry, throttle_outside_retry, two_retries_in_one_chain, unknown_extensions,
};
pub use report::{AttemptReport, ReportSlot, RetryReport, StopReason};
pub use secrets::{Redacted, Secrets};
