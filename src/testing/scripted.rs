//! A server without a socket: a last middleware that answers by a script, and remembers what arrived
//! and when.

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

/// One request as a [`ScriptedServer`] got it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// When it arrived, on tokio's clock.
    pub at: Instant,
    /// Its method.
    pub method: Method,
    /// Where it was sent.
    pub url: Url,
    /// All its headers.
    pub headers: HeaderMap,
    /// `None` for a stream, which nobody has read. A request without a body has an empty one.
    pub body: Option<Bytes>,
    /// 1, and more if a [`RetryMiddleware`](crate::RetryMiddleware) sent it again.
    pub attempt: u32,
}

type Script = dyn Fn(usize, &Request) -> Reply + Send + Sync;

/// A server without a socket, which answers by a script and remembers every request.
///
/// It is the last middleware of a client: [`client`](Self::client) and
/// [`client_behind`](Self::client_behind) make one, and `with_arc` puts it into a chain of yours.
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
/// let answer = order.idempotency_key(IdempotencyKey::random()).send().await?;
///
/// assert_eq!(answer.status(), 201);
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
    /// `script` is asked with the number of requests that came before.
    pub fn new(script: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Self::by_script(move |before, _| script(before))
    }

    /// `script` sees each request.
    pub fn by_request(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Self::by_script(move |_, request| script(request))
    }

    fn by_script(script: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            received: Mutex::default(),
        })
    }

    /// Answers with these statuses in turn, and with the last of them for ever. The body of each is
    /// `body of 503` and the like.
    ///
    /// # Panics
    ///
    /// If there are none, or one is no status.
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

    /// A client with one middleware before this server.
    pub fn client(self: &Arc<Self>, middleware: impl Middleware) -> ClientWithMiddleware {
        self.client_behind([Arc::new(middleware) as Arc<dyn Middleware>])
    }

    /// A client with these middlewares before this server, the outermost first.
    pub fn client_behind(
        self: &Arc<Self>,
        middlewares: impl IntoIterator<Item = Arc<dyn Middleware>>,
    ) -> ClientWithMiddleware {
        client_of(middlewares, self.clone())
    }

    /// All requests so far, in the order in which they arrived.
    pub fn received(&self) -> Vec<Received> {
        self.log().clone()
    }

    /// How many requests have arrived.
    pub fn count(&self) -> usize {
        self.log().len()
    }

    /// The time between one arrival and the next.
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
