//! What one worker holds of a limit that all share: when its next request may go, and when to ask the store.
//!
//! Pure, like the law of a throttle: time and answers come in, decisions and questions come out; nothing here
//! waits or locks. Whoever holds it asks [`Share::turn`] before each request, calls [`Share::take`] for each
//! that goes, and after every change puts the question to the store that [`Share::ask`] may have. There is
//! one at a time.
//!
//! Tokens are leased for what the worker needs in one period, before it has run out, and sent evenly. While
//! the store does not answer, each worker keeps to the part that it would have if all want the same.

mod pace;
mod reach;
mod spread;

use std::time::Duration;

use super::demand::Demand;
use super::outage::Outage;
use super::{Lease, LeaseAsk, MAX_PAUSE, SharedRate, Time, WorkerId};
use pace::PaceBook;
use reach::Reach;
use spread::Spread;

/// So much of a period before it runs out, a worker asks for more.
const LEAD: f64 = 0.2;
/// It asks for so much more than it needed in the last period, for traffic is uneven.
const HEADROOM: f64 = 1.25;
/// Who did not get all that it wanted comes again after so much of the time in which its fair share comes in: the
/// later, the more it got. So those who came together, and shared what was there, do not come together again.
const AFTER_NOTHING: f64 = 0.2;
const AFTER_ALL: f64 = 0.8;
const A_FEW: f64 = 4.0;
/// So many tokens are worth a round trip.
const BATCH: f64 = 60.0;
/// But none is leased for more periods than this.
const LONGEST: f64 = 4.0;
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// Answers to requests that were sent together ask for the same pause, give or take this.
const SAME_PAUSE: Duration = Duration::from_millis(20);

/// When the next request may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Turn {
    Now,
    /// Not before.
    At(Time),
    /// When the store has answered, but no later than this: then the worker goes by what it knows.
    WhenAnswered(Time),
}

#[derive(Debug)]
pub(crate) struct Share {
    worker: WorkerId,
    /// The shortest.
    base: Duration,
    /// For how long tokens are leased.
    period: Duration,
    max_wait: Duration,
    demand: Demand,
    pace: PaceBook,
    /// Whether pauses of other workers hold for this one.
    pauses: bool,
    pause_until: Time,

    // The store.
    asking: Option<Asking>,
    next_ask: Time,
    outage: Option<Outage>,
    /// As the store has last said.
    workers: f64,

    tokens: Option<Tokens>,
}

/// A question that is under way.
#[derive(Debug)]
struct Asking {
    since: Time,
    want: u32,
    somebody_waits: bool,
}

/// What there is if the fleet has a rate.
#[derive(Debug)]
struct Tokens {
    rate: SharedRate,
    left: u32,
    /// Those that were not used in time, to be given back.
    unused: u32,
    expires: Time,
    /// How many came with the last lease.
    lease: u32,
    spread: Spread,
    reach: Reach,
}

impl Share {
    /// The rate must have been checked. Without one, only the pause and the pace are shared.
    pub(crate) fn new(
        worker: WorkerId,
        rate: Option<SharedRate>,
        period: Duration,
        max_wait: Duration,
    ) -> Self {
        Self {
            worker,
            base: period,
            period: rate.map_or(period, |rate| stretched(period, rate, 1.0)),
            max_wait,
            demand: Demand::new(period),
            pace: PaceBook::default(),
            pauses: true,
            pause_until: Time::ZERO,
            asking: None,
            next_ask: Time::ZERO,
            outage: None,
            workers: 1.0,
            tokens: rate.map(|rate| Tokens {
                rate,
                left: 0,
                unused: 0,
                expires: Time::ZERO,
                lease: 0,
                spread: Spread::new(rate.per_second),
                reach: Reach::new(),
            }),
        }
    }

    /// For one that does not pause when it is asked to itself.
    pub(crate) fn without_pauses(mut self) -> Self {
        self.pauses = false;
        self
    }

