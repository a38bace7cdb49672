//! The congestion controller of one gate: decides when the next request may go.
//!
//! Pure: time, chance and signals come in, decisions come out. Nothing here waits, locks or knows HTTP.
//!
//! Two limits work in series. The [`CongestionWindow`] limits how many requests are in flight; it opens while the
//! server keeps up. The [`Pace`] limits how many go per second; there is none until the server refuses
//! something, so a server that never refuses is never slowed.
//!
//! After a refusal the controller holds everything for a moment and becomes [`HalfOpen`]: a single probe
//! goes. Its success reopens the gate at the rate that the server accepted before. A server can also ask
//! for a pause, or announce a quota, which [`QuotaTracker`] counts down.
//!
//! `docs/decisions/throttle.md` explains where the numbers come from.

mod failures;
mod half_open;
mod hold;
mod latency;
mod pace;
mod quota;
mod recovery;
mod send_record;
mod view;
mod window;

use std::time::Duration;

use failures::FailureHistory;
use half_open::HalfOpen;
use hold::Hold;
pub(crate) use hold::MAX_PAUSE_JITTER;
use latency::RoundTrip;
use pace::Pace;
use quota::QuotaTracker;
use recovery::Recovery;
pub(crate) use send_record::SendRecord;
use window::CongestionWindow;

use super::meter::Meter;
use super::signal::{Signal, SignalKind};
use crate::clock::{TIMER_TICK, Time};
use crate::observe::PauseSource;

/// A single refusal at a pace closes the gate for at least this long.
const SHORT_HOLD: Duration = Duration::from_millis(10);
/// No pause lasts longer, whatever the server asks for. A probe goes after it.
const MAX_PAUSE: Duration = Duration::from_secs(60 * 60);
/// A server without a response for this long is silent.
const SILENCE: Duration = Duration::from_secs(1);
/// A pace that is not in use is forgotten this long after the last refusal.
const PACE_MEMORY: Duration = Duration::from_secs(60);

/// When the next request may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Admission {
    Now,
    /// Not before this time.
    At(Time),
    /// Not before a request in flight has ended.
    AfterResponse,
}

#[derive(Debug, Default)]
pub(crate) struct Controller {
    window: CongestionWindow,
    /// `None` until the server has refused something.
    pace: Option<Pace>,
    /// `Some` from a refusal until a probe comes through.
    half_open: Option<HalfOpen>,
    quota: QuotaTracker,
    failures: FailureHistory,
    recovery: Recovery,
    round_trip: RoundTrip,
    /// The rate that the server accepts.
    accepted: Meter,
    /// Requests that got a 503.
    unavailable: Meter,
    hold: Hold,
    /// Without a pace: responses that arrive together are read before more is sent.
    read_until: Time,
    /// The number of the newest request.
    last_sent: u64,
    /// When something was last sent or ended.
    last_event: Time,
    last_accepted: Time,
    /// The window was limiting when the server refused for the first time.
    was_window_limiting: bool,
}

impl Controller {
    /// The window never grows beyond `max_in_flight`.
    pub(crate) fn new(max_in_flight: u32) -> Self {
        Self {
            window: CongestionWindow::new(max_in_flight),
            ..Self::default()
        }
    }

    /// Limits the window anew. What it has learned stays, as far as the limit allows.
    pub(crate) fn set_max_in_flight(&mut self, max: u32) {
        self.window.set_max(max);
    }

    /// Whether the next request is a probe.
    pub(crate) fn is_half_open(&self) -> bool {
        self.half_open.is_some()
    }

    /// Whether a 503 is likely a refusal for the rate: requests go at a pace or as probes, and of those that the server
    /// accepted or refused with 503 in the last 1 to 2 s, it accepted at least a sixth. A server that accepts fewer is
    /// down or overloaded.
    pub(crate) fn refuses_with_503(&mut self, now: Time) -> bool {
        (self.half_open.is_some() || self.pace.is_some())
            && self.accepted.sum(now).saturating_mul(5) >= self.unavailable.sum(now)
    }

