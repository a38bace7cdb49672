//! One worker's part of a shared limit: when its next request may go, and when to ask the store.
//!
//! This is pure: time and the store's responses come in, decisions and asks come out. Nothing here waits or
//! locks. The gate calls [`WorkerLease::turn`] before each request and [`WorkerLease::take`] for each request
//! that goes. After every change, it sends what [`WorkerLease::ask`] returns to the store. At most one ask is
//! under way.
//!
//! A worker leases the tokens that it needs in one period before it runs out, and sends them evenly. While
//! the store does not respond, each worker sends its fair share: the rate divided by the number of workers.

mod pace_exchange;
mod pacer;
mod reach;
mod tokens;

use std::time::Duration;

use super::demand::Demand;
use super::outage::Outage;
use super::{Lease, LeaseAsk, MAX_PAUSE, SharedRate, Time, WorkerId};
use pace_exchange::PaceExchange;
use tokens::Tokens;

/// A worker asks for more when this part of a period is left.
const LEAD: f64 = 0.2;
/// Responses to requests that were sent together ask for the same pause, give or take this.
const SAME_PAUSE: Duration = Duration::from_millis(20);

/// When the next request may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LeaseTurn {
    Now,
    /// Not before this time.
    At(Time),
    /// When the store has responded. At this time at the latest, the worker goes on without it.
    AwaitStore(Time),
}

#[derive(Debug)]
pub(crate) struct WorkerLease {
    worker: WorkerId,
    /// How long a lease lasts. It is longer where a fair share is small.
    period: Duration,
    /// Longest wait for the store.
    store_timeout: Duration,
    demand: Demand,
    pace: PaceExchange,
    /// Whether pauses of other workers hold for this one.
    obeys_pauses: bool,
    pause_until: Time,

    pending: Option<PendingAsk>,
    /// No ask before this time.
    next_ask: Time,
    outage: Outage,
    /// Number of workers in the last lease.
    workers: f64,

    /// Set if the fleet has a rate.
    tokens: Option<Tokens>,
}

/// An ask that is under way.
#[derive(Debug)]
struct PendingAsk {
    since: Time,
    period: Duration,
    want: u32,
    /// Whether a call waited when the ask was made.
    call_waits: bool,
}

impl WorkerLease {
    /// The rate must be valid. Without a rate, only pauses and the adaptive rate are shared.
    pub(crate) fn new(
        worker: WorkerId,
        rate: Option<SharedRate>,
        period: Duration,
        store_timeout: Duration,
    ) -> Self {
        let tokens = rate.map(|rate| Tokens::new(rate, period));
        Self {
            worker,
            period: tokens.as_ref().map_or(period, |tokens| tokens.period(1.0)),
            store_timeout,
            demand: Demand::new(period),
            pace: PaceExchange::default(),
            obeys_pauses: true,
            pause_until: Time::ZERO,
            pending: None,
            next_ask: Time::ZERO,
            outage: Outage::default(),
            workers: 1.0,
            tokens,
        }
    }

    /// Ignores pauses of other workers, for a throttle that does not pause itself.
    pub(crate) fn without_pauses(mut self) -> Self {
        self.obeys_pauses = false;
        self
    }

    /// When the next request may go, by what this worker holds.
    pub(crate) fn turn(&mut self, now: Time) -> LeaseTurn {
        self.pass_time(now);
        if now < self.pause_until {
            return LeaseTurn::At(self.pause_until);
        }
        let Some(tokens) = &self.tokens else {
            return LeaseTurn::Now;
        };
        if tokens.held.left > 0 || self.outage.is_on() {
            return match tokens.pacer.next(now) {
                next if now < next => LeaseTurn::At(next),
                _ => LeaseTurn::Now,
            };
        }
        if let Some(pending) = &self.pending {
            return LeaseTurn::AwaitStore(pending.since.saturating_add(self.store_timeout));
        }
        let worth_asking = self.worth_asking_at(tokens, now);
        if now < worth_asking {
            return LeaseTurn::At(worth_asking);
        }
        LeaseTurn::AwaitStore(now.saturating_add(self.store_timeout))
    }

