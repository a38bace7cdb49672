//! The law of one key: when the next request may go, learned from the answers to those before.
//!
//! Pure: time, chance and answers come in, decisions come out; nothing here waits, locks, or knows
//! of HTTP. Two valves are in series. A **window** bounds how many are in flight; it opens step by
//! step while the server keeps up. A **pace** bounds how many go in a second; there is none until
//! the server has refused something, so that a server that never refuses is never slowed.
//!
//! After a refusal the law closes for a moment, sends a single probe (`half-open`), and on its
//! success reopens at the rate that was really accepted before. ARCHITECTURE.md tells where the
//! numbers come from.

use std::time::Duration;

use super::meter::{Endings, Meter, Rounds};

/// tokio's timers fire on whole milliseconds.
const GRAIN: Duration = Duration::from_millis(1);
/// What a pace may catch up of the time that a timer was late.
const SLACK: Duration = Duration::from_micros(1500);

/// How many go at once to a server that nothing is known of.
const FIRST_WINDOW: f64 = 16.0;
/// A server in trouble gets no fewer than these at once, unless it is down to a single probe.
const LEAST_WINDOW: f64 = 4.0;

/// The first time the law closes for so long; each time in a row, twice as long.
const FIRST_HOLD: Duration = Duration::from_millis(100);
/// Up to this, or to an eighth of the time that the trouble has lasted.
const LONG_HOLD: Duration = Duration::from_secs(2);
const LONGEST_HOLD: Duration = Duration::from_secs(30);
/// A paced server that refuses once is given at least so long.
const SHORT_HOLD: Duration = Duration::from_millis(10);

/// Nobody keeps a key closed for longer on one server's word; then a probe asks again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);
/// A pause ends up to so much later than asked for.
pub(crate) const LONGEST_SPREAD: Duration = Duration::from_secs(1);
/// Whole seconds that count down to nothing may mean any moment now: shorter resets are not trusted.
const SHORTEST_RESET: Duration = Duration::from_secs(2);

/// Answers that took too long shrink the window if so many of the last 32 failed.
const MANY_LATE: u32 = 5;
/// Nothing is heard from the server for a long time.
const LONG_SILENCE: Duration = Duration::from_secs(1);
/// A refusal is forgotten if there was none for so long.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A pace is cut so often for failures that may be chance, before a calm time.
const MOST_STRAIN_CUTS: u32 = 3;
/// A calm time is so many successes in a row.
const CALM: u64 = 100;

/// A rate to begin with when nothing is known, in requests a second.
const FIRST_RATE: f64 = 20.0;
const LEAST_RATE: f64 = 1.0 / 30.0;

/// Since the law was made, on the clock of whoever asks.
pub(crate) type Time = Duration;

/// When the next request may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Turn {
    Now,
    /// Not before.
    At(Time),
    /// Not before something in flight has ended.
    AfterAnswer,
}

/// A request that was let go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    /// Counts up from 1.
    number: u64,
    sent: Time,
    /// The pace that it was sent at.
    rate: Option<f64>,
}

impl Ticket {
    /// For what need not be looked at every time: the first, and one of sixteen.
    pub(crate) fn is_sample(&self) -> bool {
        self.number % 16 == 1
    }
}

/// How a request ended, as far as the law is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The server has done its part.
    Accepted,
    /// It said: too many.
    Refused,
    /// It said that something is wrong, or said nothing.
    Failed,
    /// It took too long.
    Late,
    /// Nothing that tells about the server.
    Unknown,
}

/// What an answer says about when to come again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) ending: Ending,
    /// How long the server asks to be left alone.
    pub(crate) hint: Option<Duration>,
    pub(crate) quota: Option<Quota>,
}

/// How much of a quota is left, and when it is full again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) left: u64,
    pub(crate) reset: Duration,
}

#[derive(Debug)]
pub(crate) struct Law {
    /// Nothing but the window holds anybody back, whatever the time is. HeldResponse, for every request asks.
    is_plain: bool,

    // The window.
    window: f64,
    /// Below it the window opens fast.
    threshold: f64,
    most: f64,
    /// The window, and nothing else, has held a call back, and it is still in use by half.
    window_limits: bool,
    rounds: Rounds,

    // The pace.
    pace: Option<Pace>,
    /// Without a pace: answers that come together are read together.
    release: Time,

