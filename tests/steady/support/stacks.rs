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

/// A budget that successes do not refill, and how much it holds.
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
