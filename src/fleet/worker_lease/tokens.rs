//! The tokens that a worker has leased: how fast it sends them, and how many it asks for.

use std::time::Duration;

use super::pacer::Pacer;
use super::reach::Reach;
use super::{LEAD, PendingAsk};
use crate::fleet::holding::Holding;
use crate::fleet::{Lease, SharedRate, Time};

/// An ask covers this much more than the need of the last period, because traffic is uneven.
const HEADROOM: f64 = 1.25;
/// When a worker that did not get all tokens asks again, as a part of the time in which its fair share comes
/// in. The more it got, the later. So workers that asked together do not ask together again.
const WAIT_AFTER_NOTHING: f64 = 0.2;
const WAIT_AFTER_SHARE: f64 = 0.8;
/// A fair share of at most this many tokens is small.
const SMALL_SHARE: f64 = 4.0;
/// This many tokens are worth a round trip.
const BATCH: f64 = 60.0;
/// No lease lasts for more base periods than this.
const MAX_STRETCH: f64 = 4.0;
const MIN_WAIT: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) rate: SharedRate,
    pub(super) held: Holding,
    pub(super) pacer: Pacer,
    /// The configured period, and the shortest. Demand is counted in it.
    base_period: Duration,
    /// Number of tokens in the last lease.
    last_lease: u32,
    reach: Reach,
}

impl Tokens {
    pub(super) fn new(rate: SharedRate, base_period: Duration) -> Self {
        Self {
            rate,
            held: Holding::default(),
            pacer: Pacer::new(rate.per_second),
            base_period,
            last_lease: 0,
            reach: Reach::new(),
        }
    }

    /// How long a lease lasts. A lease of a few tokens is not worth a round trip, so a small fair share is
    /// leased for longer.
    pub(super) fn period(&self, workers: f64) -> Duration {
        let enough = BATCH * workers / self.rate.per_second;
        let stretch = enough / self.base_period.as_secs_f64();
        self.base_period.mul_f64(stretch.clamp(1.0, MAX_STRETCH))
    }

    /// How many base periods a period lasts.
    pub(super) fn stretch(&self, period: Duration) -> f64 {
        period.as_secs_f64() / self.base_period.as_secs_f64()
    }

    /// With this many tokens left it is time to ask, if a call waits.
    pub(super) fn lead(&self, period: Duration) -> f64 {
        let sent = self.pacer.per_second() * period.as_secs_f64() * LEAD;
        sent.min(f64::from(self.last_lease) / 2.0)
    }

    /// How many tokens to ask for. Calls used `needed` tokens in one base period, and `waiting` calls wait.
    pub(super) fn want(&self, needed: u32, waiting: usize, period: Duration) -> u32 {
        // All workers together cannot have more.
        let most = self.rate.per_second * period.as_secs_f64() + f64::from(self.rate.burst);
        let needed = HEADROOM * f64::from(needed) * self.stretch(period);
        let target = needed.ceil() + waiting as f64;
        let want = target - f64::from(self.held.left);
        want.min(most.ceil()).max(1.0) as u32
    }

    /// Takes the tokens of a lease. Returns how long to wait before the next ask.
    pub(super) fn fill(&mut self, now: Time, lease: &Lease, ask: &PendingAsk) -> Duration {
        let workers = f64::from(lease.workers);
        let period = ask.period;
        let granted = f64::from(lease.tokens);
        let is_complete = lease.tokens >= ask.want;
        let fair = self.rate.per_second / workers;
        let fair_lease = fair * period.as_secs_f64();
        if !is_complete {
            if granted < (fair_lease / 2.0).floor().max(1.0) {
                self.reach.shrink(fair_lease <= SMALL_SHARE);
            } else if ask.call_waits {
                self.reach.grow(workers);
            }
        }
        let reach = self.reach.factor(workers) * fair;
        let per_second = if is_complete {
            // The store has enough: it would have granted more.
            reach.max(granted / self.base_period.as_secs_f64())
        } else if granted > fair_lease.max(1.0) {
            reach.max(granted / period.as_secs_f64())
        } else {
            reach
        };
        self.pacer.change(now, per_second, granted.max(1.0));
        if lease.tokens > 0 {
            let expires = now.saturating_add(self.period(workers) * 2);
            self.held.add(lease.tokens, expires);
            self.last_lease = lease.tokens;
        }
        if is_complete {
            Duration::ZERO
        } else if lease.tokens == 0 {
            lease.retry_after.max(MIN_WAIT)
        } else {
            wait_after_part(granted, fair, reach, period)
        }
    }

    /// Sends at the fair share of the rate, without tokens of the store.
    pub(super) fn use_fair_share(&mut self, now: Time, workers: f64, period: Duration) {
        let fair = self.rate.per_second / workers;
        self.held = Holding::default();
        self.reach = Reach::new();
        self.pacer.change(now, fair, fair * period.as_secs_f64());
    }
}

/// How long to wait after a lease with fewer tokens than wanted. `fair` and `reach` are tokens per second.
fn wait_after_part(granted: f64, fair: f64, reach: f64, period: Duration) -> Duration {
    let whole = period.as_secs_f64().max(1.0 / fair);
    let part = (granted / (fair * whole)).min(1.0);
    let wait = WAIT_AFTER_NOTHING + (WAIT_AFTER_SHARE - WAIT_AFTER_NOTHING) * part;
    let mut wait = wait * whole * fair / reach;
    if granted <= SMALL_SHARE {
        // Asking ahead for so few tokens is useless, and would be refused.
        wait = wait.max(granted / reach);
    }
    Duration::from_secs_f64(wait)
}
