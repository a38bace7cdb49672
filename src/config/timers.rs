//! Checks that the tokio runtime has timers.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::ConfigError;

/// Remembers that tokio's timers exist. Checks again until they do.
///
/// Every middleware checks this at its first call. The first wait would be too late: it may come
/// only in the first outage.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    found: AtomicBool,
}

impl Timers {
    /// Fails where no runtime, or a runtime without timers, runs the call.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.found.load(Ordering::Relaxed) {
            return Ok(());
        }
        probe()?;
        self.found.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn probe() -> Result<(), ConfigError> {
    let invalid = |value, rule| ConfigError::new("tokio runtime", value, rule);
    Handle::try_current().map_err(|_| {
        invalid(
            "missing",
            "is required for every call: use `#[tokio::main]`, `Runtime::block_on` or `Handle::enter`",
        )
    })?;
    // tokio has no method that tells whether timers are enabled. Creating one panics if they are not.
    catch_unwind(|| drop(sleep(Duration::ZERO))).map_err(|_| {
        invalid(
            "without timers",
            "should be built with `enable_time` or `enable_all`, because retries and queues need timers",
        )
    })
}
