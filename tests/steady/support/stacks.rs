//! What clients are built from, to be compared.

#![allow(
    dead_code,
    reason = "shared by tests and benches, and neither needs all of it"
)]

use std::sync::Arc;
use std::time::Duration;

use reqwest_middleware::Middleware;
use reqwest_retry::policies::ExponentialBackoff;
use reqwest_retry::{Jitter, RetryTransientMiddleware};
use reqwest_steady::{RetryMiddleware, ThrottleMiddleware};

pub(crate) fn no_retry(_seed: u64) -> Vec<Arc<dyn Middleware>> {
    Vec::new()
}

/// 5 retries, after up to 100 ms, 200 ms, and so on.
pub(crate) fn reqwest_retry(_seed: u64) -> Vec<Arc<dyn Middleware>> {
    let policy = ExponentialBackoff::builder()
        .retry_bounds(Duration::from_millis(100), Duration::from_secs(10))
        .jitter(Jitter::Full)
        .build_with_max_retries(5);
    vec![Arc::new(RetryTransientMiddleware::new_with_policy(policy))]
}

/// As it comes.
pub(crate) fn steady_retry(seed: u64) -> Vec<Arc<dyn Middleware>> {
    vec![Arc::new(
        RetryMiddleware::builder().seed(seed).build().unwrap(),
    )]
}

/// Both, as they come.
pub(crate) fn steady_throttle(seed: u64) -> Vec<Arc<dyn Middleware>> {
    let throttle = ThrottleMiddleware::builder().seed(seed).build().unwrap();
    let mut stack = steady_retry(seed);
    stack.push(Arc::new(throttle));
    stack
}