    // Closed, for a time.
    /// On the server's word.
    pause_until: Time,
    /// On our own.
    hold_until: Time,
    trouble: Option<Trouble>,
    quota: Option<Remainder>,
    /// The request that asks what the new quota is.
    asked_after_reset: Option<u64>,
    distrusts_quota: bool,

    // What was seen.
    /// When something was sent or ended.
    last_event: Time,
    last_accepted: Time,
    last_refused: Time,
    sent: u64,
    /// Answers to requests up to this one are old news: the law has reacted to one of them.
    reacted: u64,
    /// The window was halved then.
    shrunk: u64,
    refused_in_a_row: u32,
    /// When the server refused for the first time, more wanted to go than could.
    was_limited: bool,
    accepted_since_cut: u32,
    endings: Endings,
    /// How many were accepted since the last failure.
    calm: u64,
    /// How often the pace was cut for some failures among successes, without a calm time since.
    strain_cuts: u32,
    accepted: Meter,
    /// Smoothed time from a request to its answer.
    round_trip: Option<Duration>,
}

/// What is left of a quota that is worth trusting.
#[derive(Debug)]
struct Remainder {
    /// By our own count.
    left: u64,
    /// The server itself said so.
    is_spent: bool,
    reset: Time,
    /// Says the answer to this request.
    source: u64,
}

/// Half-open: one probe at a time.
#[derive(Debug)]
struct Trouble {
    since: Time,
    holds: u32,
    probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u64,
    /// Nobody waits longer for its answer.
    expires: Time,
}

impl Law {
    /// `most`: the window never opens further.
    pub(crate) fn new(most: u32) -> Self {
        let most = f64::from(most);
        Self {
            is_plain: true,
            window: FIRST_WINDOW.min(most),
            threshold: most,
            most,
            window_limits: false,
            rounds: Rounds::default(),
            pace: None,
            release: Time::ZERO,
            pause_until: Time::ZERO,
            hold_until: Time::ZERO,
            trouble: None,
            quota: None,
            asked_after_reset: None,
            distrusts_quota: false,
            last_event: Time::ZERO,
            last_accepted: Time::ZERO,
            last_refused: Time::ZERO,
            sent: 0,
            reacted: 0,
            shrunk: 0,
            refused_in_a_row: 0,
            was_limited: false,
            accepted_since_cut: 0,
            endings: Endings::default(),
            calm: 0,
            strain_cuts: 0,
            accepted: Meter::default(),
            round_trip: None,
        }
    }

    /// Whether the next to go is a probe.
    pub(crate) fn is_probing(&self) -> bool {
        self.trouble.is_some()
    }

    /// Until when nobody may go, whatever happens.
    pub(crate) fn closed_until(&self, now: Time) -> Time {
        let spent = self.quota.as_ref().filter(|quota| quota.is_spent);
        let quota = spent.map_or(now, |quota| quota.reset);
        self.pause_until.max(self.hold_until).max(quota).max(now)
    }

    /// How long it takes until so many have gone, as far as can be told.
    pub(crate) fn time_for(&self, calls: usize) -> Duration {
        let calls = calls as f64;
        let time = match &self.pace {
            Some(pace) => calls / pace.rate,
            None => (calls + 1.0) / self.window * self.usual().as_secs_f64(),
        };
        Duration::try_from_secs_f64(time).unwrap_or(Duration::MAX)
    }

    /// Whether there is anything that a new law would not know.
    pub(crate) fn has_learned(&self, now: Time) -> bool {
        self.trouble.is_some() || self.pace.is_some() || self.closed_until(now) > now
    }

