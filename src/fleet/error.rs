//! Why a store could not answer.

use std::fmt;
use std::time::Duration;

use crate::config::ConfigError;

/// Why a [`FleetStore`](super::FleetStore) could not answer. It shows neither keys nor passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetError {
    /// It cannot be reached, or the connection to it broke.
    Unavailable {
        /// What is known about it.
        why: &'static str,
    },
    /// It did not answer in time. It may have done what it was asked for.
    TimedOut {
        /// How long that was.
        after: Duration,
    },
    /// It answered that it will not do it.
    Refused {
        /// The word by which it says why, like `NOAUTH`, `READONLY` or `WRONGTYPE`.
        code: String,
    },
    /// It was not asked, for the question makes no sense.
    BadValue(ConfigError),
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { why } => write!(f, "the store of the fleet is away: {why}"),
            Self::TimedOut { after } => {
                write!(f, "the store of the fleet did not answer within {after:?}")
            }
            Self::Refused { code } => write!(f, "the store of the fleet refused with {code}"),
            Self::BadValue(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FleetError {}

impl From<ConfigError> for FleetError {
    fn from(error: ConfigError) -> Self {
        Self::BadValue(error)
    }
}