    /// Whether a request that comes now has to wait for a token. Like [`turn`](Self::turn), but it changes nothing, and
    /// leaves pauses out.
    pub(crate) fn lacks_token(&self, now: Time) -> bool {
        let Some(tokens) = &self.tokens else {
            return false;
        };
        let held = &tokens.held;
        let has_token = (held.left > 0 && now < held.expires) || self.outage.is_on();
        !has_token || now < tokens.pacer.next(now)
    }

    /// A call cannot wait for the store any longer: treats the ask as failed.
    pub(crate) fn stop_waiting(&mut self, now: Time) {
        if matches!(self.turn(now), LeaseTurn::AwaitStore(_)) {
            self.pending = None;
            self.go_alone(now);
        }
    }

    /// A lower bound for the turn of a request that comes now, with `ahead` requests before it.
    pub(crate) fn not_before(&self, now: Time, ahead: usize) -> Time {
        let start = now.max(self.pause_until);
        let Some(tokens) = &self.tokens else {
            return start;
        };
        let rate = tokens.rate;
        // All that the bucket can hold, what may be taken ahead, and the tokens held here.
        let ready = f64::from(rate.burst) + rate.per_second * self.period.as_secs_f64() + 1.0;
        let missing = ahead as f64 - ready - f64::from(tokens.held.left);
        let wait = Duration::try_from_secs_f64(missing.max(0.0) / rate.per_second);
        start.saturating_add(wait.unwrap_or(Duration::MAX))
    }

    /// Counts a request that goes.
    pub(crate) fn take(&mut self, now: Time) {
        self.demand.note(now);
        if let Some(tokens) = &mut self.tokens {
            tokens.held.left = tokens.held.left.saturating_sub(1);
            tokens.pacer.take(now);
        }
    }

    /// Takes back a request that did not go.
    pub(crate) fn put_back(&mut self) {
        self.demand.take_back();
        if let Some(tokens) = &mut self.tokens {
            tokens.pacer.put_back();
            // During an outage, no token was used.
            if !self.outage.is_on() {
                tokens.held.put_back();
            }
        }
    }

    /// A server asked this worker to pause. Returns whether the other workers do not know of it yet.
    pub(crate) fn is_new_pause(&mut self, now: Time, length: Duration) -> bool {
        let known = self.pause_until.saturating_add(SAME_PAUSE);
        self.extend_pause(now, length);
        self.pause_until > known
    }

    pub(crate) fn paused_until(&self) -> Time {
        self.pause_until
    }

    /// Obeys a pause of another worker.
    pub(crate) fn paused(&mut self, now: Time, length: Duration) {
        if self.obeys_pauses {
            self.extend_pause(now, length);
        }
    }

    fn extend_pause(&mut self, now: Time, length: Duration) {
        let until = now.saturating_add(length.min(MAX_PAUSE));
        self.pause_until = self.pause_until.max(until);
    }

    /// Returns what to ask the store now, if anything. The result goes to [`receive`](Self::receive).
    /// `waiting` calls wait for a turn. `pace` is the controller's adaptive rate, if it has one.
    pub(crate) fn ask(&mut self, now: Time, waiting: usize, pace: Option<f64>) -> Option<LeaseAsk> {
        self.pass_time(now);
        if self.pending.is_some() {
            return None;
        }
        let needed = self.demand.estimate(now);
        if waiting == 0 && needed == 0 {
            return None;
        }
        let due = match &self.tokens {
            _ if self.outage.is_on() => self.outage.may_ask(now),
            None => now >= self.next_ask,
            Some(tokens) => {
                let scarce = if waiting > 0 {
                    f64::from(tokens.held.left) <= tokens.lead(self.period)
                } else {
                    let lead = LEAD * f64::from(needed) * tokens.stretch(self.period);
                    f64::from(tokens.held.left) <= lead && self.demand.is_steady(now)
                };
                scarce && now >= self.worth_asking_at(tokens, now)
            }
        };
        if !due {
            return None;
        }
        self.next_ask = now.saturating_add(self.period);
        let want = |tokens: &Tokens| tokens.want(needed, waiting, self.period);
        let want = self.tokens.as_ref().map_or(0, want);
        Some(self.make_ask(now, want, waiting > 0, pace))
    }