    /// Whether nothing but the window holds anybody back, whatever the time is, as far as was noticed.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        debug_assert!(!self.is_plain || self.looks_plain());
        self.is_plain
    }

    fn looks_plain(&self) -> bool {
        self.trouble.is_none()
            && self.pace.is_none()
            && self.quota.is_none()
            && self.pause_until.is_zero()
            && self.hold_until.is_zero()
    }

    /// The pace, in requests a second, if there is one.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.pace.as_ref().map(|pace| pace.rate)
    }

    /// Goes on at a pace that was found together with others.
    pub(crate) fn adopt(&mut self, now: Time, rate: f64) {
        self.is_plain = false;
        let rate = rate.max(LEAST_RATE);
        match &mut self.pace {
            Some(pace) => pace.scale(rate / pace.rate),
            None => self.pace = Some(Pace::new(now, rate, false, self.round_trip)),
        }
    }

    /// Whether a call may go now, and if not, when to ask again.
    pub(crate) fn turn(&mut self, now: Time, in_flight: u32) -> Turn {
        if !self.is_plain() {
            self.is_plain = self.looks_plain();
            if let Some(turn) = self.special_turn(now) {
                return turn;
            }
        }
        self.usual_turn(now, in_flight)
    }

    /// Closed, half-open, or at the end of a quota.
    #[cold]
    fn special_turn(&mut self, now: Time) -> Option<Turn> {
        let closed = self.closed_until(now);
        if now < closed {
            return Some(Turn::At(closed));
        }
        let over = self.quota.take_if(|quota| quota.reset <= now);
        if over.is_some_and(|quota| quota.left == 0) {
            // The quota is full again, but nobody knows how much that is.
            self.reacted = self.sent;
            self.asked_after_reset = Some(self.sent + 1);
            self.half_open(now);
        }
        if let Some(trouble) = &mut self.trouble {
            return Some(match trouble.probe {
                None => Turn::Now,
                Some(probe) if now < probe.expires => Turn::At(probe.expires),
                Some(_) => {
                    trouble.probe = None;
                    self.hold_until = now + self.half_open(now);
                    Turn::At(self.hold_until)
                }
            });
        }
        // By our own count. The answers that are under way may know better.
        let quota = self.quota.as_ref().filter(|quota| quota.left == 0);
        quota.map(|quota| Turn::At(quota.reset))
    }

    /// As the window and the pace allow.
    fn usual_turn(&mut self, now: Time, in_flight: u32) -> Turn {
        if f64::from(in_flight) + 1.0 > self.window {
            self.window_limits = true;
            // Requests that take for ever, like long polls, do not keep all others out.
            let patience = self.last_event + LONG_SILENCE.max(self.usual() * 2);
            if now < patience {
                return Turn::At(patience);
            }
        }
        match &mut self.pace {
            Some(pace) if now < pace.next => {
                self.window_limits = false;
                pace.limits = true;
                Turn::At(pace.next)
            }
            None if now < self.release => Turn::At(self.release),
            _ => Turn::Now,
        }
    }

    /// Lets one go. Only after [`turn`](Self::turn) has said so.
    pub(crate) fn send(&mut self, now: Time) -> Ticket {
        self.sent += 1;
        if let Some(quota) = &mut self.quota {
            quota.left = quota.left.saturating_sub(1);
        }
        self.accepted.begin(now);
        self.last_event = now;
        if self.pace.is_some() {
            self.forget_old_pace(now);
        }
        let mut rate = None;
        if let Some(trouble) = &mut self.trouble {
            // A probe does not go at the pace, and so does not use it up.
            let usual = self.round_trip.unwrap_or_default();
            let patience = (usual * 4).clamp(LONG_HOLD, LONGEST_HOLD);
            trouble.probe = Some(Probe {
                number: self.sent,
                expires: now + patience,
            });
        } else if let Some(pace) = &mut self.pace {
            rate = Some(pace.send(now, self.round_trip));
        }
        Ticket {
            number: self.sent,
            sent: now,
            rate,
        }
    }

    /// Takes back what was let go but never sent.
    pub(crate) fn unsend(&mut self, ticket: Ticket) {
        self.forget_probe(ticket);
        if let (Some(pace), Some(rate)) = (&mut self.pace, ticket.rate) {
            pace.next = pace.next.saturating_sub(seconds(1.0 / rate));
        }
        if let Some(quota) = &mut self.quota {
            quota.left = quota.left.saturating_add(1);
        }
    }

    /// What was sent was given up by its caller: because it took too long, or for whatever reason.
    pub(crate) fn abandoned(&mut self, now: Time, ticket: Ticket, late: bool, spread: f64) {
        let age = now.saturating_sub(ticket.sent);
        // Callers lose interest for many reasons. Here it may be the server that gave none an answer.
        let silent = age >= LONG_SILENCE.max(self.usual() * 4) && self.last_accepted <= ticket.sent;
        if late || silent {
            self.failed(now, ticket, true, None, spread);
        }
        self.last_event = now;
        self.forget_probe(ticket);
    }

    /// Learns from an answer. `in_flight` are those still out; `waiting`: calls wait for their turn;
    /// `spread`: by how much a hold is longer than it need be.
    pub(crate) fn answered(
        &mut self,
        now: Time,
        ticket: Ticket,
        answer: &Answer,
        in_flight: u32,
        waiting: bool,
        spread: f64,
    ) {
        let latency = now.saturating_sub(ticket.sent);
        let hint = answer.hint.map(|hint| hint.min(LONGEST_PAUSE));
        if let Some(hint) = hint {
            self.is_plain = false;
            // Not all at the same moment, where many were told the same.
            let spread = hint.min(LONGEST_SPREAD).mul_f64((spread - 1.0) * 4.0);
            self.pause_until = self.pause_until.max(now + hint + spread);
        }
        self.last_event = now;
        if let Some(quota) = answer.quota {
            self.learn_quota(now, ticket, quota);
        }
        match answer.ending {
            Ending::Accepted => {
                self.time(latency);
                self.accepted(now, ticket, latency);
            }
            Ending::Refused => {
                self.time(latency);
                self.refused(now, ticket, hint, spread);
            }
            Ending::Failed => self.failed(now, ticket, false, hint, spread),
            Ending::Late => self.failed(now, ticket, true, hint, spread),
            Ending::Unknown => {}
        }
        if !waiting && f64::from(in_flight) < self.window / 2.0 {
            self.window_limits = false;
        }
        self.forget_probe(ticket);
        if waiting && self.pace.is_none() && self.release + GRAIN <= now {
            // A refusal may be right behind: read it before more is sent. But answers that keep coming
            // do not keep others waiting.
            self.release = now + GRAIN;
        }
    }

    fn usual(&self) -> Duration {
        self.round_trip.unwrap_or_default()
    }

    /// A pace that has held nobody back, and was not refused for long, is of no use any more. What
    /// comes next starts as carefully as at first.
    fn forget_old_pace(&mut self, now: Time) {
        let is_old = now.saturating_sub(self.last_refused) > REMEMBERED;
        let holds = |pace: &Pace| pace.limits || now.saturating_sub(pace.last) < LONG_SILENCE;
        if is_old && self.trouble.is_none() && !self.pace.as_ref().is_none_or(holds) {
            self.pace = None;
            self.window = self.window.min(FIRST_WINDOW);
            self.threshold = self.most;
        }
    }

    fn forget_probe(&mut self, ticket: Ticket) {
        if let Some(trouble) = &mut self.trouble {
            trouble.probe = trouble.probe.filter(|probe| probe.number != ticket.number);
        }
    }

    fn time(&mut self, latency: Duration) {
        // Nobody waits for centuries, and dividing a `Duration` takes its time.
        let nanos = |time: Duration| time.as_nanos() as u64;
        self.round_trip = Some(match self.round_trip {
            None => latency,
            Some(smoothed) => {
                let smoothed = nanos(smoothed);
                Duration::from_nanos(smoothed - smoothed / 8 + nanos(latency) / 8)
            }
        });
    }

    #[cold]
    fn learn_quota(&mut self, now: Time, ticket: Ticket, quota: Quota) {
        let known = self.quota.as_ref().map_or(0, |quota| quota.source);
        if self.asked_after_reset == Some(ticket.number) {
            // If it is still used up, whatever is counted there, it is not us.
            self.distrusts_quota = quota.left == 0;
        }
        let is_far = quota.reset >= SHORTEST_RESET.max(self.usual() * 4);
        if is_far && ticket.number >= known && !self.distrusts_quota {
            let since = self.sent - ticket.number;
            self.is_plain = false;
            self.quota = Some(Remainder {
                left: quota.left.saturating_sub(since),
                is_spent: quota.left == 0,
                reset: now + quota.reset.min(LONGEST_PAUSE),
                source: ticket.number,
            });
        }
    }

    fn accepted(&mut self, now: Time, ticket: Ticket, latency: Duration) {
        self.last_accepted = now;
        self.accepted.count(now);
        self.endings.push(true);
        self.calm += 1;
        if self.calm == CALM {
            self.strain_cuts = 0;
        }
        if self.window_limits && !self.rounds.is_slow(latency) {
            let fast = self.window < self.threshold;
            let step = if fast {
                1.25
            } else {
                (1.0 / self.window).max(0.02)
            };
            self.window = (self.window + step).min(self.most);
        }
        if self.rounds.end(now, ticket.number, self.sent, latency) && self.window_limits {
            // Even the fastest answer of a whole round was slow.
            self.shrink(ticket);
            self.threshold = self.window;
        }
        if ticket.number > self.reacted {
            self.accepted_since_cut = self.accepted_since_cut.saturating_add(1);
            self.refused_in_a_row = 0;
            if self.trouble.is_some() {
                self.reopen(now);
            }
        }
    }

    /// One failure may be chance; many are a server in trouble.
    #[cold]
    fn failed(
        &mut self,
        now: Time,
        ticket: Ticket,
        late: bool,
        hint: Option<Duration>,
        spread: f64,
    ) {
        if ticket.number <= self.reacted {
            return;
        }
        self.endings.push(false);
        self.calm = 0;
        if self.trouble.is_some() {
            self.refused(now, ticket, hint, spread);
        } else if self.endings.show_trouble() || hint.is_some_and(|hint| !hint.is_zero()) {
            self.shrink(ticket);
            self.refused(now, ticket, hint, spread);
        } else if late && self.endings.failed() >= MANY_LATE {
            self.shrink(ticket);
        } else if self.endings.show_strain() && self.strain_cuts < MOST_STRAIN_CUTS {
            self.slow_down(ticket);
        }
    }

    /// A limit that answers 503 cannot be told from failures by chance at first. But if it is one,
    /// going slower helps; if not, it is of no use to go slower and slower.
    fn slow_down(&mut self, ticket: Ticket) {
        if let Some(pace) = &mut self.pace {
            let sent_at = ticket.rate.unwrap_or(pace.rate);
            pace.cut(sent_at, self.endings.share(), self.round_trip, None);
            self.strain_cuts += 1;
            self.reacted = self.sent;
            self.accepted_since_cut = 0;
            self.endings = Endings::default();
        }
    }

    /// Once for all that was in flight together.
    fn shrink(&mut self, ticket: Ticket) {
        if ticket.number > self.shrunk {
            self.shrunk = self.sent;
            self.window = (self.window / 2.0).max(LEAST_WINDOW).min(self.most);
        }
    }

    #[cold]
    fn refused(&mut self, now: Time, ticket: Ticket, hint: Option<Duration>, spread: f64) {
        if ticket.number <= self.reacted {
            return;
        }
        self.last_refused = now;
        self.reacted = self.sent;
        if self.pace.is_none() && self.trouble.is_none() {
            self.was_limited = self.window_limits;
        }
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
        self.endings = Endings::default();
        let accepted = f64::from(std::mem::take(&mut self.accepted_since_cut));
        let share = accepted / (accepted + 1.0);
        let hold = match &mut self.pace {
            Some(pace) if self.refused_in_a_row == 1 && self.trouble.is_none() => {
                let sent_at = ticket.rate.unwrap_or(pace.rate);
                pace.cut(sent_at, share, self.round_trip, hint);
                Duration::from_secs_f64(1.0 / pace.rate).max(SHORT_HOLD)
            }
            _ => self.half_open(now),
        };
        // Or many clients that were refused together would come back together.
        let hold = hold.mul_f64(spread);
        self.hold_until = self.hold_until.max(now + hold);
    }

    /// Down to one probe at a time, each after a longer hold.
    fn half_open(&mut self, now: Time) -> Duration {
        self.is_plain = false;
        let trouble = self.trouble.get_or_insert(Trouble {
            since: now,
            holds: 0,
            probe: None,
        });
        let hold = FIRST_HOLD.saturating_mul(1 << trouble.holds.min(16));
        trouble.holds = trouble.holds.saturating_add(1);
        let lasted = now.saturating_sub(trouble.since);
        hold.min(LONG_HOLD.max(lasted / 8)).min(LONGEST_HOLD)
    }

    /// A probe came through. From here on there is a pace: what the server has really taken.
    #[cold]
    fn reopen(&mut self, now: Time) {
        self.is_plain = false;
        self.trouble = None;
        let before = self.pace.as_ref().map(|pace| pace.reference);
        let measured = self.accepted.rate(now);
        let (rate, searching) = match (measured, before) {
            (Some(rate), None) => (rate, false),
            (Some(rate), Some(before)) => (rate.clamp(0.2 * before, before), false),
            (None, None) => (FIRST_RATE, true),
            // But not less each time, where a second or two is too short to measure anything.
            (None, Some(before)) => ((0.2 * before).max(before.min(FIRST_RATE)), true),
        };
        // A rate that was measured while nobody waited is what was asked for, not what was possible.
        let (rate, searching) = match before {
            None if !self.was_limited => (rate.max(FIRST_RATE), true),
            _ => (rate, searching),
        };
        self.pace = Some(Pace::new(now, rate, searching, self.round_trip));
        // The pace is careful enough for both.
        self.threshold = self.most;
    }
}

