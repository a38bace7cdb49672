//! What all workers know about one key.
//!
//! `redis/state.lua`, `lease.lua` and `pause.lua` say the same in Lua, in the same order: whoever changes one
//! changes both, and the tests of the stores run on both.

use std::collections::HashMap;

use super::{duration, micros};
use crate::fleet::{Lease, LeaseAsk, PaceChange, SharedRate, WorkerId};

const SECOND: f64 = 1e6;
const PACE_LIFE: f64 = 60.0 * SECOND;
const STATE_LIFE: f64 = 60.0 * SECOND;
/// A pause that is longer by less is not told to those who listen.
const SAME: f64 = 5e3;
const LEAST_WAIT: f64 = 1e3;

/// Times are in microseconds.
#[derive(Debug, Default)]
pub(super) struct Shared {
    bucket: Option<Bucket>,
    pause: f64,
    pace: Option<Pace>,
    /// Until when each counts.
    workers: HashMap<WorkerId, f64>,
    /// Who was refused, and when its turn is.
    waiting: HashMap<WorkerId, f64>,
}

#[derive(Debug)]
struct Bucket {
    level: f64,
    at: f64,
    rate: f64,
}

#[derive(Debug)]
struct Pace {
    total: f64,
    at: f64,
}

/// Where a worker is among those who wait.
struct Place {
    turn: Option<f64>,
    others: f64,
    due: bool,
}

impl Place {
    /// Whose turn it is leaves nothing to those who wait.
    fn others_ahead(&self) -> f64 {
        if self.due { 0.0 } else { self.others }
    }
}

impl Shared {
    pub(super) fn lease(&mut self, now: f64, ask: &LeaseAsk) -> Lease {
        let workers = self.note(ask.worker, now, micros(ask.period));
        let (tokens, retry_after) = match ask.rate {
            None => (ask.want, 0.0),
            Some(rate) => self.take(now, ask, rate, workers),
        };
        Lease {
            tokens,
            retry_after: duration(retry_after),
            pause: duration(self.pause_left(now)),
            workers: u32::try_from(workers).unwrap_or(u32::MAX),
            pace: self.change_pace(now, ask.pace, workers),
        }
    }

    /// How long the pause is now, if it got longer.
    pub(super) fn pause(&mut self, now: f64, length: f64) -> Option<f64> {
        let before = self.pause.max(now);
        self.pause = before.max(now + length);
        (self.pause - before > SAME).then_some(self.pause - now)
    }

    /// How long it must be kept after a lease.
    pub(super) fn life(&self, now: f64, ask: &LeaseAsk) -> f64 {
        let refill = match (&self.bucket, ask.rate) {
            (Some(bucket), Some(rate)) => {
                2.0 * (f64::from(rate.burst) - bucket.level) / rate.per_second * SECOND
            }
            _ => 0.0,
        };
        self.pause_life(now).max(refill)
    }

    pub(super) fn pause_life(&self, now: f64) -> f64 {
        STATE_LIFE.max(self.pause_left(now) + SECOND)
    }

    fn pause_left(&self, now: f64) -> f64 {
        (self.pause - now).max(0.0)
    }

    /// How many workers there are.
    fn note(&mut self, worker: WorkerId, now: f64, period: f64) -> usize {
        let life = (3.0 * period).max(3.0 * SECOND);
        self.workers.retain(|_, until| *until > now);
        self.workers.insert(worker, now + life);
        self.workers.len()
    }

    /// Tokens, and if there are none, when to ask again.
    fn take(&mut self, now: f64, ask: &LeaseAsk, rate: SharedRate, workers: usize) -> (u32, f64) {
        let period = micros(ask.period);
        let count = workers as f64;
        let fair = (rate.per_second * period / SECOND / count).max(1.0);
        let mut level = self.level(now, rate, fair);
        level = (level + f64::from(ask.unused)).min(f64::from(rate.burst));

        let place = self.place(now, ask.worker, period, workers);
        // A whole number, or some would get the larger half at each of their turns.
        let chunk = (fair / 2.0).ceil();
        let ahead = place.others_ahead() * chunk;
        let room = level + fair - ahead;
        // More than its share only of what all others together do not need for theirs.
        let mut share = fair + (level - count * fair).max(0.0);
        if place.others > 0.0 {
            share = share.min(chunk);
        }
        let tokens = ask.want.min(room.min(share).floor().max(0.0) as u32);
        level -= f64::from(tokens);
        self.bucket = Some(Bucket {
            level,
            at: now,
            rate: rate.per_second,
        });

        if tokens > 0 || ask.want == 0 {
            self.waiting.remove(&ask.worker);
            return (tokens, 0.0);
        }
        let time_of = |tokens: f64| (tokens / rate.per_second * SECOND).ceil();
        let turn = match place.turn {
            Some(turn) if !place.due => turn,
            _ => {
                let missing = f64::from(ask.want).min(chunk) - (level + fair);
                now + time_of(missing + ahead).max(LEAST_WAIT)
            }
        };
        self.waiting.insert(ask.worker, turn);
        // Those ahead may not come, so it is worth asking before.
        let one = time_of(1.0 - (level + fair));
        (0, (turn - now).min(period.max(one)).max(LEAST_WAIT))
    }

    /// Those who were refused come again when it is their turn. One who does not is forgotten.
    fn place(&mut self, now: f64, worker: WorkerId, period: f64, workers: usize) -> Place {
        let patience = period.clamp(SECOND / 20.0, SECOND);
        self.waiting.retain(|_, turn| *turn > now - patience);
        let turn = self.waiting.get(&worker).copied();
        let others = self.waiting.len() - usize::from(turn.is_some());
        Place {
            turn,
            // The dead do not come, however far away their turn is.
            others: others.min(workers - 1) as f64,
            due: turn.is_some_and(|turn| turn <= now),
        }
    }

    /// What is in the bucket. It is full at first.
    fn level(&self, now: f64, rate: SharedRate, fair: f64) -> f64 {
        let Some(bucket) = &self.bucket else {
            return f64::from(rate.burst);
        };
        let mut level = bucket.level;
        if level < 0.0 && bucket.rate != rate.per_second {
            // What was taken ahead is a time to wait. It is not to get longer at a lower rate, nor to be
            // forgotten.
            level = (level * rate.per_second / bucket.rate).max(-fair);
        }
        level + (now - bucket.at).max(0.0) * rate.per_second / SECOND
    }

    /// The adaptive rate of all together.
    fn change_pace(&mut self, now: f64, change: Option<PaceChange>, workers: usize) -> Option<f64> {
        if self
            .pace
            .as_ref()
            .is_some_and(|pace| now - pace.at > PACE_LIFE)
        {
            self.pace = None;
        }
        if let Some(change) = change {
            let total = match &self.pace {
                Some(pace) => pace.total + (change.now - change.before),
                None => change.now * workers as f64,
            };
            let total = total.clamp(1.0 / 30.0, 1e6);
            self.pace = Some(Pace { total, at: now });
        }
        self.pace.as_ref().map(|pace| pace.total)
    }
}
