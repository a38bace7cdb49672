//! What the law counts.

use std::time::Duration;

use super::law::Time;

const SPAN: Duration = Duration::from_secs(1);
/// A slow answer takes at least so much longer than usual.
const MARGIN: Duration = Duration::from_millis(100);

/// How many were accepted a second, over the last one to two seconds.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// When the older of two spans began.
    began: Option<Time>,
    older: u32,
    newer: u32,
}

impl Meter {
    /// Something was sent.
    pub(super) fn begin(&mut self, now: Time) {
        self.turn(now);
    }

    /// Something was accepted.
    pub(super) fn count(&mut self, now: Time) {
        let began = self.turn(now);
        if now.saturating_sub(began) < SPAN {
            self.older += 1;
        } else {
            self.newer += 1;
        }
    }

    /// Requests a second; `None` if there was no more than one.
    pub(super) fn rate(&mut self, now: Time) -> Option<f64> {
        let began = self.turn(now);
        let count = self.older + self.newer;
        let passed = now.saturating_sub(began).as_secs_f64();
        (count > 1 && passed > 0.0).then(|| f64::from(count) / passed)
    }

    /// Lets go of what is too long ago.
    fn turn(&mut self, now: Time) -> Time {
        let began = *self.began.get_or_insert(now);
        let passed = now.saturating_sub(began);
        if passed < 2 * SPAN {
            return began;
        }
        let began = if passed < 3 * SPAN {
            self.older = std::mem::take(&mut self.newer);
            began + SPAN
        } else {
            (self.older, self.newer) = (0, 0);
            now
        };
        self.began = Some(began);
        began
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
