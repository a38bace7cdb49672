//! **Observe**: who gets to know?

mod attempt;
mod log;
mod report;
// Until the retry writes letters.
#[allow(dead_code)]
mod secrets;

pub use attempt::Attempt;
pub(crate) use log::{
    coalesce_inside_retry, throttle_outside_retry, two_retries_in_one_chain, unknown_extensions,
};
pub use report::{AttemptReport, ReportSlot, RetryReport, StopReason};
pub use secrets::{Redacted, Secrets};
