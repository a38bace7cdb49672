//! What clients are built from, to be compared.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::Extensions;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use reqwest_retry::policies::ExponentialBackoff;
use reqwest_retry::{RetryDecision, RetryPolicy, RetryTransientMiddleware};
use reqwest_steady::{Backoff, Budget, Jitter, RetryMiddleware, ThrottleMiddleware};

// As many retries, after the same waits, as `RetryMiddleware` has by default: what differs is all else.
const RETRIES: u32 = 5;
const BASE: Duration = Duration::from_millis(200);
const CAP: Duration = Duration::from_secs(10);

pub fn no_retry(_seed: u64) -> Vec<Arc<dyn Middleware>> {
    Vec::new()
}

/// Again after a second, up to 5 times: the retry as it is often written by hand.
pub fn fixed_interval(seed: u64) -> Vec<Arc<dyn Middleware>> {
    unspread(
        Backoff::exponential(Duration::from_secs(1)).multiplier(1.0),
        seed,
    )
}

/// After 200 ms, 400 ms, and so on, up to 5 times: all who failed together come again together.
pub fn exponential(seed: u64) -> Vec<Arc<dyn Middleware>> {
    unspread(Backoff::default(), seed)
}

/// Without what spreads or bounds retries.
fn unspread(backoff: Backoff, seed: u64) -> Vec<Arc<dyn Middleware>> {
    let retry = RetryMiddleware::builder()
        .backoff(backoff.jitter(Jitter::None))
        .budget(Budget::unlimited())
        .seed(seed);
    vec![Arc::new(retry.build().unwrap())]
}

/// 5 retries, after up to 200 ms, 400 ms, and so on.
pub fn reqwest_retry_unseeded(_seed: u64) -> Vec<Arc<dyn Middleware>> {
    let policy = ExponentialBackoff::builder()
        .retry_bounds(BASE, CAP)
        .jitter(reqwest_retry::Jitter::Full)
        .build_with_max_retries(RETRIES);
    vec![Arc::new(RetryTransientMiddleware::new_with_policy(policy))]
}

/// The same, so that it comes out the same every time.
///
/// What it draws cannot be seeded, and how long it sleeps depends on the wall clock. So its policy says
/// "at once" here, and the wait, by the same formula, is slept behind it.
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

/// How often this call has been sent. All attempts of reqwest-retry see the same extensions.
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

/// As it comes.
pub fn steady_retry(seed: u64) -> Vec<Arc<dyn Middleware>> {
    vec![Arc::new(
        RetryMiddleware::builder().seed(seed).build().unwrap(),
    )]
}

/// Both, as they come.
pub fn steady_throttle(seed: u64) -> Vec<Arc<dyn Middleware>> {
    with_throttle(steady_retry(seed), seed)
}

/// A throttle behind them.
pub fn with_throttle(mut stack: Vec<Arc<dyn Middleware>>, seed: u64) -> Vec<Arc<dyn Middleware>> {
    let throttle = ThrottleMiddleware::builder().seed(seed).build().unwrap();
    stack.push(Arc::new(throttle));
    stack
}
