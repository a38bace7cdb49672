//! Shows what happens to calls: observers, events, logs and metrics.
//!
//! Callers do not see retries, and nobody can tune what nobody can see. The retry and the throttle make an [`Event`]
//! for each step of a call. Every [`Observer`] gets it, `LogLevels` (feature `tracing`) writes it to the log, and
//! `Metrics` (feature `metrics`) is an observer that counts. [`SteadyState`] shows each host as it is now, with its
//! circuit breaker. The guide has [a page about it](crate::guide::observe).
//!
//! ```
//! use reqwest_steady::Steady;
//! use reqwest_steady::observe::EventKind;
//!
//! let steady = Steady::builder()
//!     .observe_fn(|event| {
//!         if let EventKind::RetryScheduled(retry) = event.kind {
//!             println!("{}: {}, again in {:?}", event.call.host, retry.cause, retry.wait);
//!         }
//!     })
//!     .build()?;
//! # Ok::<(), reqwest_steady::ConfigError>(())
//! ```

mod event;
#[cfg(feature = "tracing")]
mod log_levels;
#[cfg(feature = "metrics")]
mod metrics;
mod observer;
mod state;

pub use event::{
    Abandoned, AttemptFinished, BudgetRefused, BudgetWaited, CallInfo, Event, EventKind,
    LimitHeader, LimitHeaders, LoadChange, RetryScheduled, Stopped, ThrottleLoad, ThrottlePaced,
    ThrottlePaused, ThrottleRefused, ThrottleWaited,
};
#[cfg(feature = "tracing")]
pub use log_levels::LogLevels;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use observer::Observer;
pub(crate) use observer::Observers;
pub use state::{BreakerState, GateView, HostState, SteadyState};

pub use crate::outcome::{
    Attempt, AttemptOutcome, AttemptReport, FailureKind, GateLimit, PauseSource, RefusalReason,
    WaitReason,
};
