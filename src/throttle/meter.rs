//! What the law counts.

use std::time::Duration;

use super::law::Time;
use crate::two_windows::{Advance, TwoWindows};

const SPAN: Duration = Duration::from_secs(1);
/// A slow answer takes at least so much longer than usual.
const MARGIN: Duration = Duration::from_millis(100);

/// Requests accepted per second, over the last one to two seconds.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Begin with the first request. After a restart, the first second counts as the previous window, so
    /// `start` lies up to a second ahead.
    windows: Option<TwoWindows>,
}

impl Meter {
    /// Starts the measurement when the first request is sent.
    pub(super) fn begin(&mut self, now: Time) {
        self.advance(now);
    }

    /// Counts an accepted request.
    pub(super) fn count(&mut self, now: Time) {
        let windows = self.advance(now);
        if now < windows.start() {
            windows.previous += 1;
        } else {
            windows.current += 1;
        }
    }

    /// Requests per second; `None` if there was at most one.
    pub(super) fn rate(&mut self, now: Time) -> Option<f64> {
        let windows = self.advance(now);
        let count = windows.sum();
        let began = windows.start().saturating_sub(SPAN);
        let passed = now.saturating_sub(began).as_secs_f64();
        (count > 1 && passed > 0.0).then(|| f64::from(count) / passed)
    }

    fn advance(&mut self, now: Time) -> &mut TwoWindows {
        let windows = (self.windows).get_or_insert_with(|| TwoWindows::new(SPAN, now + SPAN));
        if windows.advance(now) == Advance::Restarted {
            windows.start_at(now + SPAN);
        }
        windows
    }
}

/// The last endings, at most 32: a bit for each that failed.
#[derive(Debug, Default)]
pub(super) struct Endings {
    failed: u32,
    count: u32,
}

impl Endings {
    pub(super) fn push(&mut self, accepted: bool) {
        self.failed = (self.failed << 1) | u32::from(!accepted);
        self.count = (self.count + 1).min(32);
    }

    pub(super) fn failed(&self) -> u32 {
        self.failed.count_ones()
    }

    /// How many of them were accepted.
    pub(super) fn share(&self) -> f64 {
        1.0 - f64::from(self.failed()) / f64::from(self.count.max(1))
    }

    /// Three of the last 32.
    pub(super) fn show_strain(&self) -> bool {
        self.failed() >= 3
    }

    /// Five in a row, or a third of at least sixteen: more than chance.
    pub(super) fn show_trouble(&self) -> bool {
        self.failed.trailing_ones() >= 5
            || (self.count >= 16 && self.failed() * 100 >= self.count * 34)
    }
}

/// Tells a slow server from a slow request: by the fastest answer of a whole round.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The round ends with an answer to a request after this one.
    ends_after: u64,
    answers: u32,
    fastest: Option<Duration>,
    /// The time that the server needs when it is well.
    usual: Option<(Duration, Time)>,
}

impl Rounds {
    pub(super) fn is_slow(&self, latency: Duration) -> bool {
        let slow = |(usual, _): (Duration, Time)| (usual * 4).max(usual + MARGIN);
        self.usual.is_some_and(|usual| latency > slow(usual))
    }

    /// Takes an answer's time, and says whether a round has ended in which all were slow.
    pub(super) fn end(&mut self, now: Time, number: u64, sent: u64, latency: Duration) -> bool {
        let fastest = self.fastest.map_or(latency, |fastest| fastest.min(latency));
        self.fastest = Some(fastest);
        self.answers += 1;
        if number <= self.ends_after || self.answers < 8 {
            return false;
        }
        let slow = self.is_slow(fastest);
        self.usual = Some(match self.usual {
            Some((usual, since)) if usual < fastest => {
                // What lasts is usual. Half of the way in ten seconds.
                let passed = now.saturating_sub(since).as_secs_f64();
                let way = 1.0 - 0.5_f64.powf(passed / 10.0);
                (usual + (fastest - usual).mul_f64(way), now)
            }
            _ => (fastest, now),
        });
        self.ends_after = sent;
        self.answers = 0;
        self.fastest = None;
        slow
    }
}
