//! A server without a socket, which responds by a script and records all requests.
//!
//! It is the last middleware of a client.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method};
use reqwest::{Request, Response, Url};
use reqwest_middleware::{ClientWithMiddleware, Middleware, Next, Result};
use tokio::time::{Instant, sleep};

use super::client_of;
use super::reply::{Reply, assert_status};
use super::timeout::{end_of, until};
use crate::clock;
use crate::outcome::Attempt;

/// Describes one request that reached a [`ScriptedServer`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The time of arrival, on tokio's clock.
    pub at: Instant,
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: Url,
    /// All headers.
    pub headers: HeaderMap,
    /// The body. `None` for a stream, which the server does not read. Empty for a request without a body.
    pub body: Option<Bytes>,
    /// The number of the attempt: 1 for the first, more for retries of a
    /// [`RetryMiddleware`](crate::RetryMiddleware).
    pub attempt: u32,
}

type Script = dyn Fn(usize, &Request) -> Reply + Send + Sync;

/// Responds by a script and records every request, without a socket.
///
/// It is the last middleware of a client. [`client`](Self::client) and [`client_behind`](Self::client_behind) build
/// such a client. `with_arc` adds the server to your own chain.
///
/// It applies the `timeout` of a request: a slower reply, or a slower streamed body, fails with a timeout error
/// (`is_timeout()` is true).
///
/// ```
/// use reqwest_steady::testing::ScriptedServer;
/// use reqwest_steady::{IdempotencyKey, RequestBuilderExt, RetryMiddleware};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ScriptedServer::statuses([503, 503, 201]);
/// let client = server.client(RetryMiddleware::default());
/// let order = client.post("https://api.example.com/orders").body("one teapot");
/// let response = order.idempotency_key(IdempotencyKey::random()).send().await?;
///
/// assert_eq!(response.status(), 201);
/// let received = server.received();
/// assert_eq!(received.len(), 3);
/// assert!(received.iter().all(|request| request.body.as_deref() == Some(b"one teapot")));
/// let key = |index: usize| &received[index].headers["idempotency-key"];
/// assert_eq!(key(0), key(2));
/// # Ok(()) }
/// ```
pub struct ScriptedServer {
    script: Box<Script>,
    received: Mutex<Vec<Received>>,
}

impl ScriptedServer {
    /// Creates a server. `script` gets the number of earlier requests.
    pub fn new(script: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Self::by_script(move |before, _| script(before))
    }

    /// Creates a server whose `script` gets each request.
    pub fn by_request(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Self::by_script(move |_, request| script(request))
    }

    fn by_script(script: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            received: Mutex::default(),
        })
    }

    /// Creates a server that responds with these statuses in order, and then always with the last one.
    ///
    /// The bodies have the form `body of 503`.
    ///
    /// # Panics
    ///
    /// Panics if there are no statuses, or if one is invalid.
    pub fn statuses(statuses: impl IntoIterator<Item = u16>) -> Arc<Self> {
        let statuses: Vec<_> = statuses.into_iter().collect();
        for status in &statuses {
            assert_status(*status);
        }
        let last = *statuses.last().expect("a script of no statuses");
        Self::new(move |before| {
            let status = *statuses.get(before).unwrap_or(&last);
            Reply::status(status).body(format!("body of {status}"))
        })
    }

    /// Builds a client with one middleware before this server.
    pub fn client(self: &Arc<Self>, middleware: impl Middleware) -> ClientWithMiddleware {
        self.client_behind([Arc::new(middleware) as Arc<dyn Middleware>])
    }

    /// Builds a client with these middlewares before this server, the outermost first.
    pub fn client_behind(
        self: &Arc<Self>,
        middlewares: impl IntoIterator<Item = Arc<dyn Middleware>>,
    ) -> ClientWithMiddleware {
        client_of(middlewares, self.clone())
    }

    /// Returns all requests so far, in order of arrival.
    pub fn received(&self) -> Vec<Received> {
        self.log().clone()
    }

    /// Returns the number of requests so far.
    pub fn count(&self) -> usize {
        self.log().len()
    }

    /// Returns the times between consecutive requests.
    pub fn gaps(&self) -> Vec<Duration> {
        let log = self.log();
        let pairs = log.windows(2);
        pairs.map(|pair| pair[1].at - pair[0].at).collect()
    }

    fn log(&self) -> MutexGuard<'_, Vec<Received>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ScriptedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedServer")
            .field("received", &self.count())
            .finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Middleware for ScriptedServer {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        _: Next<'_>,
    ) -> Result<Response> {
        let received = Received {
            at: clock::now(),
            method: request.method().clone(),
            url: request.url().clone(),
            headers: request.headers().clone(),
            body: match request.body() {
                None => Some(Bytes::new()),
                Some(body) => body.as_bytes().map(Bytes::copy_from_slice),
            },
            attempt: Attempt::of(extensions).number(),
        };
        let before = {
            let mut log = self.log();
            log.push(received);
            log.len() - 1
        };
        let end = end_of(&request);
        let reply = (self.script)(before, &request);
        let delivered = async {
            if !reply.after.is_zero() {
                sleep(reply.after).await;
            }
            reply.deliver(&request, end).await
        };
        until(end, &request, delivered).await
    }
}
