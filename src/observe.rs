//! **Observe**: who gets to know?

mod event;
mod following;
#[cfg(feature = "tracing")]
mod levels;
#[cfg(feature = "metrics")]
mod metrics;
mod observer;
pub use event::{
    Abandoned, AttemptFinished, BudgetRefused, CallInfo, Event, EventKind, LimitHeader,
    LimitHeaders, LoadChange, RetryScheduled, Stopped, ThrottleLoad, ThrottlePaused,
    ThrottleRefused, ThrottleWaited,
};
pub(crate) use following::Following;
#[cfg(feature = "tracing")]
pub use levels::LogLevels;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use observer::Observer;
pub(crate) use observer::Observers;
