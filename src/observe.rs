//! **Observe**: who gets to know?

mod attempt;
mod report;

pub use attempt::Attempt;
pub use report::{AttemptReport, ReportSlot, RetryReport, StopReason};
