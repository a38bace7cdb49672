//! Chains of a retry and a throttle, and middlewares between them.

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientWithMiddleware, Middleware, Next, Result};
use reqwest_steady::{
    Budget, RetryMiddlewareBuilder, ThrottleMiddleware, ThrottleMiddlewareBuilder,
};
use tokio::time::{sleep, timeout};

use super::scripted::{Reply, Server};
use super::stacks::{MS, SEC, retry_after};

/// Waits of 1 s, 2 s, 4 s.
pub(crate) fn retry() -> RetryMiddlewareBuilder {
    retry_after(SEC).seed(1)
}

pub(crate) fn throttle() -> ThrottleMiddlewareBuilder {
    ThrottleMiddleware::builder().seed(1).adaptive(false)
}

/// A budget that has only its reserve, and its balance.
pub(crate) fn budget(ttl: Duration) -> (Budget, f64) {
    let budget = Budget::builder().retry_ratio(0.0).ttl(ttl).build().unwrap();
    let full = budget.balance();
    (budget, full)
}

/// A link of a chain.
pub(crate) type Link = Arc<dyn Middleware>;

pub(crate) fn link(middleware: impl Middleware) -> Link {
    Arc::new(middleware)
}

/// A client with a retry, other middlewares inside it, and this server.
pub(crate) fn chain(
    server: &Arc<Server>,
    retry: RetryMiddlewareBuilder,
    inside: impl IntoIterator<Item = Link>,
) -> ClientWithMiddleware {
    let retry = link(retry.build().unwrap());
    server.client_behind(std::iter::once(retry).chain(inside))
}

/// A server that fails once and then sends `reply`.
pub(crate) fn fails_once_then(reply: fn() -> Reply) -> Arc<Server> {
    Server::new(move |index| match index {
        0 => Reply::status(500),
        _ => reply(),
    })
}

/// Takes the only slot of a throttle after 500 ms, for `time` or until the server responds.
pub(crate) async fn take_the_slot(client: &ClientWithMiddleware, time: Duration) {
    sleep(500 * MS).await;
    let _ = timeout(time, client.get("http://api.example.com/other").send()).await;
}

/// Sends the request with a copy of the extensions.
pub(crate) struct OwnExtensions {
    /// Like a middleware that sends several requests and takes the first response.
    pub(crate) hands_back: bool,
}

#[async_trait::async_trait]
impl Middleware for OwnExtensions {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let mut own = extensions.clone();
        let response = next.run(request, &mut own).await;
        if self.hands_back {
            *extensions = own;
        }
        response
    }
}

/// Calls another service first, in each attempt, and ignores the result.
pub(crate) struct Greets(pub(crate) ClientWithMiddleware, pub(crate) Greeting);

#[derive(Clone, Copy)]
pub(crate) enum Greeting {
    Get,
    Post,
    /// Dropped after this time.
    GetWithin(Duration),
    /// 20 times, 500 ms apart.
    GetOften,
    /// At the same time as the attempt.
    GetBeside,
    /// The same, but 1 ms after it.
    GetSoonAfter,
}

impl Greets {
    async fn greet(&self) {
        let get = || self.0.get("http://other.example.com").send();
        match self.1 {
            Greeting::Get | Greeting::GetBeside => drop(get().await),
            Greeting::Post => drop(self.0.post("http://other.example.com").send().await),
            Greeting::GetWithin(time) => drop(timeout(time, get()).await),
            Greeting::GetOften => {
                for _ in 0..20 {
                    let _ = get().await;
                    sleep(500 * MS).await;
                }
            }
            Greeting::GetSoonAfter => {
                sleep(MS).await;
                let _ = get().await;
            }
        }
    }
}

#[async_trait::async_trait]
impl Middleware for Greets {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        match self.1 {
            Greeting::GetBeside => tokio::join!(self.greet(), next.run(request, extensions)).1,
            Greeting::GetSoonAfter => tokio::join!(next.run(request, extensions), self.greet()).0,
            _ => {
                self.greet().await;
                next.run(request, extensions).await
            }
        }
    }
}
