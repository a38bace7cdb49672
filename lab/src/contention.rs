//! The simulation in which Marc Brooker of AWS compared kinds of jitter.
//!
//! Many clients change one row that has an optimistic lock. Each client reads the row and writes it back. Each of the
//! four one-way trips takes |N(10, 2)| ms, here rounded up to the next millisecond. A client whose row has changed
//! before its write waits and starts again.
//!
//! "Exponential Backoff And Jitter" on the AWS Architecture Blog shows its lines, and AWS has published its code. Their
//! figures are drawn beside ours.

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

/// The number of clients between two figures of [`AWS`].
const AWS_STEP: usize = 10;

/// What the simulator of AWS gives for 10, 20 … 100 clients: the writes, and the milliseconds until the last. Means of
/// 100 runs, in the order of [`STACKS`].
#[rustfmt::skip]
const AWS: [[(f64, f64); 10]; STACKS.len()] = [
    [
        (51.0, 377.0), (153.0, 603.0), (288.0, 779.0), (465.0, 953.0), (688.0, 1146.0),
        (959.0, 1327.0), (1260.0, 1497.0), (1604.0, 1671.0), (1995.0, 1853.0), (2421.0, 2027.0),
    ],
    [
        (51.0, 3545.0), (151.0, 14673.0), (274.0, 22057.0), (436.0, 29710.0), (623.0, 35995.0),
        (839.0, 42971.0), (1057.0, 48314.0), (1290.0, 52884.0), (1566.0, 58454.0), (1853.0, 62862.0),
    ],
    [
        (42.0, 756.0), (108.0, 1623.0), (184.0, 2712.0), (262.0, 3497.0), (347.0, 4305.0),
        (435.0, 4873.0), (528.0, 5363.0), (619.0, 5826.0), (714.0, 6170.0), (812.0, 6658.0),
    ],
    [
        (38.0, 437.0), (101.0, 860.0), (181.0, 1251.0), (274.0, 1690.0), (374.0, 2156.0),
        (489.0, 2703.0), (605.0, 3194.0), (732.0, 3629.0), (862.0, 4171.0), (1002.0, 4530.0),
    ],
    [
        (39.0, 451.0), (101.0, 1008.0), (172.0, 1536.0), (249.0, 2289.0), (333.0, 3030.0),
        (419.0, 3442.0), (509.0, 3852.0), (602.0, 4266.0), (700.0, 4548.0), (797.0, 4879.0),
    ],
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

/// Says how many writes the best and the worst client need, and those of AWS need.
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

/// Returns the writes and milliseconds of this client in the simulator of AWS.
fn published(name: &str, clients: usize) -> Option<(f64, f64)> {
    let index = STACKS.iter().position(|(stack, _)| *stack == name)?;
    let figures = AWS[index].iter().enumerate();
    let mut figures = figures.map(|(step, figures)| ((step + 1) * AWS_STEP, *figures));
    let found = figures.find(|(count, _)| *count == clients);
    found.map(|(_, figures)| figures)
}

/// Shows a figure of AWS in brackets.
fn aws(published: Option<String>) -> String {
    published.map_or_else(String::new, |figure| format!(" (AWS: {figure})"))
}

/// Draws writes and time over the number of clients, as AWS did. The lines of AWS are thin, with a ring at each figure.
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
        let series = lines.iter().map(|(name, points)| Series {
            name: (*name).to_owned(),
            points: points.iter().map(|point| (point.0, y(point))).collect(),
            published: (1..=clients)
                .filter_map(|count| Some((count as f64, theirs(published(name, count)?))))
                .collect(),
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
            published: "AWS's own simulator",
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
        let writes = STACKS.iter().map(|(name, stack)| {
            let (calls, millis) = published(name, 100).expect("figures for 100 clients");
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
    fn lines_of_aws_appear_up_to_as_many_clients() {
        let drawn = |clients| {
            let charts = lines(clients, 1);
            let charts = charts.iter().map(|chart| chart.draw().into_string());
            charts.collect::<Vec<_>>()
        };
        for (clients, figures) in [(100, 10), (30, 3), (25, 2)] {
            for chart in drawn(clients) {
                let rings = chart.matches("class=\"dot line-").count();
                assert_eq!(rings, figures * STACKS.len(), "{clients}: {chart}");
                let theirs = chart.matches("class=\"theirs line-").count();
                assert_eq!(theirs, STACKS.len(), "{clients}: {chart}");
                // The title compares only the same number of clients.
                assert_eq!(
                    chart.contains("(AWS: "),
                    clients != 25,
                    "{clients}: {chart}"
                );
            }
        }
        for chart in drawn(9) {
            assert!(!chart.contains("AWS"), "{chart}");
        }
    }
}
