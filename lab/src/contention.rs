//! The simulation in which Marc Brooker of AWS compared kinds of jitter.
//!
//! Many clients change one row that has an optimistic lock. Each client reads the row and writes it back. Each of the
//! four one-way trips takes |N(10, 2)| ms, here rounded up to the next millisecond. A client whose row has changed
//! before its write waits and starts again.
//!
//! It was published with "Exponential Backoff And Jitter" on the AWS Architecture Blog, 2015.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Extensions, HeaderValue, Method, StatusCode};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Normal};
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use reqwest_steady::testing::{Chance, Load, Reply, Rule, SimulatedService, Simulation, Stack};
use reqwest_steady::{Backoff, Budget, Jitter, RetryMiddleware, StatusClass};
use tokio::time::sleep;

use crate::conclusion::{find_run, whole};
use crate::lines::{Lines, Series, Unit};
use crate::results::Run;

const BASE: Duration = Duration::from_millis(5);
const CAP: Duration = Duration::from_secs(2);

const AT_ONCE: &str = "no backoff";
const FULL: &str = "reqwest-steady, Jitter::Full";

/// The clients of the model.
pub(crate) const STACKS: &[(&str, &Stack)] = &[
    (AT_ONCE, &at_once),
    ("exponential, no jitter", &exponential),
    ("reqwest-steady, Jitter::Equal", &equal),
    ("reqwest-steady, Jitter::Decorrelated", &decorrelated),
    (FULL, &full),
];

/// The number of clients of [`PUBLISHED`].
const PUBLISHED_CLIENTS: usize = 100;

/// The published number of writes, and the published milliseconds until the last, in the order of [`STACKS`].
const PUBLISHED: [(f64, f64); STACKS.len()] = [
    (2421.0, 2027.0),
    (1853.0, 62862.0),
    (812.0, 6658.0),
    (1002.0, 4530.0),
    (797.0, 4879.0),
];

/// One write of each client, all at once. A [`Transaction`] adds the latency.
pub(crate) fn simulation(clients: usize) -> Simulation {
    let service = SimulatedService::with_latency(Duration::ZERO).rule(Row { version: 0 });
    Simulation::new(service, Load::AtOnce(clients)).clients(clients)
}

/// A row that returns its version to readers, and refuses a write with another version.
struct Row {
    version: u64,
}

impl Rule for Row {
    fn decide(&mut self, request: &Request, _: Duration, _: &mut Chance) -> Option<Reply> {
        let Some(known) = request.headers().get("if-match") else {
            return Some(Reply::status(200).header("etag", &self.version.to_string()));
        };
        if known.as_bytes() != self.version.to_string().as_bytes() {
            return Some(Reply::status(412));
        }
        self.version += 1;
        None
    }
}

/// Combines a read and a write into one call, so that both are retried together.
struct Transaction {
    chance: Mutex<StdRng>,
}

impl Transaction {
    /// Returns the duration of a one-way trip.
    fn trip(&self) -> Duration {
        let length = Normal::new(10.0, 2.0).expect("2 is a valid deviation");
        let millis: f64 = length.sample(&mut *self.chance.lock().unwrap());
        Duration::from_secs_f64(millis.abs() / 1000.0)
    }
}

#[async_trait::async_trait]
impl Middleware for Transaction {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let read = request.try_clone().expect("a request without a body");
        sleep(self.trip()).await;
        let row = next.clone().run(read, extensions).await?;
        let version: HeaderValue = row.headers()["etag"].clone();
        sleep(self.trip() + self.trip()).await;
        request.headers_mut().insert("if-match", version);
        *request.method_mut() = Method::PUT;
        let written = next.run(request, extensions).await;
        sleep(self.trip()).await;
        written
    }
}

fn stack(backoff: Backoff, seed: u64) -> Vec<Arc<dyn Middleware>> {
    let retry = RetryMiddleware::builder()
        .backoff(backoff)
        .status(StatusCode::PRECONDITION_FAILED, StatusClass::Retry)
        // Retries until success, as in the original.
        .max_retries(u32::MAX)
        .retry_window(Duration::MAX)
        .budget(Budget::unlimited())
        .seed(seed);
    // A generator that is independent of the retry's.
    let chance = Mutex::new(StdRng::seed_from_u64(!seed));
    vec![
        Arc::new(retry.build().unwrap()),
        Arc::new(Transaction { chance }),
    ]
}

/// In the original, the first wait is already doubled.
fn backoff(jitter: Jitter) -> Backoff {
    Backoff::exponential(2 * BASE).cap(CAP).jitter(jitter)
}

/// Retries after the shortest possible wait: 1 ms, the resolution of tokio's clock.
fn at_once(seed: u64) -> Vec<Arc<dyn Middleware>> {
    let shortest = Duration::from_nanos(1);
    let backoff = Backoff::exponential(shortest).cap(shortest);
    stack(backoff.jitter(Jitter::None), seed)
}

fn exponential(seed: u64) -> Vec<Arc<dyn Middleware>> {
    stack(backoff(Jitter::None), seed)
}

fn equal(seed: u64) -> Vec<Arc<dyn Middleware>> {
    stack(backoff(Jitter::Equal), seed)
}

fn decorrelated(seed: u64) -> Vec<Arc<dyn Middleware>> {
    let backoff = Backoff::exponential(BASE).cap(CAP);
    stack(backoff.jitter(Jitter::Decorrelated), seed)
}

fn full(seed: u64) -> Vec<Arc<dyn Middleware>> {
    stack(backoff(Jitter::Full), seed)
}

