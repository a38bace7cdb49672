//! What a worker asks a store about sending, and what the store grants.

use std::fmt;
use std::time::Duration;

use crate::config::{ConfigError, Written, ensure};
use crate::entropy::Uuid;

/// One per day.
const MIN_RATE: f64 = 1.0 / 86_400.0;
const MAX_RATE: f64 = 1e6;
const MIN_PERIOD: Duration = Duration::from_millis(1);
const MAX_PERIOD: Duration = Duration::from_secs(60 * 60);

/// Identifies one worker of a fleet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkerId(Uuid);

impl WorkerId {
    /// Creates a new random id.
    pub fn random() -> Self {
        Self(Uuid::random())
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerId({})", self.0)
    }
}

/// Describes the rate that all workers share: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedRate {
    /// Tokens added per second.
    pub per_second: f64,
    /// Most tokens that the bucket holds.
    pub burst: u32,
}

/// Reports how the adaptive rate of one worker has changed, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaceChange {
    /// The rate at the worker's last report.
    pub before: f64,
    /// The rate now.
    pub now: f64,
}

/// Asks a store for tokens.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::fleet::{LeaseAsk, WorkerId};
///
/// let ask = LeaseAsk::new(WorkerId::random(), Duration::from_millis(100))
///     .rate(50.0, 10)
///     .want(5)
///     .unused(2);
/// assert_eq!(ask.want, 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LeaseAsk {
    /// The worker that asks.
    pub worker: WorkerId,
    /// How often the worker asks. A worker counts as gone after three periods without an ask, but not
    /// before 3 s.
    pub period: Duration,
    /// The rate to keep. Without a rate, the store grants all tokens and counts none.
    pub rate: Option<SharedRate>,
    /// Tokens that the worker wants.
    pub want: u32,
    /// Tokens of earlier leases that the worker hands back.
    pub unused: u32,
    /// Change of the worker's adaptive rate.
    pub pace: Option<PaceChange>,
}

impl LeaseAsk {
    /// Creates an ask for no tokens. It only reports that the worker is there.
    pub fn new(worker: WorkerId, period: Duration) -> Self {
        Self {
            worker,
            period,
            rate: None,
            want: 0,
            unused: 0,
            pace: None,
        }
    }

    /// Sets the rate to keep, and how many tokens there are after idling.
    pub fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = Some(SharedRate { per_second, burst });
        self
    }

    /// Sets how many tokens the worker wants.
    pub fn want(mut self, tokens: u32) -> Self {
        self.want = tokens;
        self
    }

    /// Sets how many tokens of earlier leases the worker hands back.
    pub fn unused(mut self, tokens: u32) -> Self {
        self.unused = tokens;
        self
    }

    /// Sets how the worker's adaptive rate has changed.
    pub fn pace(mut self, before: f64, now: f64) -> Self {
        self.pace = Some(PaceChange { before, now });
        self
    }

    /// Checks the values. A store calls this first, because it could not undo a bad value.
    ///
    /// # Errors
    ///
    /// Refuses a period, rate, burst or pace that is out of range, and NaN.
    pub fn check(&self) -> Result<(), ConfigError> {
        let in_range = (MIN_PERIOD..=MAX_PERIOD).contains(&self.period);
        let rule = "should be from a millisecond to an hour";
        ensure(in_range, "period", self.period, rule)?;
        self.rate.as_ref().map_or(Ok(()), SharedRate::check)?;
        self.pace.as_ref().map_or(Ok(()), PaceChange::check)
    }
}

impl SharedRate {
    fn check(&self) -> Result<(), ConfigError> {
        // NaN is in no range.
        let in_range = (MIN_RATE..=MAX_RATE).contains(&self.per_second);
        let rate = Written(self.per_second);
        let rule = "should be between 1 per day and 1,000,000 per second";
        ensure(in_range, "rate", format_args!("{rate}/s"), rule)?;
        let rule = "should be at least 1";
        ensure(self.burst > 0, "burst of the rate", self.burst, rule)
    }
}

impl PaceChange {
    fn check(&self) -> Result<(), ConfigError> {
        for (name, value) in [("pace before", self.before), ("pace now", self.now)] {
            let rule = "should be from 0 to 1,000,000 per second";
            ensure(
                (0.0..=MAX_RATE).contains(&value),
                name,
                Written(value),
                rule,
            )?;
        }
        Ok(())
    }
}

/// Says what a worker may do until it asks again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Lease {
    /// Requests that the worker may send.
    pub tokens: u32,
    /// Without tokens: when to ask again. Otherwise zero.
    pub retry_after: Duration,
    /// How long no worker may send.
    pub pause: Duration,
    /// Number of workers, including the one that asks.
    pub workers: u32,
    /// The adaptive rate of all workers together, if one was reported within a minute.
    pub pace: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> LeaseAsk {
        LeaseAsk::new(WorkerId::random(), Duration::from_millis(100))
    }

    #[test]
    fn an_invalid_setting_is_named_with_its_value() {
        for (checked, text) in [
            (ask().rate(f64::NAN, 1).check(), "rate (nan/s)"),
            (ask().rate(f64::INFINITY, 1).check(), "rate (inf/s)"),
            (ask().rate(-1.0, 1).check(), "rate (-1/s)"),
            (ask().rate(0.0, 1).check(), "rate (0/s)"),
            (ask().rate(1e7, 1).check(), "rate (10000000/s)"),
            (ask().rate(1.0, 0).check(), "burst of the rate (0)"),
            (ask().pace(f64::NAN, 1.0).check(), "pace before (nan)"),
            (ask().pace(1.0, -1.0).check(), "pace now (-1.0)"),
            (ask().pace(1.0, 1e300).check(), "pace now (1e300)"),
            (
                LeaseAsk::new(WorkerId::random(), Duration::ZERO).check(),
                "period (0ns)",
            ),
            (
                LeaseAsk::new(WorkerId::random(), Duration::MAX).check(),
                "period (18446744073709551615.999999999s)",
            ),
        ] {
            let refusal = checked.unwrap_err().to_string();
            assert!(refusal.starts_with(text), "{text}");
        }
        assert_eq!(ask().rate(1e6, u32::MAX).pace(0.0, 1e6).check(), Ok(()));
    }
}
