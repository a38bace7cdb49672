//! Random services with limits, and the calls to them.
//!
//! Fixed workloads invite rules that fit only them. A random service has a random limit, latency, hint and load, so a
//! client cannot be tuned to it. Each service depends only on its seed and its index, so it can be run alone.

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest_steady::testing::{Load, SimulatedService, Simulation, Steps};
use serde::{Deserialize, Serialize};

use crate::limiter::{AnyLimit, Limiter};

/// The most calls to one service, so that hundreds of services take seconds.
const MOST_CALLS: f64 = 4000.0;
const FEWEST_CALLS: f64 = 20.0;
/// The longest wait of a call if the client knows the limit, in seconds. Throttles queue calls for at most 30 s. With
/// longer waits, the study would measure that setting.
const LONGEST_WAIT: f64 = 10.0;

/// How a service limits requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LimitKind {
    /// Fixed windows of this width.
    Windows(Duration),
    /// A token bucket that holds this many requests.
    TokenBucket(f64),
    /// GCRA with this burst, from 1 to 5.
    Gcra(f64),
    /// Requests in work at once, each for this time.
    Concurrency(Duration),
}

/// What a service tells about its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hint {
    #[default]
    None,
    /// `Retry-After: 1` on refusals.
    #[serde(skip)]
    RetryAfter,
    /// `Retry-After` on refusals: the time until there is room, in whole seconds.
    #[serde(rename = "retry-after")]
    RetryAfterSeconds,
    /// `retry-after-ms` on refusals: the exact time until there is room.
    RetryAfterMs,
    /// `RateLimit` of the IETF draft on every response, in whole seconds.
    #[serde(rename = "ratelimit")]
    RateLimit,
    /// `X-RateLimit-Remaining` and `X-RateLimit-Reset` on every response, in whole seconds.
    #[serde(rename = "x-ratelimit-seconds")]
    XRateLimitSeconds,
    /// The same, with the reset as a Unix timestamp, and `Date`.
    #[serde(rename = "x-ratelimit-epoch")]
    XRateLimitEpoch,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no hint",
            Self::RetryAfter => "Retry-After: 1",
            Self::RetryAfterSeconds => "Retry-After",
            Self::RetryAfterMs => "retry-after-ms",
            Self::RateLimit => "RateLimit",
            Self::XRateLimitSeconds => "X-RateLimit in seconds",
            Self::XRateLimitEpoch => "X-RateLimit as epoch",
        })
    }
}

/// Failures that have nothing to do with the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    None,
    /// This share of the accepted requests gets this status.
    Status(u16, f64),
    /// This share of the accepted requests ends with a connection reset.
    Resets(f64),
}

/// Describes a service with a limit, and the calls to it.
#[derive(Clone, Debug)]
pub struct RandomService {
    pub seed: u64,
    pub index: usize,
    pub kind: LimitKind,
    /// Requests per second, at the start.
    pub capacity: f64,
    /// The capacity changes at this time by this factor.
    pub shift: Option<(Duration, f64)>,
    pub latency: Duration,
    /// Varies each round trip by a factor of `1 ± jitter`.
    pub jitter: f64,
    /// The status of refusals.
    pub status: u16,
    pub hint: Hint,
    pub noise: Noise,
    pub load: Load,
}

impl RandomService {
    /// Generates the service with this seed and index.
    pub fn new(seed: u64, index: usize) -> Self {
        let mut dice = Dice::new(seed, index);
        let shifts = dice.happens(0.15);
        let (kind, capacity) = dice.limit(shifts);
        let (load, shift) = dice.load(capacity, shifts);
        Self {
            seed,
            index,
            kind,
            capacity,
            shift,
            latency: milliseconds(dice.log(1.0, 200.0)),
            jitter: dice.between(0.0, 0.3),
            status: if dice.happens(0.7) { 429 } else { 503 },
            hint: dice.hint(),
            noise: dice.one_of(&[Noise::None, Noise::Status(503, 0.01), Noise::Resets(0.005)]),
            load,
        }
    }

