//! Facts about calls and attempts, as plain data.
//!
//! All layers above share these types: how an attempt ended, why a call stopped, the report of a call, and the errors
//! that this crate creates. Nothing here decides, waits or logs.

/// Declares an enum whose values have a stable label.
macro_rules! labelled {
    (
        $(#[$about_enum:meta])*
        pub enum $name:ident {
            $($(#[$about:meta])* $value:ident = $label:literal,)+
        }
    ) => {
        $(#[$about_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$about])* $value,)+
        }

        #[allow(dead_code, reason = "not every enum is listed or read back")]
        impl $name {
            /// In the order of the declaration.
            pub(crate) const ALL: [Self; [$($label),+].len()] = [$(Self::$value),+];

            /// Returns a stable name in snake_case, for logs and metrics.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $label,)+
                }
            }

            pub(crate) fn from_label(label: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == label)
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            /// Serializes the label.
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

mod attempt;
mod attempt_outcome;
mod dead_letter;
mod effect;
mod gate_limit;
mod pause_source;
mod refusal;
mod report;
mod report_slot;
mod steady_error;
mod stop_reason;
mod wait_reason;

pub use attempt::Attempt;
pub use attempt_outcome::{AttemptOutcome, FailureKind};
pub use dead_letter::DeadLetterOutcome;
pub use effect::Effect;
pub use gate_limit::GateLimit;
pub use pause_source::PauseSource;
pub(crate) use refusal::Refusal;
pub use refusal::RefusalReason;
pub(crate) use report::FailedReport;
pub use report::{AttemptReport, RetryReport};
pub use report_slot::ReportSlot;
pub use steady_error::SteadyError;
pub(crate) use steady_error::TimeLimit;
pub use stop_reason::StopReason;
pub use wait_reason::WaitReason;
