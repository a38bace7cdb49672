//! Facts about calls and attempts, as plain data.
//!
//! All layers above share these types: how an attempt ended, why a call stopped, the report of a call, and the errors
//! that this crate creates. Nothing here decides, waits or logs.

mod attempt;
mod attempt_outcome;
mod dead_letter;
mod refusal;
mod report;
mod stop_reason;
mod timed_out;

pub use attempt::Attempt;
pub use attempt_outcome::{AttemptOutcome, FailureKind};
pub use dead_letter::DeadLetterOutcome;
pub use refusal::{Refusal, RefusalReason};
pub(crate) use report::FailedReport;
pub use report::{AttemptReport, ReportSlot, RetryReport};
pub use stop_reason::StopReason;
pub use timed_out::{TimeLimit, TimedOut};
