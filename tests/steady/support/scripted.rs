//! A server without a socket: a last middleware that answers by a script, and remembers what
//! arrived and when.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use http::{Extensions, HeaderMap, Method};
use reqwest::{Body, Request, Response, ResponseBuilderExt, Url};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next, Result};
use reqwest_steady::{Attempt, RetryMiddleware, RetryMiddlewareBuilder, ThrottleMiddlewareBuilder};
use tokio::time::Instant;

/// Nothing is ever sent with it, but reqwest-middleware wants one.
static UNUSED: LazyLock<reqwest::Client> = LazyLock::new(reqwest::Client::new);

pub(crate) const URL: &str = "http://api.example.com/orders?page=7";

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// `None` for a stream.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) attempt: u32,
}

/// What the server does with a request.
pub(crate) enum Reply {
    Answer(http::Response<Body>),
    /// The connection fails in this way.
    Fail(io::ErrorKind),
    /// Nothing ever comes back.
    Silence,
    /// This much later.
    Late(Duration, Box<Reply>),
}

pub(crate) fn answer(status: u16) -> Reply {
    answer_with(status, &[])
}

pub(crate) fn answer_with(status: u16, headers: &[(&str, &str)]) -> Reply {
    let mut response = http::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    let body = Body::from(format!("body of {status}"));
    Reply::Answer(response.body(body).unwrap())
}

pub(crate) fn late(delay: Duration, reply: Reply) -> Reply {
    Reply::Late(delay, Box::new(reply))
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
    Reply::Answer(response.body(Body::wrap_stream(drip)).unwrap())
}

type Script = dyn Fn(usize, &Request) -> Reply + Send + Sync;

pub(crate) struct Server {
    script: Box<Script>,
    arrivals: Mutex<Vec<Arrival>>,
}

impl Server {
    /// `script` is asked with the number of requests that came before.
    pub(crate) fn new(script: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Self::by_script(move |index, _| script(index))
    }

    /// `script` sees each request.
    pub(crate) fn by_request(
        script: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::by_script(move |_, request| script(request))
    }

    fn by_script(script: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            arrivals: Mutex::new(Vec::new()),
        })
    }

    /// Answers with these statuses, and with the last of them for ever.
    pub(crate) fn statuses(statuses: &'static [u16]) -> Arc<Self> {
        Self::new(|index| answer(*statuses.get(index).or(statuses.last()).unwrap()))
    }

    pub(crate) fn client(self: &Arc<Self>, retry: RetryMiddleware) -> ClientWithMiddleware {
        self.client_behind([Arc::new(retry) as Arc<dyn Middleware>])
    }

    /// A client with these, the outermost first.
    pub(crate) fn client_behind(
        self: &Arc<Self>,
        middlewares: impl IntoIterator<Item = Arc<dyn Middleware>>,
    ) -> ClientWithMiddleware {
        let outer = ClientBuilder::new(UNUSED.clone());
        let all = middlewares.into_iter().fold(outer, ClientBuilder::with_arc);
        all.with_arc(self.clone()).build()
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.arrivals.lock().unwrap().len()
    }

    /// The time between one arrival and the next.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        let arrivals = self.arrivals();
        arrivals
            .windows(2)
            .map(|pair| pair[1].at - pair[0].at)
            .collect()
    }
}

#[async_trait::async_trait]
impl Middleware for Server {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        _: Next<'_>,
    ) -> Result<Response> {
        let index = {
            let mut arrivals = self.arrivals.lock().unwrap();
            arrivals.push(Arrival {
                at: Instant::now(),
                method: request.method().clone(),
                url: request.url().clone(),
                headers: request.headers().clone(),
                body: match request.body() {
                    None => Some(Vec::new()),
                    Some(body) => body.as_bytes().map(<[u8]>::to_vec),
                },
                attempt: Attempt::of(extensions).number(),
            });
            arrivals.len() - 1
        };
        let mut reply = (self.script)(index, &request);
        loop {
            match reply {
                Reply::Late(delay, then) => {
                    tokio::time::sleep(delay).await;
                    reply = *then;
                }
                Reply::Answer(response) => {
                    let (mut parts, body) = response.into_parts();
                    let mut with_url = http::Response::builder().url(request.url().clone());
                    let with_url = with_url.extensions_mut().unwrap();
                    parts.extensions.extend(std::mem::take(with_url));
                    return Ok(http::Response::from_parts(parts, body).into());
                }
                Reply::Fail(kind) => return Err(Error::Middleware(io::Error::from(kind).into())),
                Reply::Silence => std::future::pending().await,
            }
        }
    }
}

/// A client with a retry, a throttle inside it, and this server.
pub(crate) fn throttled(
    server: &Arc<Server>,
    retry: RetryMiddlewareBuilder,
    throttle: ThrottleMiddlewareBuilder,
) -> ClientWithMiddleware {
    ClientBuilder::new(UNUSED.clone())
        .with(retry.build().unwrap())
        .with(throttle.build().unwrap())
        .with_arc(server.clone())
        .build()
}

/// Gets `/{name}` of the same host as [`URL`], and says with which status.
pub(crate) async fn call(client: &ClientWithMiddleware, name: usize) -> Result<u16> {
    let url = format!("http://api.example.com/{name}");
    Ok(client.get(url).send().await?.status().as_u16())
}
