//! Decides which calls are tracked from their start.
//!
//! A tracked call keeps its method and host, because the request is gone when its response arrives. Calls
//! that nothing observes skip this work.

#[cfg(feature = "tracing")]
use tracing::level_filters::LevelFilter;

#[cfg(feature = "tracing")]
use super::LogLevels;

/// Which calls are tracked. Without observers, this depends only on the log levels.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tracing"), derive(Default))]
pub(crate) struct Tracking {
    /// Calls that can be retried are tracked if this level is enabled. `None`: never.
    #[cfg(feature = "tracing")]
    retryable: Option<LevelFilter>,
    /// Other calls are tracked if this level is enabled. They keep no snapshot that could name them later.
    #[cfg(feature = "tracing")]
    single: Option<LevelFilter>,
    #[cfg(not(feature = "tracing"))]
    always: bool,
}

#[cfg(feature = "tracing")]
impl Tracking {
    /// Tracks every call, because there is an observer or a dead letter sink.
    pub(crate) const ALWAYS: Self = Self {
        retryable: Some(LevelFilter::OFF),
        single: Some(LevelFilter::OFF),
    };

    pub(super) fn from_levels(retryable: Option<LevelFilter>, single: Option<LevelFilter>) -> Self {
        Self { retryable, single }
    }

    pub(crate) fn is_on(self, could_retry: bool) -> bool {
        let level = if could_retry {
            self.retryable
        } else {
            self.single
        };
        level.is_some_and(|level| level <= LevelFilter::current())
    }
}

#[cfg(feature = "tracing")]
impl Default for Tracking {
    fn default() -> Self {
        LogLevels::default().tracking()
    }
}

#[cfg(not(feature = "tracing"))]
impl Tracking {
    /// Tracks every call, because there is an observer or a dead letter sink.
    pub(crate) const ALWAYS: Self = Self { always: true };

    pub(crate) fn is_on(self, _could_retry: bool) -> bool {
        self.always
    }
}
