//! Runs clients against many random services, and sums up what they achieve.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use reqwest_steady::testing::Stack;
use tokio::time::Instant;

use crate::limiter::ARRIVED;
use crate::random::RandomService;
use crate::stacks::{reqwest_retry, steady_retry, steady_throttle};

/// The clients that a study compares.
pub const STACKS: [(&str, &Stack<'static>); 3] = [
    ("reqwest-retry", &reqwest_retry),
    ("retry alone", &steady_retry),
    ("retry + throttle", &steady_throttle),
];
pub const RETRY: usize = 1;
pub const THROTTLE: usize = 2;

/// The share of successful calls from which on the time of a run counts.
const ENOUGH: f64 = 0.99;

/// What one client achieved at one service.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub calls: usize,
    /// The share of calls that succeeded.
    pub succeeded: f64,
    pub requests_per_success: f64,
    /// The end of the last successful call.
    pub took: Duration,
    /// The same, divided by that of a client that knows the limit and the future.
    pub time_per_ideal: f64,
    /// Requests that were sent after a `Retry-After` was received, and arrived before its time was over.
    pub early: usize,
}

impl Run {
    /// Runs one stack against one service.
    pub fn of(service: &RandomService, stack: &Stack<'_>) -> Self {
        let watch = Arc::new(Watch::default());
        let outcome = service.simulation().run(&|seed| {
            let mut middlewares = stack(seed);
            middlewares.push(watch.clone());
            middlewares
        });
        let took = outcome.last_success();
        Self {
            calls: outcome.calls.len(),
            succeeded: outcome.share(),
            requests_per_success: outcome.requests_per_success(),
            took,
            time_per_ideal: took.as_secs_f64() / service.ideal().as_secs_f64(),
            early: watch.early(),
        }
    }

    fn is_enough(&self) -> bool {
        self.succeeded >= ENOUGH
    }
}

/// Records when requests left and arrived, and what `Retry-After` their responses had.
#[derive(Default)]
struct Watch(Mutex<Vec<Exchange>>);

struct Exchange {
    sent: Instant,
    arrived: Duration,
    received: Instant,
    /// `Retry-After` or `retry-after-ms`.
    wait: Option<Duration>,
}

impl Watch {
    fn early(&self) -> usize {
        let exchanges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told: Vec<_> = exchanges
            .iter()
            .filter_map(|it| Some((it.received, it.arrived + it.wait?)))
            .collect();
        told.sort_unstable();
        // From the time of each hint on: the latest end of all hints so far.
        let mut latest = Duration::ZERO;
        for (_, end) in &mut told {
            latest = latest.max(*end);
            *end = latest;
        }
        let is_early = |it: &&Exchange| {
            // Requests of the same millisecond may have left first.
            let known = told.partition_point(|(received, _)| *received < it.sent);
            known > 0 && it.arrived < told[known - 1].1
        };
        exchanges.iter().filter(is_early).count()
    }
}

#[async_trait::async_trait]
#[allow(clippy::disallowed_methods, reason = "it measures virtual time")]
impl Middleware for Watch {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let sent = Instant::now();
        let response = next.run(request, extensions).await?;
        let number = |name: &str| {
            let value = response.headers().get(name)?;
            value.to_str().ok()?.parse::<u64>().ok()
        };
        let seconds = number("retry-after").map(Duration::from_secs);
        let ms = number("retry-after-ms").map(Duration::from_millis);
        if let Some(arrived) = number(ARRIVED) {
            let exchange = Exchange {
                sent,
                arrived: Duration::from_micros(arrived),
                received: Instant::now(),
                wait: seconds.or(ms),
            };
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(exchange);
        }
        Ok(response)
    }
}

/// The runs of all stacks against all services of one seed.
#[derive(Clone, Debug)]
pub struct Study {
    pub seed: u64,
    /// Each service, with a run of each of [`STACKS`].
    pub services: Vec<(RandomService, [Run; STACKS.len()])>,
}

