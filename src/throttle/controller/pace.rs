//! The pace: how many requests go per second.
//!
//! There is none until the server has refused something. After that the rate follows the CUBIC curve around the rate
//! at which the server refused, or that it was measured to accept. While little is known about that rate, a search
//! doubles it until the server refuses.

use std::time::Duration;

use crate::clock::Time;
use crate::observe::PauseSource;

/// The pace may catch up this much of the time that a timer was late.
const TIMER_SLACK: Duration = Duration::from_micros(1500);
/// The rate where a search begins if nothing was measured, in requests per second.
pub(super) const INITIAL_RATE: f64 = 20.0;
/// A first search from a measured rate begins at least at this rate.
pub(super) const MIN_FIRST_RATE: f64 = 10.0;
/// The rate never falls below this: one request in 30 seconds.
pub(super) const MIN_RATE: f64 = 1.0 / 30.0;
/// A refused rate is cut to this part of its reference.
const CUT_FACTOR: f64 = 0.85;
/// The same if the refusal closes the gate for at least [`COSTLY_HINT`].
const COSTLY_CUT_FACTOR: f64 = 0.7;
/// From this hint on, a refusal costs more than a lower rate.
const COSTLY_HINT: Duration = Duration::from_millis(500);
/// The reference after a refused search, as a part of the refused rate. Half of that rate was accepted before.
const SEARCH_REFERENCE: f64 = 0.75;
/// The rate after a refused search, as a part of the refused rate.
const SEARCH_CUT: f64 = 0.5;
/// A measured rate may be low. Beyond it, the curve is as steep as after a cut to half, so the rate rises fast.
const FIRST_CUT_FACTOR: f64 = 0.5;
/// A reference is at least this part of the rate that the server refused.
const MIN_ACCEPTED_SHARE: f64 = 0.7;
/// No curve takes longer, in seconds: five times a pause of a minute. The controller forgets a pace after a longer pause,
/// but the curve does not rely on that.
const MAX_RISE_TIME: f64 = 300.0;
/// A pace that reopens has at least this part of the rate before.
const MIN_REOPEN_SHARE: f64 = 0.2;

/// How long a search waits between two doublings, at least.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchStep {
    secs: f64,
    round_trips: f64,
}

/// Before the server has refused any pace, so nothing is known about its limit.
const FIRST_SEARCH: SearchStep = SearchStep {
    secs: 0.2,
    round_trips: 2.0,
};
/// After an outage in which nothing could be measured. Many clients come back together, and faster doubling would
/// overload the server again.
const LATER_SEARCH: SearchStep = SearchStep {
    secs: 0.4,
    round_trips: 3.0,
};

#[derive(Debug)]
pub(super) struct Pace {
    /// When the next request may go.
    pub(super) next: Time,
    /// Requests per second, at least `MIN_RATE`.
    rate: f64,
    /// The rate at which the server refused (CUBIC's W_max). Updated with `rate` while searching.
    reference: f64,
    /// The rate after the last cut, below `reference`.
    cut: f64,
    /// Seconds in which the rate rises from `cut` to `reference` (CUBIC's K).
    rise_time: f64,
    /// Seconds on the curve so far. Only time counts in which the pace held calls back: otherwise the
    /// rate would rise without any traffic.
    progress: f64,
    /// The rate doubles until the server refuses, because its limit is unknown, or known only from below.
    pub(super) search: Option<SearchStep>,
    /// Only the pace has held the next call back.
    is_limiting: bool,
    last_sent: Time,
}

impl Pace {
    /// Starts at `rate`, on the flat part of the curve.
    pub(super) fn new(now: Time, rate: f64, round_trip: Duration) -> Self {
        let rate = rate.max(MIN_RATE);
        let rise_time = rise_time(rate, round_trip, Duration::ZERO);
        Self {
            next: now + interval(rate),
            rate,
            reference: rate,
            cut: FIRST_CUT_FACTOR * rate,
            rise_time,
            progress: rise_time,
            search: None,
            is_limiting: false,
            last_sent: now,
        }
    }

    /// Starts at `rate`, and doubles it until the server refuses.
    fn search(now: Time, rate: f64, step: SearchStep, round_trip: Duration) -> Self {
        Self {
            progress: 0.0,
            search: Some(step),
            ..Self::new(now, rate, round_trip)
        }
    }

    /// Starts a search from a measured rate that is only a lower limit.
    pub(super) fn first_search(now: Time, measured: f64, round_trip: Duration) -> Self {
        Self::search(now, measured.max(MIN_FIRST_RATE), FIRST_SEARCH, round_trip)
    }

