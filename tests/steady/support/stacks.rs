//! Parts of clients that many tests share: exact waits, a budget that does not refill, middleware from closures.

use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use reqwest_steady::{Backoff, Budget, Jitter, RetryMiddleware, RetryMiddlewareBuilder};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SEC: Duration = Duration::from_secs(1);

/// Waits exactly `first`, then twice as long each time.
pub(crate) fn doubling(first: Duration) -> Backoff {
    Backoff::exponential(first).jitter(Jitter::None)
}

/// Waits exactly `wait` each time.
pub(crate) fn constant(wait: Duration) -> Backoff {
    doubling(wait).multiplier(1.0)
}

/// A retry that waits exactly `first`, then twice as long each time.
pub(crate) fn retry_after(first: Duration) -> RetryMiddlewareBuilder {
    RetryMiddleware::builder().backoff(doubling(first))
}

/// A budget without a reserve that has saved up this many retries, for an hour. Each success adds another one, and
/// failures take nothing.
pub(crate) fn saved_budget(retries: usize) -> Budget {
    let budget = Budget::builder().ttl(Duration::from_secs(3600));
    let budget = budget.retry_ratio(1.0).min_retries_per_sec(0.0);
    let budget = budget.build().unwrap();
    (0..retries).for_each(|_| budget.deposit());
    budget
}

/// A budget that never pays. After a 429, only successes of other calls release a retry.
pub(crate) fn empty_budget() -> Budget {
    let budget = Budget::builder().retry_ratio(0.0).min_retries_per_sec(0.0);
    budget.build().unwrap()
}

/// A budget that has only its reserve, and how much it holds.
pub(crate) fn fixed_budget() -> (Budget, f64) {
    let budget = Budget::builder().retry_ratio(0.0).build().unwrap();
    let full = budget.balance();
    (budget, full)
}

/// A client that ignores the proxies of the machine.
pub(crate) fn plain_client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// What a middleware returns.
pub(crate) type Handled<'a> = futures_util::future::BoxFuture<'a, Result<Response>>;

/// A middleware made of a closure: see [`middleware`].
pub(crate) struct FromClosure<F>(F);

/// Makes a middleware from a closure.
pub(crate) fn middleware<F>(handle: F) -> FromClosure<F>
where
    F: for<'a> Fn(Request, &'a mut Extensions, Next<'a>) -> Handled<'a> + Send + Sync + 'static,
{
    FromClosure(handle)
}

#[async_trait::async_trait]
impl<F> Middleware for FromClosure<F>
where
    F: for<'a> Fn(Request, &'a mut Extensions, Next<'a>) -> Handled<'a> + Send + Sync + 'static,
{
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        (self.0)(request, extensions, next).await
    }
}
