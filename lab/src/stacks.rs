//! The middleware stacks that the lab compares.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::Extensions;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use reqwest_retry::policies::ExponentialBackoff;
use reqwest_retry::{RetryDecision, RetryPolicy, RetryTransientMiddleware};
use reqwest_steady::{Backoff, Budget, Jitter, RetryMiddleware, Steady, ThrottleMiddleware};

// The number of retries and the waits are the defaults of `RetryMiddleware`, so that only the rest differs.
const RETRIES: u32 = 5;
const BASE: Duration = Duration::from_millis(200);
const CAP: Duration = Duration::from_secs(10);

pub fn no_retry(_seed: u64) -> Vec<Arc<dyn Middleware>> {
    Vec::new()
}

/// Retries up to 5 times, 1 s apart, as hand-written loops often do.
pub fn fixed_interval(seed: u64) -> Vec<Arc<dyn Middleware>> {
    unspread(
        Backoff::exponential(Duration::from_secs(1)).multiplier(1.0),
        seed,
    )
}

/// Retries up to 5 times, after 200 ms, 400 ms and so on. Calls that fail together retry together.
pub fn exponential(seed: u64) -> Vec<Arc<dyn Middleware>> {
    unspread(Backoff::default(), seed)
}

/// Builds a retry without jitter and budget, whose calls know nothing of each other.
fn unspread(backoff: Backoff, seed: u64) -> Vec<Arc<dyn Middleware>> {
    let retry = RetryMiddleware::builder()
        .backoff(backoff.jitter(Jitter::None).alone())
        .budget(Budget::unlimited())
        .seed(seed);
    vec![Arc::new(retry.build().unwrap())]
}

/// Retries up to 5 times, after random waits up to 200 ms, 400 ms and so on.
pub fn reqwest_retry_unseeded(_seed: u64) -> Vec<Arc<dyn Middleware>> {
    let policy = ExponentialBackoff::builder()
        .retry_bounds(BASE, CAP)
        .jitter(reqwest_retry::Jitter::Full)
        .build_with_max_retries(RETRIES);
    vec![Arc::new(RetryTransientMiddleware::new_with_policy(policy))]
}

/// Does the same, with reproducible results.
///
/// The random numbers of reqwest-retry cannot be seeded, and its waits depend on the wall clock. So its policy retries
/// at once, and a middleware behind it waits by the same formula.
pub fn reqwest_retry(seed: u64) -> Vec<Arc<dyn Middleware>> {
    let waits = SeededWaits(Mutex::new(StdRng::seed_from_u64(seed)));
    vec![
        Arc::new(RetryTransientMiddleware::new_with_policy(AtOnce)),
        Arc::new(waits),
    ]
}

struct AtOnce;

impl RetryPolicy for AtOnce {
    fn should_retry(&self, _started: SystemTime, past_retries: u32) -> RetryDecision {
        if past_retries >= RETRIES {
            return RetryDecision::DoNotRetry;
        }
        let execute_after = SystemTime::UNIX_EPOCH;
        RetryDecision::Retry { execute_after }
    }
}

/// The number of requests of this call so far. All attempts of reqwest-retry share their extensions.
#[derive(Clone, Copy)]
struct Sent(i32);

struct SeededWaits(Mutex<StdRng>);

#[async_trait::async_trait]
impl Middleware for SeededWaits {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let sent = extensions.get().map_or(0, |Sent(sent)| *sent);
        if sent > 0 {
            let ceiling = BASE.mul_f64(2f64.powi(sent - 1)).min(CAP);
            let share = self.0.lock().unwrap().random::<f64>();
            tokio::time::sleep(ceiling.mul_f64(share)).await;
        }
        extensions.insert(Sent(sent + 1));
        next.run(request, extensions).await
    }
}

/// Builds a `RetryMiddleware` with default settings.
pub fn steady_retry(seed: u64) -> Vec<Arc<dyn Middleware>> {
    vec![Arc::new(
        RetryMiddleware::builder().seed(seed).build().unwrap(),
    )]
}

/// Builds both middlewares with default settings.
pub fn steady_throttle(seed: u64) -> Vec<Arc<dyn Middleware>> {
    of_steady(&default_steady(seed))
}

/// Builds the bundle with default settings.
pub fn default_steady(seed: u64) -> Steady {
    let steady = Steady::builder()
        .retry(RetryMiddleware::builder().seed(seed))
        .throttle(ThrottleMiddleware::builder().seed(seed));
    steady.build().unwrap()
}

/// Returns the middlewares of a bundle, the outermost first, as `with_steady` adds them to a client.
pub fn of_steady(steady: &Steady) -> Vec<Arc<dyn Middleware>> {
    let mut stack: Vec<Arc<dyn Middleware>> = Vec::new();
    if let Some(coalesce) = steady.coalesce() {
        stack.push(Arc::new(coalesce.clone()));
    }
    stack.push(Arc::new(steady.retry().clone()));
    stack.push(Arc::new(steady.throttle().clone()));
    stack
}

/// Adds a throttle behind these middlewares.
pub fn with_throttle(mut stack: Vec<Arc<dyn Middleware>>, seed: u64) -> Vec<Arc<dyn Middleware>> {
    let throttle = ThrottleMiddleware::builder().seed(seed).build().unwrap();
    stack.push(Arc::new(throttle));
    stack
}