    /// Returns the capacity in requests per second, over time and times a factor.
    pub(crate) fn capacity_times(&self, factor: f64) -> Steps {
        let first = Steps::from(factor * self.capacity);
        match self.shift {
            Some((time, shift)) => first.then(time, shift * factor * self.capacity),
            None => first,
        }
    }

    fn limiter(&self) -> Limiter {
        let limit = AnyLimit::new(self.kind, |factor| self.capacity_times(factor), self.status);
        Limiter::new(limit, self.hint, vec![self.noise])
    }

    /// Prepares the calls.
    pub fn simulation(&self) -> Simulation {
        let service = SimulatedService::with_latency(self.latency)
            .jitter(self.jitter)
            .rule(self.limiter());
        // The service and its clients must not draw the numbers that described the service.
        let seed = self.seed.wrapping_mul(1_000_003) ^ self.index as u64;
        Simulation::new(service, self.load).seed(seed)
    }

    /// Returns when the last call ends if the client knows the limit and the future.
    ///
    /// It sends every request so that it arrives as soon as the limit has room. It ignores jitter and noise. Virtual
    /// time has whole milliseconds, so arrivals have, too.
    pub fn ideal(&self) -> Duration {
        let mut limiter = self.limiter();
        let mut at = Duration::ZERO;
        for call in 0..self.load.calls() {
            at = whole_ms(at.max(begin(self.load, call) + self.latency / 2));
            while let (0, wait) = limiter.remaining(at) {
                at = whole_ms(at + wait.max(Duration::from_millis(1)));
            }
            limiter.accept(at);
        }
        let work = match self.kind {
            LimitKind::Concurrency(work) => work,
            _ => Duration::ZERO,
        };
        at + work + self.latency / 2
    }
}

/// Returns when this call of a load starts.
fn begin(load: Load, call: usize) -> Duration {
    match load {
        Load::Rate(rate, _) => Duration::from_secs_f64(call as f64 / rate),
        Load::Beats { calls, every, .. } => every * (call / calls) as u32,
        _ => Duration::ZERO,
    }
}

fn milliseconds(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1000.0)
}

/// Rounds up, as tokio's timers do.
fn whole_ms(time: Duration) -> Duration {
    Duration::from_millis(time.as_nanos().div_ceil(1_000_000) as u64)
}

/// Draws the properties of one service.
struct Dice(StdRng);