    /// Whether a request may go by what this worker holds.
    pub(crate) fn turn(&mut self, now: Time) -> Turn {
        self.pass_time(now);
        if now < self.pause_until {
            return Turn::At(self.pause_until);
        }
        let Some(tokens) = &self.tokens else {
            return Turn::Now;
        };
        if tokens.left > 0 || self.outage.is_some() {
            let next = tokens.spread.next(now);
            return if now < next {
                Turn::At(next)
            } else {
                Turn::Now
            };
        }
        if let Some(asking) = &self.asking {
            return Turn::WhenAnswered(asking.since.saturating_add(self.max_wait));
        }
        let worth_asking = self.worth_asking(tokens, now);
        if now < worth_asking {
            return Turn::At(worth_asking);
        }
        Turn::WhenAnswered(now.saturating_add(self.max_wait))
    }

    /// Somebody can wait for the store no longer: from now on it is as if the answer were late.
    pub(crate) fn stop_waiting(&mut self, now: Time) {
        if matches!(self.turn(now), Turn::WhenAnswered(_)) {
            self.asking = None;
            self.go_alone(now);
        }
    }

    /// One that comes now, with so many ahead, certainly cannot go earlier, whatever the store says.
    pub(crate) fn not_before(&self, now: Time, ahead: usize) -> Time {
        let start = now.max(self.pause_until);
        let Some(tokens) = &self.tokens else {
            return start;
        };
        let rate = tokens.rate;
        // All that there can be in the bucket, what may be taken ahead, and what is here.
        let ready = f64::from(rate.burst) + rate.per_second * self.period.as_secs_f64() + 1.0;
        let missing = ahead as f64 - ready - f64::from(tokens.left);
        let wait = Duration::try_from_secs_f64(missing.max(0.0) / rate.per_second);
        start.saturating_add(wait.unwrap_or(Duration::MAX))
    }

    /// A request goes.
    pub(crate) fn take(&mut self, now: Time) {
        self.demand.note(now);
        if let Some(tokens) = &mut self.tokens {
            tokens.left = tokens.left.saturating_sub(1);
            tokens.spread.take(now);
        }
    }

    /// It has not gone after all.
    pub(crate) fn put_back(&mut self) {
        self.demand.take_back();
        if let Some(tokens) = &mut self.tokens {
            tokens.spread.put_back();
            // What the worker has granted itself is no token.
            if self.outage.is_none() {
                tokens.left = tokens.left.saturating_add(1);
            }
        }
    }

    /// This worker was asked to wait for so long. Whether the others should know: they do, if it was said
    /// before.
    pub(crate) fn is_asked_to_pause(&mut self, now: Time, length: Duration) -> bool {
        let until = now.saturating_add(length.min(MAX_PAUSE));
        let is_news = until > self.pause_until.saturating_add(SAME_PAUSE);
        self.pause_until = self.pause_until.max(until);
        is_news
    }

    pub(crate) fn paused_until(&self) -> Time {
        self.pause_until
    }

    /// Nobody may go for so long.
    pub(crate) fn paused(&mut self, now: Time, length: Duration) {
        if !self.pauses {
            return;
        }
        let until = now.saturating_add(length.min(MAX_PAUSE));
        self.pause_until = self.pause_until.max(until);
    }

    /// The question to put to the store now, if there is one; its answer goes to [`answered`](Self::answered).
    /// `pace` is the law's own, if it has one.
    pub(crate) fn ask(&mut self, now: Time, waiting: usize, pace: Option<f64>) -> Option<LeaseAsk> {
        self.pass_time(now);
        if self.asking.is_some() {
            return None;
        }
        let needed = self.demand.estimate(now);
        if waiting == 0 && needed == 0 {
            return None;
        }
        let due = match (&self.outage, &self.tokens) {
            (Some(outage), _) => outage.may_try(now),
            (None, None) => now >= self.next_ask,
            (None, Some(tokens)) => {
                let scarce = if waiting > 0 {
                    f64::from(tokens.left) <= self.lead(tokens)
                } else {
                    let lead = LEAD * f64::from(needed) * self.stretch();
                    f64::from(tokens.left) <= lead && self.demand.is_steady(now)
                };
                scarce && now >= self.worth_asking(tokens, now)
            }
        };
        if !due {
            return None;
        }
        self.next_ask = now.saturating_add(self.period);
        let want = self.want(needed, waiting);
        Some(self.question(now, want, waiting > 0, pace))
    }

