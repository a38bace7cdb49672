//! Why a store did not do what it was asked.

use std::fmt;
use std::time::Duration;

use crate::config::ConfigError;

/// Says why a request to a [`FleetStore`](super::FleetStore) failed.
///
/// It shows neither keys nor passwords. Calls do not fail with it: a worker then uses the last known limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetError {
    /// The store cannot be reached, or the connection broke.
    Unavailable {
        /// The known cause.
        why: &'static str,
    },
    /// The store did not respond in time. It may have done what it was asked.
    TimedOut {
        /// The time limit.
        after: Duration,
    },
    /// The store refused.
    Refused {
        /// The store's error code, like `NOAUTH`, `READONLY` or `WRONGTYPE`.
        code: String,
    },
    /// A value is invalid, so the store was not asked.
    BadValue(ConfigError),
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { why } => write!(f, "fleet store unavailable: {why}"),
            Self::TimedOut { after } => write!(f, "fleet store timed out after {after:?}"),
            Self::Refused { code } => write!(f, "fleet store refused with {code}"),
            Self::BadValue(_) => f.write_str("fleet store not asked because of an invalid value"),
        }
    }
}

impl std::error::Error for FleetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::BadValue(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ConfigError> for FleetError {
    fn from(error: ConfigError) -> Self {
        Self::BadValue(error)
    }
}