impl Dice {
    fn new(seed: u64, index: usize) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&(index as u64).to_le_bytes());
        Self(StdRng::from_seed(bytes))
    }

    fn happens(&mut self, share: f64) -> bool {
        self.0.random_bool(share)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0.random_range(low..=high)
    }

    /// Returns a number whose logarithm is uniformly distributed.
    fn log(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.random_range(0..all.len())]
    }

    fn hint(&mut self) -> Hint {
        self.one_of(&[
            Hint::None,
            Hint::RetryAfter,
            Hint::RetryAfterMs,
            Hint::RateLimit,
            Hint::XRateLimitSeconds,
            Hint::XRateLimitEpoch,
        ])
    }

    /// Draws a limit and its capacity per second. If the capacity shifts, the limit can be halved.
    fn limit(&mut self, shifts: bool) -> (LimitKind, f64) {
        let capacity = self.log(5.0, 3000.0);
        let least = if shifts { 2.0 } else { 1.0 };
        match self.0.random_range(0..4) {
            0 => {
                let width = whole_ms(milliseconds(self.log(10.0, 1000.0)));
                let accepts = (capacity * width.as_secs_f64()).round().max(least);
                (LimitKind::Windows(width), accepts / width.as_secs_f64())
            }
            1 => {
                // It holds 10 ms to 1 s of its capacity.
                let burst = (capacity * self.log(0.01, 1.0)).ceil().max(2.0);
                (LimitKind::TokenBucket(burst), bounded(capacity, burst))
            }
            2 => {
                let burst = f64::from(self.0.random_range(1..=5));
                (LimitKind::Gcra(burst), bounded(capacity, burst))
            }
            _ => {
                let work = whole_ms(milliseconds(self.log(5.0, 500.0)));
                let most = (capacity * work.as_secs_f64()).round().max(least);
                (LimitKind::Concurrency(work), most / work.as_secs_f64())
            }
        }
    }

    /// Draws the calls to a service with this capacity, and the shift of its capacity.
    fn load(&mut self, capacity: f64, shifts: bool) -> (Load, Option<(Duration, f64)>) {
        if shifts {
            let factor = if self.happens(0.5) { 0.5 } else { 2.0 };
            let load = self.steady(capacity, factor);
            let middle = begin(load, load.calls() / 2);
            return (load, Some((whole_ms(middle), factor)));
        }
        let load = match self.0.random_range(0..3) {
            0 => {
                let calls = capacity * self.between(2.0, 5.0);
                Load::AtOnce(calls.clamp(FEWEST_CALLS, MOST_CALLS) as usize)
            }
            1 => self.steady(capacity, 1.0),
            _ => {
                let times = self.0.random_range(2..=5);
                let calls = capacity * self.between(0.5, 2.0);
                let calls = calls.clamp(FEWEST_CALLS / 2.0, MOST_CALLS / times as f64);
                Load::Beats {
                    calls: calls as usize,
                    every: whole_ms(milliseconds(self.between(500.0, 2000.0))),
                    times,
                }
            }
        };
        (load, None)
    }

    /// Draws 1.5 to 3 times the capacity for 2 to 10 s, or for as long as the most calls last. In the second half, the
    /// capacity changes by `factor`.
    fn steady(&mut self, capacity: f64, factor: f64) -> Load {
        let overload = self.between(1.5, 3.0);
        let rate = capacity * overload;
        let seconds = self.between(2.0, 10.0);
        // What is left at the end, for each second of calls, in seconds of work at the capacity of the second half.
        let backlog = (overload - 0.5 - 0.5 * factor) / factor;
        let most = (LONGEST_WAIT / backlog).min(MOST_CALLS / rate).max(0.1);
        let seconds = seconds.clamp(FEWEST_CALLS / rate, most.max(FEWEST_CALLS / rate));
        Load::Rate(rate, Duration::from_secs_f64(seconds))
    }
}

/// Limits the capacity to what a bucket of this size can accept in virtual time, which has whole milliseconds.
fn bounded(capacity: f64, burst: f64) -> f64 {
    capacity.min(800.0 * burst)
}

impl fmt::Display for RandomService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accepts = |time: Duration| (self.capacity * time.as_secs_f64()).round();
        match self.kind {
            LimitKind::Windows(width) => write!(f, "{} per {width:?}", accepts(width))?,
            LimitKind::TokenBucket(burst) => write!(f, "bucket of {burst}")?,
            LimitKind::Gcra(burst) => write!(f, "GCRA with burst {burst}")?,
            LimitKind::Concurrency(work) => write!(f, "{} at once for {work:?}", accepts(work))?,
        }
        write!(f, " ({:.1}/s", self.capacity)?;
        if let Some((time, factor)) = self.shift {
            write!(f, ", times {factor} after {:.1} s", time.as_secs_f64())?;
        }
        let ms = 1000.0 * self.latency.as_secs_f64();
        write!(f, "), {ms:.0} ms ± {:.0} %", 100.0 * self.jitter)?;
        write!(f, ", {} with {}", self.status, self.hint)?;
        match self.noise {
            Noise::None => {}
            Noise::Status(status, share) => {
                write!(f, ", {} % random {status}", 100.0 * share)?;
            }
            Noise::Resets(share) => write!(f, ", {} % resets", 100.0 * share)?,
        }
        match self.load {
            Load::AtOnce(calls) => write!(f, "; {calls} at once"),
            Load::Rate(rate, time) => write!(f, "; {rate:.1}/s for {:.1} s", time.as_secs_f64()),
            Load::Beats {
                calls,
                every,
                times,
            } => write!(f, "; {times} bursts of {calls}, every {every:?}"),
            other => write!(f, "; {other:?}"),
        }
    }
}