    /// What to tell the store when this worker has been idle, so that others have the rest.
    pub(crate) fn give_back(&mut self, now: Time) -> Option<LeaseAsk> {
        self.pass_time(now);
        let unused = self.tokens.as_ref().is_some_and(|tokens| tokens.unused > 0);
        if !unused || self.asking.is_some() || self.outage.is_some() {
            return None;
        }
        Some(self.question(now, 0, false, None))
    }

    /// When [`give_back`](Self::give_back) will have something, if nothing happens until then.
    pub(crate) fn idle_at(&self) -> Option<Time> {
        let tokens = self.tokens.as_ref()?;
        (tokens.left > 0 || tokens.unused > 0).then_some(tokens.expires)
    }

    /// What has become of the question.
    pub(crate) fn answered(&mut self, now: Time, answer: Result<Lease, ()>) {
        let asking = self.asking.take();
        match (answer, asking) {
            (Ok(lease), asking) => self.fill(now, &lease, asking),
            (Err(()), Some(_)) => self.go_alone(now),
            // Given up before.
            (Err(()), None) => {}
        }
    }

    /// The pace that the law should go on at, once after each answer that told of one. `law` is its present
    /// one.
    pub(crate) fn pace(&mut self, law: Option<f64>) -> Option<f64> {
        self.pace.adopt(law)
    }

    /// Whether the store does not answer.
    #[cfg(test)]
    pub(crate) fn is_away(&self) -> bool {
        self.outage.is_some()
    }

    /// How many workers there are, as far as is known.
    #[cfg(test)]
    pub(crate) fn workers(&self) -> u32 {
        self.workers as u32
    }

    /// A question that nobody has answered in time, and tokens that nobody has used in time.
    fn pass_time(&mut self, now: Time) {
        let late = |asking: &Asking| now >= asking.since.saturating_add(self.max_wait);
        if self.asking.as_ref().is_some_and(late) {
            self.asking = None;
            self.go_alone(now);
        }
        if let Some(tokens) = &mut self.tokens {
            if tokens.left > 0 && now >= tokens.expires {
                tokens.unused = tokens.unused.saturating_add(tokens.left);
                tokens.left = 0;
            }
        }
    }

    /// From when on a question makes sense for one who waits: not before the store can have something, nor
    /// long before it could be sent.
    fn worth_asking(&self, tokens: &Tokens, now: Time) -> Time {
        let lead = self.period.mul_f64(LEAD);
        let sendable = tokens.spread.next(now).max(self.pause_until);
        self.next_ask.max(sendable.saturating_sub(lead))
    }

    /// With so many left, or fewer, it is time to ask, if somebody waits.
    fn lead(&self, tokens: &Tokens) -> f64 {
        let sent = tokens.spread.per_second() * self.period.as_secs_f64() * LEAD;
        sent.min(f64::from(tokens.lease) / 2.0)
    }

    /// What is needed is counted by the shortest period.
    fn stretch(&self) -> f64 {
        self.period.as_secs_f64() / self.base.as_secs_f64()
    }

    fn want(&self, needed: u32, waiting: usize) -> u32 {
        let Some(tokens) = &self.tokens else {
            return 0;
        };
        let rate = tokens.rate;
        // More than all workers together can have.
        let most = rate.per_second * self.period.as_secs_f64() + f64::from(rate.burst);
        let needed = HEADROOM * f64::from(needed) * self.stretch();
        let target = needed.ceil() + waiting as f64;
        let want = target - f64::from(tokens.left);
        want.min(most.ceil()).max(1.0) as u32
    }

