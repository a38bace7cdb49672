//! Which calls are followed from their beginning on. Asked once for each call, so it is quick.

#[cfg(feature = "tracing")]
use tracing::level_filters::LevelFilter;

#[cfg(feature = "tracing")]
use super::LogLevels;

/// Without observers, only what the log may say.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tracing"), derive(Default))]
pub(crate) struct Following {
    /// Calls that could be retried: from this level of the log on. Of others nothing is kept by which
    /// they could be named later.
    #[cfg(feature = "tracing")]
    retryable: Option<LevelFilter>,
    #[cfg(feature = "tracing")]
    single: Option<LevelFilter>,
    #[cfg(not(feature = "tracing"))]
    always: bool,
}

#[cfg(feature = "tracing")]
impl Following {
    /// Even if nobody reads the log.
    pub(crate) const ALWAYS: Self = Self {
        retryable: Some(LevelFilter::OFF),
        single: Some(LevelFilter::OFF),
    };

    pub(super) fn from_levels(retryable: Option<LevelFilter>, single: Option<LevelFilter>) -> Self {
        Self { retryable, single }
    }

    #[inline]
    pub(crate) fn is_on(self, could_retry: bool) -> bool {
        let from = if could_retry {
            self.retryable
        } else {
            self.single
        };
        from.is_some_and(|from| from <= LevelFilter::current())
    }
}

#[cfg(feature = "tracing")]
impl Default for Following {
    fn default() -> Self {
        LogLevels::default().following()
    }
}

#[cfg(not(feature = "tracing"))]
impl Following {
    pub(crate) const ALWAYS: Self = Self { always: true };

    #[inline]
    pub(crate) fn is_on(self, _could_retry: bool) -> bool {
        self.always
    }
}