/// How many go in a second.
#[derive(Debug)]
struct Pace {
    /// When the next may go.
    next: Time,
    rate: f64,
    /// The rate at which the server refused, and the one that it was cut to.
    reference: f64,
    cut: f64,
    /// The time in which the rate comes back from the cut to the reference, in seconds.
    recovery: f64,
    /// How much of such time has passed. Only time counts in which the pace held calls back: else
    /// it would run away in silence.
    progress: f64,
    /// Nothing is known of the rate yet: it doubles until the server refuses.
    searching: bool,
    /// The pace, and nothing else, has held the next call back.
    limits: bool,
    last: Time,
}

impl Pace {
    fn new(now: Time, rate: f64, searching: bool, round_trip: Option<Duration>) -> Self {
        let rate = rate.max(LEAST_RATE);
        let recovery = recovery(rate, round_trip, None);
        Self {
            next: now + seconds(1.0 / rate),
            rate,
            reference: rate,
            cut: 0.5 * rate,
            recovery,
            // At the reference, from where the rate rises slowly at first.
            progress: if searching { 0.0 } else { recovery },
            searching,
            limits: false,
            last: now,
        }
    }

    /// The same pace, on another scale.
    fn scale(&mut self, factor: f64) {
        self.rate *= factor;
        self.reference *= factor;
        self.cut *= factor;
    }