    /// Returns an ask that hands tokens back which this worker did not use in time.
    pub(crate) fn give_back(&mut self, now: Time) -> Option<LeaseAsk> {
        self.pass_time(now);
        let held = self.tokens.as_ref().map(|tokens| &tokens.held);
        let unused = held.is_some_and(|held| held.unused > 0);
        if !unused || self.pending.is_some() || self.outage.is_on() {
            return None;
        }
        Some(self.make_ask(now, 0, false, None))
    }

    /// When [`give_back`](Self::give_back) will have something, if nothing happens before.
    pub(crate) fn give_back_at(&self) -> Option<Time> {
        let held = &self.tokens.as_ref()?.held;
        (held.left > 0 || held.unused > 0).then_some(held.expires)
    }

    /// Takes the result of an ask.
    pub(crate) fn receive(&mut self, now: Time, result: Result<Lease, ()>) {
        let pending = self.pending.take();
        match (result, pending) {
            (Ok(lease), pending) => self.accept(now, &lease, pending),
            (Err(()), Some(_)) => self.go_alone(now),
            // The ask had timed out before.
            (Err(()), None) => {}
        }
    }

    /// Returns the adaptive rate that the controller should continue at, once after each lease with one.
    /// `pace` is the controller's present rate.
    pub(crate) fn take_pace(&mut self, pace: Option<f64>) -> Option<f64> {
        self.pace.take_part(pace)
    }

    /// Times out a late ask, and expires tokens that were not used in time.
    fn pass_time(&mut self, now: Time) {
        let late = |pending: &PendingAsk| now >= pending.since.saturating_add(self.store_timeout);
        if self.pending.as_ref().is_some_and(late) {
            self.pending = None;
            self.go_alone(now);
        }
        if let Some(tokens) = &mut self.tokens {
            tokens.held.expire(now);
        }
    }

    /// When an ask becomes useful for a waiting call: not before the store can have tokens, and not long
    /// before they could be sent.
    fn worth_asking_at(&self, tokens: &Tokens, now: Time) -> Time {
        let lead = self.period.mul_f64(LEAD);
        let sendable = tokens.pacer.next(now).max(self.pause_until);
        self.next_ask.max(sendable.saturating_sub(lead))
    }

    fn make_ask(&mut self, now: Time, want: u32, call_waits: bool, pace: Option<f64>) -> LeaseAsk {
        self.pending = Some(PendingAsk {
            since: now,
            period: self.period,
            want,
            call_waits,
        });
        let mut ask = LeaseAsk::new(self.worker, self.period).want(want);
        ask.pace = self.pace.report(pace);
        if let Some(tokens) = &mut self.tokens {
            ask.rate = Some(tokens.rate);
            ask.unused = tokens.held.take_unused();
        }
        ask
    }

    fn accept(&mut self, now: Time, lease: &Lease, pending: Option<PendingAsk>) {
        self.outage.end();
        self.workers = f64::from(lease.workers);
        self.paused(now, lease.pause);
        self.pace.receive(lease.pace, self.workers);
        let Some(tokens) = &mut self.tokens else {
            return;
        };
        // Without a pending ask, the lease comes late.
        let ask = pending.unwrap_or(PendingAsk {
            since: now,
            period: self.period,
            want: lease.tokens,
            call_waits: false,
        });
        self.period = tokens.period(self.workers);
        if ask.want > 0 {
            let wait = tokens.fill(now, lease, &ask);
            self.next_ask = now.saturating_add(wait);
        }
    }

    /// The store does not respond. The fair share of the rate replaces leased tokens and those handed back
    /// with the ask. If the store never reported a number of workers, that is the whole rate.
    fn go_alone(&mut self, now: Time) {
        self.outage.fail(now);
        if let Some(tokens) = &mut self.tokens {
            tokens.use_fair_share(now, self.workers, self.period);
        }
    }
}

#[cfg(test)]
#[path = "worker_lease/fleet_tests.rs"]
mod fleet_tests;
#[cfg(test)]
#[path = "worker_lease/tests.rs"]
mod tests;