impl Study {
    /// Runs the services with these indices, on this many threads.
    pub fn new(seed: u64, indices: std::ops::Range<usize>, threads: usize) -> Self {
        let next = AtomicUsize::new(indices.start);
        let services = Mutex::new(Vec::new());
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= indices.end {
                    return;
                }
                let service = RandomService::new(seed, index);
                let runs = STACKS.map(|(_, stack)| Run::of(&service, stack));
                services.lock().unwrap().push((service, runs));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(work);
            }
        });
        let mut services = services.into_inner().unwrap();
        services.sort_by_key(|(service, _)| service.index);
        Self { seed, services }
    }

    /// Sums up the runs of this stack.
    pub fn summary(&self, stack: usize) -> Summary {
        let runs = || self.services.iter().map(|(_, runs)| runs[stack]);
        let with_429 = self.services.iter().filter(|(it, _)| it.status == 429);
        let count = self.services.len() as f64;
        let under = runs().filter(|run| !run.is_enough()).count();
        let finished = runs().filter(Run::is_enough);
        let times: Vec<_> = finished.map(|run| run.time_per_ideal).collect();
        let requests: Vec<_> = runs().map(|run| run.requests_per_success).collect();
        Summary {
            succeeded: mean(runs().map(|run| run.succeeded)),
            succeeded_with_429: mean(with_429.map(|(_, runs)| runs[stack].succeeded)),
            under_99: under as f64 / count,
            time_median: quantile(&times, 0.5),
            time_p90: quantile(&times, 0.9),
            requests_median: quantile(&requests, 0.5),
            requests_p90: quantile(&requests, 0.9),
            early: runs().map(|run| run.early).sum(),
        }
    }

    /// Returns the worst services of this stack: first those that lost calls, then the slowest.
    pub fn worst(&self, stack: usize, count: usize) -> Vec<(&RandomService, Run)> {
        let mut all: Vec<_> = self
            .services
            .iter()
            .map(|(service, runs)| (service, runs[stack]))
            .collect();
        all.sort_by(|(_, one), (_, other)| {
            let lost = |run: &Run| if run.is_enough() { 1.0 } else { run.succeeded };
            let by_loss = lost(one).total_cmp(&lost(other));
            by_loss.then(other.time_per_ideal.total_cmp(&one.time_per_ideal))
        });
        all.truncate(count);
        all
    }
}

/// What one stack achieved at all services.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The mean share of successful calls.
    pub succeeded: f64,
    /// The same at services that refuse with 429.
    pub succeeded_with_429: f64,
    /// The share of services at which fewer than 99 % of the calls succeeded.
    pub under_99: f64,
    /// Quantiles of time ÷ ideal at the other services.
    pub time_median: f64,
    pub time_p90: f64,
    pub requests_median: f64,
    pub requests_p90: f64,
    /// Requests that arrived too early, at all services together.
    pub early: usize,
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<_> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the value with this rank, or NaN without values. A rank of 0.5 is the median.
pub fn quantile(values: &[f64], rank: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let nearest = (rank * sorted.len() as f64).ceil() as usize;
    let found = sorted.get(nearest.saturating_sub(1));
    found.copied().unwrap_or(f64::NAN)
}

const WORST: usize = 10;

impl fmt::Display for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, count) = (self.seed, self.services.len());
        writeln!(f, "{count} random services, seed {seed}")?;
        writeln!(
            f,
            "  {:<17}  {:>9}  {:>8}  {:>10}  {:>13}  {:>20}  {:>5}",
            "",
            "succeeded",
            "with 429",
            "under 99 %",
            "time ÷ ideal",
            "requests per success",
            "early"
        )?;
        for (stack, (name, _)) in STACKS.iter().enumerate() {
            let it = self.summary(stack);
            writeln!(
                f,
                "  {name:<17}  {:>7.2} %  {:>6.2} %  {:>8.1} %  {:>5.2}, {:>6.2}  {:>12.2}, {:>6.2}  {:>5}",
                100.0 * it.succeeded,
                100.0 * it.succeeded_with_429,
                100.0 * it.under_99,
                it.time_median,
                it.time_p90,
                it.requests_median,
                it.requests_p90,
                it.early
            )?;
        }
        writeln!(
            f,
            "Two figures are the median and the p90. Time ÷ ideal counts only services with at least 99 % successes.\n\
             Early: sent after a Retry-After was received, arrived before its time was over.\n"
        )?;
        for stack in [RETRY, THROTTLE] {
            writeln!(f, "The worst of {}:", STACKS[stack].0)?;
            for (service, run) in self.worst(stack, WORST) {
                writeln!(
                    f,
                    "  {:>4}: {:>6.2} % of {:>4}, time ÷ ideal {:>5.2}, requests {:>6.2}, early {}: {service}",
                    service.index,
                    100.0 * run.succeeded,
                    run.calls,
                    run.time_per_ideal,
                    run.requests_per_success,
                    run.early
                )?;
            }
            writeln!(f)?;
        }
        write!(
            f,
            "Run one alone with: lab random --seed {seed} --only INDEX"
        )
    }
}
