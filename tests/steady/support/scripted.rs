//! The scripted server, as tests use it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use reqwest::{Body, Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use reqwest_steady::{RetryMiddlewareBuilder, ThrottleMiddlewareBuilder};

pub(crate) use reqwest_steady::testing::{Reply, ScriptedServer as Server};

pub(crate) const URL: &str = "http://api.example.com/orders?page=7";

pub(crate) fn answer(status: u16) -> Reply {
    Reply::status(status).body(format!("body of {status}"))
}

pub(crate) fn answer_with(status: u16, headers: &[(&str, &str)]) -> Reply {
    let headers = headers.iter();
    headers.fold(answer(status), |reply, (name, value)| {
        reply.header(name, value)
    })
}

pub(crate) fn late(delay: Duration, reply: Reply) -> Reply {
    reply.after(delay)
}

/// An answer whose body comes in so many drops, 10 ms apart.
pub(crate) fn dripping(status: u16, drops: usize) -> Reply {
    let drip = futures_util::stream::unfold(drops, |left| async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let left = left.checked_sub(1)?;
        Some((Ok::<_, io::Error>("drip"), left))
    });
    let response = http::Response::builder().status(status);
    let response = response.header("x-should-retry", "true");
    Reply::response(response.body(Body::wrap_stream(drip)).unwrap())
}

/// A client with a retry, a throttle inside it, and this server.
pub(crate) fn throttled(
    server: &Arc<Server>,
    retry: RetryMiddlewareBuilder,
    throttle: ThrottleMiddlewareBuilder,
) -> ClientWithMiddleware {
    let retry: Arc<dyn Middleware> = Arc::new(retry.build().unwrap());
    server.client_behind([retry, Arc::new(throttle.build().unwrap())])
}

/// Gets `/{name}` of the same host as [`URL`], and says with which status.
pub(crate) async fn call(client: &ClientWithMiddleware, name: usize) -> Result<u16> {
    let url = format!("http://api.example.com/{name}");
    Ok(client.get(url).send().await?.status().as_u16())
}

/// Sends what it is given through a client of its own.
struct Forward(ClientWithMiddleware);

#[async_trait::async_trait]
impl Middleware for Forward {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        self.0.execute(request).await
    }
}

/// A client whose requests go through another one.
pub(crate) fn stacked(outer: impl Middleware, inner: ClientWithMiddleware) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new())
        .with(outer)
        .with(Forward(inner))
        .build()
}
