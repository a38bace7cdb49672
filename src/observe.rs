//! **Observe**: who gets to know?

mod attempt;
mod event;
mod following;
#[cfg(feature = "tracing")]
mod levels;
mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod observer;
mod report;

pub use attempt::Attempt;
pub use event::{
    Abandoned, AttemptFinished, BudgetRefused, CallInfo, Event, EventKind, LimitHeader,
    LimitHeaders, LoadChange, RetryScheduled, Stopped, ThrottleLoad, ThrottlePaused,
    ThrottleRefused, ThrottleWaited,
};
pub(crate) use following::Following;
#[cfg(feature = "tracing")]
pub use levels::LogLevels;
pub(crate) use log::{
    LogPlace, coalesce_inside_retry, invalid_key, throttle_outside_retry, two_retries_in_one_chain,
    unknown_extensions,
};
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use observer::Observer;
pub(crate) use observer::Observers;
pub(crate) use report::FailedReport;
pub use report::{AttemptReport, ReportSlot, RetryReport, StopReason};
