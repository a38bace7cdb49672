//! The simulation in which Marc Brooker of AWS compared kinds of jitter.
//!
//! Many clients change one row that has an optimistic lock. Each client reads the row and writes it back. Each of the
//! four one-way trips takes |N(10, 2)| ms, here rounded up to the next millisecond. A client whose row has changed
//! before its write waits and starts again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Extensions, HeaderValue, Method, StatusCode};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Normal};
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use reqwest_steady::testing::{Chance, Load, Reply, Rule, SimulatedService, Simulation};
use reqwest_steady::{Backoff, Budget, Jitter, RetryMiddleware, StatusClass};
use tokio::time::sleep;

const BASE: Duration = Duration::from_millis(5);
const CAP: Duration = Duration::from_secs(2);

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
pub(crate) fn at_once(seed: u64) -> Vec<Arc<dyn Middleware>> {
    let shortest = Duration::from_nanos(1);
    let backoff = Backoff::exponential(shortest).cap(shortest);
    stack(backoff.jitter(Jitter::None), seed)
}

pub(crate) fn exponential(seed: u64) -> Vec<Arc<dyn Middleware>> {
    stack(backoff(Jitter::None), seed)
}

pub(crate) fn equal(seed: u64) -> Vec<Arc<dyn Middleware>> {
    stack(backoff(Jitter::Equal), seed)
}

pub(crate) fn decorrelated(seed: u64) -> Vec<Arc<dyn Middleware>> {
    let backoff = Backoff::exponential(BASE).cap(CAP);
    stack(backoff.jitter(Jitter::Decorrelated), seed)
}

pub(crate) fn full(seed: u64) -> Vec<Arc<dyn Middleware>> {
    stack(backoff(Jitter::Full), seed)
}

#[cfg(test)]
mod tests {
    use reqwest_steady::testing::Stack;

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
        // The published calls and milliseconds for 100 clients.
        let published: [(&Stack, f64, f64); 5] = [
            (&at_once, 2421.0, 2027.0),
            (&exponential, 1853.0, 62862.0),
            (&equal, 812.0, 6658.0),
            (&decorrelated, 1002.0, 4530.0),
            (&full, 797.0, 4879.0),
        ];
        let near = |ours: f64, theirs: f64, by: f64| (ours / theirs - 1.0).abs() < by;
        let writes = published.map(|(stack, calls, millis)| {
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
        let [at_once, .., full] = writes;
        let share = full / at_once;
        assert!((0.3..0.4).contains(&share), "{share} is not about a third");
    }
}
