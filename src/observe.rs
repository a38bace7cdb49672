//! **Observe**: who gets to know?

mod dead_letter;
mod event;
mod following;
mod host_name;
#[cfg(feature = "tracing")]
mod levels;
#[cfg(feature = "metrics")]
mod metrics;
mod observer;
mod secrets;

#[cfg(all(
    feature = "dead-letter-file",
    any(test, all(fuzzing, feature = "testing"))
))]
pub(crate) use dead_letter::SameThreadSink;
pub use dead_letter::{
    ChannelSink, Credentials, DeadLetter, DeadLetterReceiver, DeadLetterSink, Delivery, LetterBody,
    Replay, ReplayError, SinkError, dead_letter_channel,
};
pub(crate) use dead_letter::{DeadLetters, Draft};
#[cfg(feature = "dead-letter-file")]
pub use dead_letter::{JsonLinesReader, JsonLinesSink, UnreadableLetter};
pub use event::{
    Abandoned, AttemptFinished, BudgetRefused, CallInfo, Event, EventKind, LimitHeader,
    LimitHeaders, LoadChange, RetryScheduled, Stopped, ThrottleLoad, ThrottlePaused,
    ThrottleRefused, ThrottleWaited,
};
pub(crate) use following::Following;
pub(crate) use host_name::host_name;
#[cfg(feature = "tracing")]
pub use levels::LogLevels;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use observer::Observer;
pub(crate) use observer::Observers;
pub use secrets::{Redacted, Secrets};
