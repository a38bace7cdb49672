//! Reports what happens to calls: events, observers, log lines and metrics.
//!
//! Users need to see retries that the caller does not see. The retry and the throttle make an [`Event`] for each
//! step of a call. [`Observers`] passes it to every [`Observer`], `LogLevels` writes it to the log, and `Metrics` is
//! an observer that counts.

mod event;
#[cfg(feature = "tracing")]
mod log_levels;
#[cfg(feature = "metrics")]
mod metrics;
mod observer;

pub use event::{
    Abandoned, AttemptFinished, BudgetRefused, CallInfo, Event, EventKind, LimitHeader,
    LimitHeaders, LoadChange, RetryScheduled, Stopped, ThrottleLoad, ThrottlePaced, ThrottlePaused,
    ThrottleRefused, ThrottleWaited,
};
#[cfg(feature = "tracing")]
pub use log_levels::LogLevels;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use observer::Observer;
pub(crate) use observer::Observers;

pub use crate::outcome::{
    Attempt, AttemptOutcome, AttemptReport, FailureKind, PauseSource, RefusalReason,
};
