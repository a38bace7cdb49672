//! What all workers share for one key: the bucket, the turns, the pause, the adaptive rate and the retries.
//!
//! `redis/state.lua`, `lease.lua` and `pause.lua` do the same in Lua, in the same order. Change both together;
//! the tests of the stores run on both.

use std::collections::HashMap;

use super::retry_slots::RetrySlots;
use super::{duration, micros};
use crate::fleet::{Lease, LeaseAsk, PaceChange, Retries, RetriesAsk, SharedRate, WorkerId};

const SECOND: f64 = 1e6;
const PACE_LIFE: f64 = 60.0 * SECOND;
const STATE_LIFE: f64 = 60.0 * SECOND;
/// A pause that grows by less is not announced again.
const SAME_PAUSE: f64 = 5e3;
const MIN_WAIT: f64 = 1e3;

/// Times are in microseconds.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    bucket: Option<SharedBucket>,
    /// End of the pause.
    pause: f64,
    pace: Option<TotalPace>,
    /// When each worker counts as gone.
    workers: HashMap<WorkerId, f64>,
    /// Refused workers, and when the turn of each is.
    waiting: HashMap<WorkerId, f64>,
    retries: RetrySlots,
    /// When the state can be forgotten, because a new one would do the same.
    pub(super) expires: f64,
}

#[derive(Debug)]
struct SharedBucket {
    /// Below zero by at most one fair share.
    level: f64,
    at: f64,
    /// The rate of the last ask, per second.
    rate: f64,
}

#[derive(Debug)]
struct TotalPace {
    /// Sum over all workers, in requests per second.
    total: f64,
    at: f64,
}

impl KeyState {
    pub(super) fn lease(&mut self, now: f64, ask: &LeaseAsk) -> Lease {
        let workers = self.note_worker(ask.worker, now, micros(ask.period));
        let (tokens, retry_after) = match ask.rate {
            None => (ask.want, 0.0),
            Some(rate) => self.take(now, ask, rate, workers),
        };
        let refill = match (&self.bucket, ask.rate) {
            (Some(bucket), Some(rate)) => {
                2.0 * (f64::from(rate.burst) - bucket.level) / rate.per_second * SECOND
            }
            _ => 0.0,
        };
        self.keep(now + refill.max(self.pause_life(now)));
        Lease {
            tokens,
            retry_after: duration(retry_after),
            pause: duration(self.pause_left(now)),
            workers: u32::try_from(workers).unwrap_or(u32::MAX),
            pace: self.change_pace(now, ask.pace, workers),
        }
    }

    pub(super) fn retries(&mut self, now: f64, ask: &RetriesAsk) -> Retries {
        let retries = self.retries.take(now, ask);
        self.keep(now + self.retries.life(ask));
        retries
    }

    /// Returns the new length of the pause if it got longer.
    pub(super) fn pause(&mut self, now: f64, length: f64) -> Option<f64> {
        let before = self.pause.max(now);
        self.pause = before.max(now + length);
        self.keep(now + self.pause_life(now));
        (self.pause - before > SAME_PAUSE).then_some(self.pause - now)
    }

    /// How long to keep the state after a pause.
    fn pause_life(&self, now: f64) -> f64 {
        STATE_LIFE.max(self.pause_left(now) + SECOND)
    }

    fn keep(&mut self, until: f64) {
        self.expires = self.expires.max(until);
    }

    fn pause_left(&self, now: f64) -> f64 {
        (self.pause - now).max(0.0)
    }

    /// Records that a worker is there; returns the number of workers.
    fn note_worker(&mut self, worker: WorkerId, now: f64, period: f64) -> usize {
        let life = (3.0 * period).max(3.0 * SECOND);
        self.workers.retain(|_, until| *until > now);
        self.workers.insert(worker, now + life);
        self.workers.len()
    }

    /// Grants tokens. Without tokens, the second value is the wait before the next ask.
    fn take(&mut self, now: f64, ask: &LeaseAsk, rate: SharedRate, workers: usize) -> (u32, f64) {
        let period = micros(ask.period);
        let count = workers as f64;
        let fair = (rate.per_second * period / SECOND / count).max(1.0);
        let mut level = self.level(now, rate, fair);
        level = (level + f64::from(ask.unused)).min(f64::from(rate.burst));

        // Refused workers that wait for their turn, without those that missed it.
        let patience = period.clamp(SECOND / 20.0, SECOND);
        self.waiting.retain(|_, turn| *turn > now - patience);
        let turn = self.waiting.get(&ask.worker).copied();
        let others = self.waiting.len() - usize::from(turn.is_some());
        // Dead workers do not come, however late their turn is.
        let others = others.min(workers - 1) as f64;
        let is_due = turn.is_some_and(|turn| turn <= now);

        // A whole number, otherwise some workers would get the larger half at each turn.
        let chunk = (fair / 2.0).ceil();
        // A worker whose turn has come leaves nothing for the others.
        let ahead = if is_due { 0.0 } else { others * chunk };
        let room = level + fair - ahead;
        // More than a fair share only from what all other fair shares leave.
        let mut share = fair + (level - count * fair).max(0.0);
        if others > 0.0 {
            share = share.min(chunk);
        }
        let tokens = ask.want.min(room.min(share).floor().max(0.0) as u32);
        level -= f64::from(tokens);
        self.bucket = Some(SharedBucket {
            level,
            at: now,
            rate: rate.per_second,
        });

        if tokens > 0 || ask.want == 0 {
            self.waiting.remove(&ask.worker);
            return (tokens, 0.0);
        }
        let time_for = |tokens: f64| (tokens / rate.per_second * SECOND).ceil();
        let turn = match turn {
            Some(turn) if !is_due => turn,
            _ => {
                let missing = f64::from(ask.want).min(chunk) - (level + fair);
                now + time_for(missing + ahead).max(MIN_WAIT)
            }
        };
        self.waiting.insert(ask.worker, turn);
        // The workers ahead may not come, so an earlier ask can succeed.
        let one = time_for(1.0 - (level + fair));
        (0, (turn - now).min(period.max(one)).max(MIN_WAIT))
    }

    /// Tokens in the bucket. A new bucket is full.
    fn level(&self, now: f64, rate: SharedRate, fair: f64) -> f64 {
        let Some(bucket) = &self.bucket else {
            return f64::from(rate.burst);
        };
        let mut level = bucket.level;
        if level < 0.0 && bucket.rate != rate.per_second {
            // A debt is a time to wait. The time must not grow at a lower rate, and must not vanish.
            level = (level * rate.per_second / bucket.rate).max(-fair);
        }
        level + (now - bucket.at).max(0.0) * rate.per_second / SECOND
    }

    /// Applies a change to the adaptive rate of all workers together.
    fn change_pace(&mut self, now: f64, change: Option<PaceChange>, workers: usize) -> Option<f64> {
        let known = self.pace.take().filter(|pace| now - pace.at <= PACE_LIFE);
        self.pace = match change {
            None => known,
            Some(change) => {
                let total = match known {
                    Some(pace) => pace.total + (change.now - change.before),
                    None => change.now * workers as f64,
                };
                let total = total.clamp(1.0 / 30.0, 1e6);
                Some(TotalPace { total, at: now })
            }
        };
        self.pace.as_ref().map(|pace| pace.total)
    }
}