/// Says how many writes the best and the worst client need, and what AWS has published for them.
pub(crate) fn conclusion(runs: &[Run], clients: usize) -> String {
    let writes = |name: &str| whole(find_run(runs, name).requests / 2);
    let theirs =
        |name: &str| aws(published(name, clients).map(|(writes, _)| whole(writes as usize)));
    format!(
        "{} clients change one row: {} writes without backoff{}, {} with full jitter{}",
        whole(clients),
        writes(AT_ONCE),
        theirs(AT_ONCE),
        writes(FULL),
        theirs(FULL)
    )
}

/// Returns the published writes and milliseconds of this client.
fn published(name: &str, clients: usize) -> Option<(f64, f64)> {
    let index = STACKS.iter().position(|(stack, _)| *stack == name)?;
    (clients == PUBLISHED_CLIENTS).then_some(PUBLISHED[index])
}

/// Shows a published figure in brackets.
fn aws(published: Option<String>) -> String {
    published.map_or_else(String::new, |figure| format!(" (AWS: {figure})"))
}

/// Draws writes and time over the number of clients, as AWS did, with the figures of AWS as points.
pub(crate) fn lines(clients: usize, seed: u64) -> Vec<Lines> {
    let mut counts: Vec<_> = (1..=10)
        .map(|tenth| (clients * tenth / 10).max(1))
        .collect();
    counts.dedup();
    // The clients, the writes and the seconds of each run.
    let run = |stack: &Stack<'_>, clients: usize| {
        let outcome = simulation(clients).seed(seed).run(stack);
        let writes = outcome.requests() as f64 / 2.0;
        (clients as f64, writes, outcome.last_success().as_secs_f64())
    };
    let lines: Vec<(&str, Vec<_>)> = STACKS
        .iter()
        .map(|(name, stack)| {
            (
                *name,
                counts.iter().map(|count| run(stack, *count)).collect(),
            )
        })
        .collect();
    let chart = |what: &str,
                 unit: Unit,
                 y: fn(&(f64, f64, f64)) -> f64,
                 theirs: fn((f64, f64)) -> f64| {
        let series = lines
            .iter()
            .zip(PUBLISHED)
            .map(|((name, points), figures)| Series {
                name: (*name).to_owned(),
                points: points.iter().map(|point| (point.0, y(point))).collect(),
                published: (clients >= PUBLISHED_CLIENTS)
                    .then(|| (PUBLISHED_CLIENTS as f64, theirs(figures))),
            });
        let figures = [AT_ONCE, FULL].map(|name| {
            let line = lines.iter().find(|(line, _)| *line == name);
            let last = line.and_then(|(_, points)| points.last());
            let ours = unit.format(last.map_or(0.0, y));
            (
                ours,
                aws(published(name, clients).map(|figures| unit.format(theirs(figures)))),
            )
        });
        let [(at_once, at_once_aws), (full, full_aws)] = figures;
        Lines {
            title: format!(
                "{what}: {at_once} without backoff{at_once_aws}, {full} with full jitter{full_aws}"
            ),
            counted: "clients",
            unit,
            published: format!("published by AWS for {PUBLISHED_CLIENTS} clients"),
            series: series.collect(),
        }
    };
    vec![
        chart(
            "Writes",
            Unit::Count("writes"),
            |point| point.1,
            |(writes, _)| writes,
        ),
        chart(
            "Time until the last write",
            Unit::LogSeconds,
            |point| point.2,
            |(_, ms)| ms / 1000.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the average number of writes and milliseconds over several seeds.
    fn mean(stack: &Stack) -> (f64, f64) {
        const SEEDS: u64 = 10;
        let (mut writes, mut millis) = (0.0, 0.0);
        for seed in 0..SEEDS {
            let outcome = simulation(100).seed(seed).run(stack);
            assert_eq!(outcome.succeeded(), 100);
            writes += outcome.requests() as f64 / 2.0;
            millis += outcome.last_success().as_secs_f64() * 1000.0;
        }
        (writes / SEEDS as f64, millis / SEEDS as f64)
    }

    #[test]
    fn the_kinds_of_jitter_compare_as_published() {
        let near = |ours: f64, theirs: f64, by: f64| (ours / theirs - 1.0).abs() < by;
        let all = STACKS.iter().zip(PUBLISHED);
        let writes = all.map(|((_, stack), (calls, millis))| {
            let (writes, took) = mean(stack);
            println!("{writes} writes, {took} ms");
            assert!(
                near(writes, calls, 0.05),
                "{writes} writes instead of {calls}"
            );
            // The last of a hundred clients varies more than the number of writes.
            assert!(near(took, millis, 0.1), "{took} ms instead of {millis}");
            writes
        });
        let writes: Vec<_> = writes.collect();
        let [at_once, .., full] = writes[..] else {
            panic!("too few clients");
        };
        let share = full / at_once;
        assert!((0.3..0.4).contains(&share), "{share} is not about a third");
    }

    #[test]
    fn published_figures_appear_only_for_as_many_clients() {
        let drawn = |clients| {
            let charts = lines(clients, 1);
            charts
                .iter()
                .map(|chart| chart.draw().into_string())
                .collect::<Vec<_>>()
        };
        for chart in drawn(PUBLISHED_CLIENTS) {
            // Each point is a ring in a hole, and one ring is in the legend.
            assert_eq!(
                chart.matches("class=\"dot line-").count(),
                STACKS.len(),
                "{chart}"
            );
            assert!(
                chart.contains("published by AWS for 100 clients"),
                "{chart}"
            );
            assert!(chart.contains("(AWS: "), "{chart}");
        }
        for chart in drawn(20) {
            assert!(!chart.contains("AWS"), "{chart}");
        }
    }
}