    fn question(
        &mut self,
        now: Time,
        want: u32,
        somebody_waits: bool,
        pace: Option<f64>,
    ) -> LeaseAsk {
        self.asking = Some(Asking {
            since: now,
            want,
            somebody_waits,
        });
        let mut ask = LeaseAsk::new(self.worker, self.period).want(want);
        ask.pace = self.pace.change(pace);
        if let Some(tokens) = &mut self.tokens {
            ask.rate = Some(tokens.rate);
            ask.unused = std::mem::take(&mut tokens.unused);
        }
        ask
    }

    fn fill(&mut self, now: Time, lease: &Lease, asking: Option<Asking>) {
        self.outage = None;
        self.workers = f64::from(lease.workers.max(1));
        self.paused(now, lease.pause);
        self.pace.answered(lease.pace, self.workers);
        let Some(tokens) = &mut self.tokens else {
            return;
        };
        let fair = tokens.rate.per_second / self.workers;
        let period = self.period.as_secs_f64();
        self.period = stretched(self.base, tokens.rate, self.workers);
        let (want, somebody_waits) = asking.map_or((lease.tokens, false), |asking| {
            (asking.want, asking.somebody_waits)
        });
        if want == 0 {
            return;
        }
        let granted = f64::from(lease.tokens);
        let all_of_it = lease.tokens >= want;
        if all_of_it {
            self.next_ask = now;
        } else if granted < (fair * period / 2.0).floor().max(1.0) {
            tokens.reach.less_far(fair * period <= A_FEW);
        } else if somebody_waits {
            tokens.reach.further(self.workers);
        }
        let reach = tokens.reach.factor(self.workers) * fair;
        let per_second = if all_of_it {
            // There is enough for the moment: however few were wanted, more would have been granted.
            reach.max(granted / self.base.as_secs_f64())
        } else if granted > (fair * period).max(1.0) {
            reach.max(granted / period)
        } else {
            reach
        };
        tokens.spread.change(now, per_second, granted.max(1.0));
        if !all_of_it {
            let whole = period.max(1.0 / fair);
            let part = (granted / (fair * whole)).min(1.0);
            let wait = AFTER_NOTHING + (AFTER_ALL - AFTER_NOTHING) * part;
            let mut wait = wait * whole * fair / reach;
            if granted <= A_FEW {
                // There is no use in asking ahead for so little, and it would be refused.
                wait = wait.max(granted / reach);
            }
            self.next_ask = now.saturating_add(if lease.tokens == 0 {
                lease.retry_after.max(LEAST_WAIT)
            } else {
                Duration::from_secs_f64(wait)
            });
        }
        if lease.tokens > 0 {
            tokens.left = tokens.left.saturating_add(lease.tokens);
            tokens.lease = lease.tokens;
            tokens.expires = now.saturating_add(self.period * 2);
        }
    }

    /// The store is away. What was leased, or handed back with the question, is not counted any more: a fair
    /// part of the rate takes its place. If the store never said how many workers there are, that is all of
    /// it.
    fn go_alone(&mut self, now: Time) {
        self.outage = Some(Outage::after(self.outage.take(), now));
        if let Some(tokens) = &mut self.tokens {
            let fair = tokens.rate.per_second / self.workers;
            tokens.left = 0;
            tokens.unused = 0;
            tokens.reach = Reach::new();
            let lease = fair * self.period.as_secs_f64();
            tokens.spread.change(now, fair, lease);
        }
    }
}

/// A lease of a few tokens is not worth a round trip: where a fair share is small, it is leased for longer.
fn stretched(base: Duration, rate: SharedRate, workers: f64) -> Duration {
    let enough = BATCH * workers / rate.per_second;
    base.mul_f64((enough / base.as_secs_f64()).clamp(1.0, LONGEST))
}

#[cfg(test)]
#[path = "share/fleet_tests.rs"]
mod fleet_tests;
#[cfg(test)]
#[path = "share/tests.rs"]
mod tests;