    /// Starts after a probe came through.
    ///
    /// `measured` is the rate that the server accepted before, if there was enough to measure.
    pub(super) fn reopen(
        now: Time,
        measured: Option<f64>,
        before: Option<&Self>,
        round_trip: Duration,
    ) -> Self {
        match (measured, before.map(|pace| pace.reference)) {
            (Some(rate), None) => Self::new(now, rate, round_trip),
            (Some(rate), Some(before)) => {
                let rate = rate.clamp(MIN_REOPEN_SHARE * before, before);
                Self::new(now, rate, round_trip)
            }
            (None, None) => Self::search(now, INITIAL_RATE, LATER_SEARCH, round_trip),
            (None, Some(before)) => {
                // A low rate does not fall each time, because a second or two is too short to measure it.
                let rate = (MIN_REOPEN_SHARE * before).max(before.min(INITIAL_RATE));
                Self::search(now, rate, LATER_SEARCH, round_trip)
            }
        }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Continues at another rate, at the same point of its curve.
    pub(super) fn adopt(&mut self, rate: f64) {
        let factor = rate / self.rate;
        self.rate *= factor;
        self.reference *= factor;
        self.cut *= factor;
    }

    /// Returns when the next request may go, if that is later than `now`.
    pub(super) fn hold(&mut self, now: Time) -> Option<Time> {
        if self.next <= now {
            return None;
        }
        self.is_limiting = true;
        Some(self.next)
    }

    /// Whether it holds calls back, or did something within `recent`.
    pub(super) fn is_in_use(&self, now: Time, recent: Duration) -> bool {
        self.is_limiting || now.saturating_sub(self.last_sent) < recent
    }

    /// Counts one request, and returns the rate at which it goes.
    pub(super) fn send(&mut self, now: Time, round_trip: Duration) -> f64 {
        let gap = now.saturating_sub(self.last_sent).as_secs_f64();
        if std::mem::take(&mut self.is_limiting) {
            self.rise(gap.min(2.0 / self.rate), round_trip);
        }
        self.last_sent = now;
        let earliest = now.saturating_sub(TIMER_SLACK);
        self.next = self.next.max(earliest) + interval(self.rate);
        self.rate
    }

    /// Takes back a request that was counted at this rate and never sent.
    pub(super) fn undo_send(&mut self, rate: f64) {
        self.next = self.next.saturating_sub(interval(rate));
    }

    fn rise(&mut self, seconds: f64, round_trip: Duration) {
        self.progress += seconds;
        if let Some(step) = self.search {
            let round_trips = step.round_trips * round_trip.as_secs_f64();
            let doubling = step.secs.max(3.0 / self.rate).max(round_trips);
            if self.progress >= doubling {
                self.progress = 0.0;
                self.rate *= 2.0;
                self.reference = self.rate;
            }
        } else {
            // The CUBIC curve: steep at the cut, flat at the reference, and steep again beyond it.
            let distance = (self.progress - self.rise_time) / self.rise_time;
            let depth = 1.0 - self.cut / self.reference;
            let rate = self.reference * (1.0 + depth * distance.powi(3));
            self.rate = rate.max(MIN_RATE);
        }
    }

    /// Slows down after the server refused a request that was sent at `sent_at`.
    ///
    /// `accepted_share` is the part of the requests that it accepted since the cut before. Failures say less about the
    /// rate than a refusal, so they do not halve it.
    pub(super) fn cut(
        &mut self,
        sent_at: Option<f64>,
        accepted_share: f64,
        round_trip: Duration,
        hint: Option<Duration>,
        source: PauseSource,
    ) {
        let refused = sent_at.unwrap_or(self.rate).min(self.rate);
        let (reference, cut) = match self.search.take() {
            Some(_) if source == PauseSource::Refusal => (SEARCH_REFERENCE, SEARCH_CUT),
            _ => {
                let share = accepted_share.clamp(MIN_ACCEPTED_SHARE, 1.0);
                let is_costly = hint.is_some_and(|hint| hint >= COSTLY_HINT);
                let factor = if is_costly {
                    COSTLY_CUT_FACTOR
                } else {
                    CUT_FACTOR
                };
                (share, factor * share)
            }
        };
        self.reference = (refused * reference).max(MIN_RATE);
        self.cut = (refused * cut).min(CUT_FACTOR * self.reference);
        self.rate = self.cut.max(MIN_RATE);
        self.rise_time = rise_time(self.reference, round_trip, hint.unwrap_or_default());
        self.progress = 0.0;
        self.is_limiting = false;
    }
}

/// Longer for low rates, for servers that are far, and for servers that ask for long pauses: the more a refusal costs,
/// the less often one is risked. Never longer than [`MAX_RISE_TIME`].
pub(super) fn rise_time(rate: f64, round_trip: Duration, hint: Duration) -> f64 {
    let round_trip = round_trip.as_secs_f64().min(1.0);
    (6.0 / rate)
        .clamp(0.5, 5.0)
        .max(4.0 * round_trip)
        .max(5.0 * hint.as_secs_f64())
        .min(MAX_RISE_TIME)
}

/// The time between two requests.
pub(super) fn interval(rate: f64) -> Duration {
    Duration::from_secs_f64(1.0 / rate)
}