    /// Lets one go, and says at which rate.
    fn send(&mut self, now: Time, round_trip: Option<Duration>) -> f64 {
        let gap = now.saturating_sub(self.last).as_secs_f64();
        if std::mem::take(&mut self.limits) {
            self.rise(gap.min(2.0 / self.rate), round_trip);
        }
        self.last = now;
        let earliest = now.saturating_sub(SLACK);
        self.next = self.next.max(earliest) + seconds(1.0 / self.rate);
        self.rate
    }

    fn rise(&mut self, by: f64, round_trip: Option<Duration>) {
        self.progress += by;
        if self.searching {
            let round_trip = round_trip.unwrap_or_default().as_secs_f64();
            if self.progress >= (0.4_f64).max(3.0 / self.rate).max(3.0 * round_trip) {
                self.progress = 0.0;
                self.rate *= 2.0;
                self.reference = self.rate;
            }
        } else {
            // A cubic curve: steep at the cut, flat at the reference, and steep again beyond it.
            let distance = (self.progress - self.recovery) / self.recovery;
            let depth = 1.0 - self.cut / self.reference;
            self.rate = self.reference * (1.0 + depth * distance.powi(3));
        }
    }

    /// The server refused what was sent at this rate, after having accepted this share.
    fn cut(
        &mut self,
        sent_at: f64,
        share: f64,
        round_trip: Option<Duration>,
        hint: Option<Duration>,
    ) {
        let refused = sent_at.min(self.rate);
        self.reference = (refused * share.clamp(0.7, 1.0)).max(LEAST_RATE);
        self.cut = 0.85 * self.reference;
        self.rate = self.cut.max(LEAST_RATE);
        self.recovery = recovery(self.reference, round_trip, hint);
        self.progress = 0.0;
        self.searching = false;
        self.limits = false;
    }
}

fn recovery(rate: f64, round_trip: Option<Duration>, hint: Option<Duration>) -> f64 {
    let round_trip = round_trip.unwrap_or_default().as_secs_f64().min(1.0);
    let hint = hint.unwrap_or_default().as_secs_f64();
    (6.0 / rate)
        .clamp(0.5, 5.0)
        .max(4.0 * round_trip)
        .max(3.0 * hint)
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[cfg(test)]
#[path = "law_tests.rs"]
mod tests;
