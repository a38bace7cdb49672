//! The scripted server, as tests use it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::Extensions;
use reqwest::{Body, Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use reqwest_steady::{
    RetryMiddleware, RetryMiddlewareBuilder, SteadyError, ThrottleMiddleware,
    ThrottleMiddlewareBuilder,
};
use tokio::time::Instant;

pub(crate) use reqwest_steady::testing::{Reply, ScriptedServer as Server};

pub(crate) const URL: &str = "http://api.example.com/orders?page=7";

pub(crate) fn respond(status: u16) -> Reply {
    Reply::status(status).body(format!("body of {status}"))
}

pub(crate) fn respond_with(status: u16, headers: &[(&str, &str)]) -> Reply {
    let headers = headers.iter();
    headers.fold(respond(status), |reply, (name, value)| {
        reply.header(name, value)
    })
}

pub(crate) fn late(delay: Duration, reply: Reply) -> Reply {
    reply.after(delay)
}

/// A response whose body comes in this many parts, 10 ms apart.
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

/// Gets `/{name}` from the same host as [`URL`], and returns the status.
pub(crate) async fn call(client: &ClientWithMiddleware, name: usize) -> Result<u16> {
    let url = format!("http://api.example.com/{name}");
    Ok(client.get(url).send().await?.status().as_u16())
}

/// A server whose gate closed after five failures, and its client. The next request is a probe and hangs.
pub(crate) async fn with_a_hanging_probe() -> (Arc<Server>, ClientWithMiddleware) {
    let server = Server::new(|index| match index {
        0..=4 => respond(503),
        5 => Reply::silence(),
        _ => respond(200),
    });
    let retry = RetryMiddleware::builder().seed(1).max_retries(0);
    let client = throttled(&server, retry, ThrottleMiddleware::builder().seed(1));
    for name in 0..5 {
        assert_eq!(call(&client, name).await.unwrap(), 503);
    }
    (server, client)
}

/// Makes 200 calls to a server that always refuses. Few requests arrive, and every call ends soon.
pub(crate) async fn assert_few_requests_arrive(server: &Server, client: &ClientWithMiddleware) {
    let start = Instant::now();
    let results = join_all((0..200).map(|name| call(client, name))).await;
    for result in &results {
        let refused = |error| SteadyError::of(error).is_some_and(SteadyError::is_throttled);
        assert!(matches!(result, Ok(429)) || result.as_ref().is_err_and(refused));
    }
    assert!(server.count() < 60, "{}", server.count());
    assert!(
        start.elapsed() < Duration::from_secs(200),
        "{:?}",
        start.elapsed()
    );
}

/// Sends each request through another client.
struct Forward(ClientWithMiddleware);

#[async_trait::async_trait]
impl Middleware for Forward {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        self.0.execute(request).await
    }
}

/// A client whose requests go through another client.
pub(crate) fn stacked(outer: impl Middleware, inner: ClientWithMiddleware) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new())
        .with(outer)
        .with(Forward(inner))
        .build()
}
