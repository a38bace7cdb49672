//! Latency: the smoothed round trip, and rounds that tell a slow server from a slow request.

use std::time::Duration;

use crate::clock::Time;

/// A slow response takes at least this much longer than usual.
const SLOW_MARGIN: Duration = Duration::from_millis(100);
/// A round has at least this many responses.
const MIN_ROUND: u32 = 8;
/// The usual latency moves half of the way to a higher one in this many seconds.
const HALF_LIFE_SECS: f64 = 10.0;

/// The smoothed round trip time (SRTT), with a gain of 1/8 as in TCP.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
}

impl RoundTrip {
    /// Returns the smoothed time, or zero before the first response.
    pub(super) fn get(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    pub(super) fn add(&mut self, latency: Duration) {
        // A u64 of nanoseconds lasts for centuries.
        let nanos = |time: Duration| time.as_nanos() as u64;
        self.smoothed = Some(match self.smoothed {
            None => latency,
            Some(smoothed) => {
                let smoothed = nanos(smoothed);
                Duration::from_nanos(smoothed - smoothed / 8 + nanos(latency) / 8)
            }
        });
    }
}

/// Detects a slow server by the fastest response of a whole round trip.
#[derive(Debug, Default)]
pub(super) struct LatencyRounds {
    /// A round ends with a response to a request that was sent after this one.
    ends_after: u64,
    responses: u32,
    fastest: Option<Duration>,
    /// The latency of the server when it is healthy, and when it was last updated.
    usual: Option<(Duration, Time)>,
}

impl LatencyRounds {
    /// Returns whether this takes four times as long as usual, and 100 ms longer.
    pub(super) fn is_slow(&self, latency: Duration) -> bool {
        let limit = |usual: Duration| (usual * 4).max(usual + SLOW_MARGIN);
        self.usual.is_some_and(|(usual, _)| latency > limit(usual))
    }

    /// Adds the response to request `number`; `last_sent` is the newest request so far.
    ///
    /// Returns whether it ends a round in which even the fastest response was slow.
    pub(super) fn add(
        &mut self,
        now: Time,
        number: u64,
        last_sent: u64,
        latency: Duration,
    ) -> bool {
        let fastest = self.fastest.map_or(latency, |fastest| fastest.min(latency));
        self.fastest = Some(fastest);
        self.responses += 1;
        if number <= self.ends_after || self.responses < MIN_ROUND {
            return false;
        }
        let was_slow = self.is_slow(fastest);
        self.learn_usual(now, fastest);
        self.ends_after = last_sent;
        self.responses = 0;
        self.fastest = None;
        was_slow
    }

    /// Follows a lower latency at once, and a higher one slowly: what lasts is usual.
    fn learn_usual(&mut self, now: Time, fastest: Duration) {
        self.usual = Some(match self.usual {
            Some((usual, since)) if usual < fastest => {
                let passed = now.saturating_sub(since).as_secs_f64();
                let gain = 1.0 - 0.5_f64.powf(passed / HALF_LIFE_SECS);
                (usual + (fastest - usual).mul_f64(gain), now)
            }
            _ => (fastest, now),
        });
    }
}