    /// The rate of the pace, in requests per second.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.pace.as_ref().map(Pace::rate)
    }

    /// Returns until when nothing may go; `now` if the gate is not closed.
    pub(crate) fn closed_until(&self, now: Time) -> Time {
        let quota = self.quota.spent_until().unwrap_or(now);
        self.hold.until.max(quota).max(now)
    }

    /// Returns who made the gate pause, and until when; `None` if there is no pause.
    pub(crate) fn closed_by(&self, now: Time) -> Option<(PauseSource, Time)> {
        let hold = (self.hold.source).map(|source| (source, self.hold.until));
        let spent = self.quota.spent_until();
        let quota = spent.map(|reset| (PauseSource::Quota, reset));
        let closed = hold
            .into_iter()
            .chain(quota)
            .filter(|(_, until)| now < *until);
        closed.max_by_key(|(_, until)| *until)
    }

    /// Whether it knows anything that a new controller would not know.
    pub(crate) fn has_learned(&self, now: Time) -> bool {
        self.half_open.is_some() || self.pace.is_some() || self.closed_until(now) > now
    }

    /// Estimates how long it takes to send this many calls.
    pub(crate) fn time_for(&self, calls: usize) -> Duration {
        let calls = calls as f64;
        let seconds = match &self.pace {
            Some(pace) => calls / pace.rate(),
            None => (calls + 1.0) / self.window.size * self.round_trip.get().as_secs_f64(),
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Continues at the rate that a fleet found.
    pub(crate) fn adopt_rate(&mut self, now: Time, rate: f64) {
        let rate = rate.max(pace::MIN_RATE);
        match &mut self.pace {
            Some(pace) => pace.adopt(rate),
            None => self.pace = Some(Pace::new(now, rate, self.round_trip.get())),
        }
    }

    /// Decides whether a request may go now, and if not, when to ask again.
    pub(crate) fn admission(&mut self, now: Time, in_flight: u32) -> Admission {
        let closed = self.closed_until(now);
        if now < closed {
            return Admission::At(closed);
        }
        if self.quota.renew(now, self.last_sent + 1) {
            // A probe finds out the new quota, without a hold before it.
            self.recovery.ignore_sent(self.last_sent);
            self.enter_half_open(now);
        }
        if let Some(admission) = self.probe_admission(now) {
            return admission;
        }
        if let Some(reset) = self.quota.used_up_until() {
            return Admission::At(reset);
        }
        if self.window.is_full(in_flight) {
            // Requests that never end, like long polls, do not keep all others out.
            let patience = self.silent_from();
            if now < patience {
                return Admission::At(patience);
            }
        }
        match &mut self.pace {
            Some(pace) => match pace.hold(now) {
                Some(next) => {
                    self.window.not_limiting();
                    Admission::At(next)
                }
                None => Admission::Now,
            },
            None if now < self.read_until => Admission::At(self.read_until),
            None => Admission::Now,
        }
    }

    /// While half-open, only a probe may go, and one at a time.
    fn probe_admission(&mut self, now: Time) -> Option<Admission> {
        let half_open = self.half_open.as_mut()?;
        Some(match half_open.probe_expires() {
            None => Admission::Now,
            Some(expires) if now < expires => Admission::At(expires),
            Some(_) => {
                let hold = half_open.give_up_probe(now);
                (self.hold).close(now + hold, Some(PauseSource::Failures));
                Admission::At(self.hold.until)
            }
        })
    }

    /// Counts one request. Call it only after [`admission`](Self::admission) returned `Now`.
    pub(crate) fn send(&mut self, now: Time) -> SendRecord {
        self.last_sent += 1;
        self.last_event = now;
        self.quota.send();
        self.accepted.advance(now);
        self.forget_unused_pace(now);
        let round_trip = self.round_trip.get();
        let mut rate = None;
        if let Some(half_open) = &mut self.half_open {
            // A probe does not go at the pace, so the pace does not count it.
            half_open.start_probe(now, self.last_sent, round_trip);
        } else if let Some(pace) = &mut self.pace {
            rate = Some(pace.send(now, round_trip));
        }
        SendRecord {
            number: self.last_sent,
            sent_at: now,
            rate,
        }
    }

    /// Takes back a request that was counted and never sent.
    pub(crate) fn undo_send(&mut self, record: SendRecord) {
        self.end_probe(record);
        if let (Some(pace), Some(rate)) = (&mut self.pace, record.rate) {
            pace.undo_send(rate);
        }
        self.quota.undo_send();
    }

    /// Learns from a response, or from an error in its place.
    ///
    /// `in_flight` counts the requests that are still out. `spread` is the jitter of a hold, 1 to 1.25.
    pub(crate) fn on_response(
        &mut self,
        now: Time,
        record: SendRecord,
        signal: &Signal,
        in_flight: u32,
        has_waiters: bool,
        spread: f64,
    ) {
        let latency = now.saturating_sub(record.sent_at);
        let hint = signal.hint.map(|hint| hint.min(MAX_PAUSE));
        if let Some(hint) = hint {
            self.hold.pause(now, hint, spread);
        }
        self.last_event = now;
        if let Some(quota) = signal.quota {
            let round_trip = self.round_trip.get();
            (self.quota).learn(now, record, self.last_sent, quota, round_trip);
        }
        match signal.kind {
            SignalKind::Accepted => {
                self.round_trip.add(latency);
                self.on_success(now, record, latency);
            }
            SignalKind::Refused => {
                self.round_trip.add(latency);
                self.on_refusal(now, record, PauseSource::Refusal, hint, spread);
            }
            SignalKind::Unavailable => {
                self.unavailable.count(now);
                self.on_failure(now, record, false, hint, spread);
            }
            SignalKind::Failed => self.on_failure(now, record, false, hint, spread),
            SignalKind::Late => self.on_failure(now, record, true, hint, spread),
            SignalKind::Unknown => {}
        }
        if !has_waiters {
            self.window.on_empty_queue(in_flight);
        }
        self.end_probe(record);
        if has_waiters {
            self.wait_for_batch(now);
        }
    }

    /// Learns from a request that its caller gave up; `timed_out`: because it took too long.
    pub(crate) fn on_abandoned(
        &mut self,
        now: Time,
        record: SendRecord,
        timed_out: bool,
        spread: f64,
    ) {
        let age = now.saturating_sub(record.sent_at);
        // Callers give up for many reasons. This one may be a server that responds to nothing.
        let is_silent =
            age >= SILENCE.max(self.round_trip.get() * 4) && self.last_accepted <= record.sent_at;
        if timed_out || is_silent {
            self.on_failure(now, record, true, None, spread);
        }
        self.last_event = now;
        self.end_probe(record);
    }

    fn on_success(&mut self, now: Time, record: SendRecord, latency: Duration) {
        self.last_accepted = now;
        self.accepted.count(now);
        self.failures.add_success();
        (self.window).on_success(now, record, self.last_sent, latency);
        if self.recovery.covers(record) {
            return;
        }
        if self.half_open.is_some() {
            self.reopen(now);
        }
        self.recovery.on_success();
    }

    /// One failure may be chance. Many show a server in trouble, which is treated like a refusal.
    fn on_failure(
        &mut self,
        now: Time,
        record: SendRecord,
        late: bool,
        hint: Option<Duration>,
        spread: f64,
    ) {
        if self.recovery.covers(record) {
            return;
        }
        self.failures.add_failure();
        let asks_for_pause = hint.is_some_and(|hint| !hint.is_zero());
        let source = PauseSource::Failures;
        if self.half_open.is_some() {
            self.on_refusal(now, record, source, hint, spread);
        } else if self.failures.show_outage() || asks_for_pause {
            self.window.halve(record, self.last_sent);
            self.on_refusal(now, record, source, hint, spread);
        } else if late && self.failures.show_overload() {
            self.window.halve(record, self.last_sent);
        } else if self.failures.show_strain() {
            self.cut_for_strain(record);
        }
    }

    /// Cuts a pace, or becomes half-open where there is none or where a cut did not help.
    fn on_refusal(
        &mut self,
        now: Time,
        record: SendRecord,
        source: PauseSource,
        hint: Option<Duration>,
        spread: f64,
    ) {
        if self.recovery.covers(record) {
            return;
        }
        if self.pace.is_none() && self.half_open.is_none() {
            self.was_window_limiting = self.window.is_limiting;
        }
        self.failures.clear();
        let accepted_share = self.recovery.on_refusal(now, self.last_sent);
        let (hold, source) = match &mut self.pace {
            Some(pace) if self.recovery.is_first_refusal() && self.half_open.is_none() => {
                let round_trip = self.round_trip.get();
                pace.cut(record.rate, accepted_share, round_trip, hint, source);
                (pace::interval(pace.rate()).max(SHORT_HOLD), None)
            }
            _ => (self.enter_half_open(now), Some(source)),
        };
        // Clients that were refused together do not come back together.
        (self.hold).close(now + hold.mul_f64(spread), source);
    }

    fn cut_for_strain(&mut self, record: SendRecord) {
        if let Some(pace) = &mut self.pace {
            let share = self.failures.cut_for_strain();
            let (round_trip, source) = (self.round_trip.get(), PauseSource::Failures);
            pace.cut(record.rate, share, round_trip, None, source);
            self.recovery.on_strain(self.last_sent);
        }
    }

    /// Becomes half-open, or stays so, and returns how long to hold before the next probe.
    fn enter_half_open(&mut self, now: Time) -> Duration {
        let half_open = self.half_open.get_or_insert_with(|| HalfOpen::new(now));
        half_open.next_hold(now)
    }

    /// Leaves half-open. From here on there is a pace: the rate that the server really accepted.
    fn reopen(&mut self, now: Time) {
        self.half_open = None;
        let measured = self.accepted.rate(now);
        let round_trip = self.round_trip.get();
        // The measured rate is only a lower limit if nothing waited, or if it spans a long pause after one refusal.
        let is_lower_limit =
            !self.was_window_limiting || self.recovery.was_long_pause(now, round_trip);
        self.pace = Some(match (&self.pace, measured) {
            (None, Some(rate)) if is_lower_limit => Pace::first_search(now, rate, round_trip),
            (before, measured) => Pace::reopen(now, measured, before.as_ref(), round_trip),
        });
        // The pace is careful enough for both.
        self.window.resume_slow_start();
    }

    /// Without a pace, holds the next request for one tick: a refusal may be right behind this response.
    /// Responses that keep coming hold nothing longer than that.
    fn wait_for_batch(&mut self, now: Time) {
        if self.pace.is_none() && self.read_until + TIMER_TICK <= now {
            self.read_until = now + TIMER_TICK;
        }
    }

    /// Forgets a pace that holds nothing back, long after the last refusal. The window starts anew.
    fn forget_unused_pace(&mut self, now: Time) {
        if self.forgets_pace(now) {
            self.pace = None;
            self.window.restart();
        }
    }

    fn end_probe(&mut self, record: SendRecord) {
        if let Some(half_open) = &mut self.half_open {
            half_open.end_probe(record.number);
        }
    }
}

#[cfg(test)]
mod tests;
