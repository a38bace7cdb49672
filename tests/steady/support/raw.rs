//! A server that sends raw bytes, so a test can script what no HTTP library would send.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Response;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, RequestBuilder, Result};
use reqwest_steady::{
    Backoff, Jitter, ReportSlot, RequestBuilderExt, RetryMiddleware, RetryMiddlewareBuilder,
    RetryReport,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Longer than anything on loopback. It keeps a failing test from hanging.
const LONG_ENOUGH: Duration = Duration::from_secs(10);

pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(LONG_ENOUGH, future).await;
    result.expect("should end within seconds")
}

/// A retry with very short waits, for a [`direct`] client.
pub(crate) fn retry() -> RetryMiddlewareBuilder {
    let backoff = Backoff::exponential(Duration::from_millis(1)).jitter(Jitter::None);
    RetryMiddleware::builder()
        .backoff(backoff)
        .client_follows_redirects(false)
}

/// A client without proxy that does not repeat requests or follow redirects by itself.
pub(crate) fn direct() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .retry(reqwest::retry::never())
        .redirect(reqwest::redirect::Policy::none())
}

pub(crate) fn client(
    inner: reqwest::ClientBuilder,
    retry: RetryMiddlewareBuilder,
) -> ClientWithMiddleware {
    ClientBuilder::new(inner.build().unwrap())
        .with(retry.build().unwrap())
        .build()
}

/// Sends a request, and returns its report as well.
pub(crate) async fn reported(request: RequestBuilder) -> (Result<Response>, RetryReport) {
    let slot = ReportSlot::new();
    let result = in_time(request.report_to(&slot).send()).await;
    (result, slot.get().expect("every call has a report"))
}

/// How each attempt of a call ended.
pub(crate) fn outcomes(report: &RetryReport) -> Vec<String> {
    let outcomes = report.attempts().map(|attempt| attempt.outcome());
    outcomes.map(|outcome| outcome.to_string()).collect()
}

/// What the server does with a request: it writes some bytes, and then …
pub(crate) struct Reply {
    bytes: Vec<u8>,
    then: Then,
}

#[derive(Clone)]
pub(crate) enum Then {
    /// … reads the next request on this connection.
    KeepOpen,
    Close,
    /// … resets the connection (RST).
    Reset,
    /// … sends nothing more until the client disconnects.
    Silence,
    /// … writes these bytes repeatedly, with a pause after each, until the client disconnects.
    Repeat(Vec<u8>, Duration),
}

pub(crate) fn reply(bytes: impl Into<Vec<u8>>, then: Then) -> Reply {
    let bytes = bytes.into();
    Reply { bytes, then }
}

/// A complete response, after which the connection can be reused.
pub(crate) fn respond(status: u16, body: &str) -> Reply {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {length}\r\n\r\n");
    reply(head + body, Then::KeepOpen)
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Method and path.
    pub(crate) fn target(&self) -> &str {
        let line = self.head.lines().next().unwrap_or_default();
        line.trim_end_matches(" HTTP/1.1")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut values = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim())
    }
}

/// What carries the bytes.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    fn tcp(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: Mutex<Vec<Request>>,
}

/// Closes all its connections when dropped.
pub(crate) struct Server {
    port: u16,
    seen: Arc<Seen>,
    _accepting: JoinSet<()>,
}

impl Server {
    /// `script` gets the number of earlier requests.
    pub(crate) async fn start(script: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(|_, tcp| async { Some(tcp) }, script).await
    }

    /// `open` turns a TCP connection into the one that carries HTTP, or closes it. It gets the number
    /// of earlier connections.
    pub(crate) async fn start_with<W: Wire, F: Future<Output = Option<W>> + Send + 'static>(
        open: impl Fn(usize, TcpStream) -> F + Send + 'static,
        script: impl Fn(usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Seen::default());
        let script = Arc::new(script);
        let mut accepting = JoinSet::new();
        let shared = seen.clone();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let wire = open(shared.connections.fetch_add(1, Ordering::SeqCst), tcp);
                let (seen, script) = (shared.clone(), script.clone());
                connections.spawn(async move {
                    if let Some(wire) = wire.await {
                        serve(wire, &seen, script.as_ref()).await;
                    }
                });
            }
        });
        Self {
            port,
            seen,
            _accepting: accepting,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/orders", self.port)
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.requests.lock().unwrap().len()
    }
}

/// Responds to the requests of one connection as the script says.
async fn serve(mut wire: impl Wire, seen: &Seen, script: &(impl Fn(usize) -> Reply + Sync)) {
    while let Some(request) = read_request(&mut wire).await {
        let index = {
            let mut requests = seen.requests.lock().unwrap();
            requests.push(request);
            requests.len() - 1
        };
        let Reply { bytes, then } = script(index);
        if wire.write_all(&bytes).await.is_err() || wire.flush().await.is_err() {
            return;
        }
        match then {
            Then::KeepOpen => {}
            Then::Close => return,
            Then::Reset => return wire.tcp().set_zero_linger().unwrap(),
            Then::Silence => while matches!(wire.read(&mut [0; 1024]).await, Ok(1..)) {},
            Then::Repeat(bytes, pause) => {
                while wire.write_all(&bytes).await.is_ok() {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

/// Returns `None` if the client disconnected.
async fn read_request(wire: &mut (impl AsyncRead + Unpin)) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(wire.read_u8().await.ok()?);
    }
    let mut request = Request {
        head: String::from_utf8(head).ok()?,
        body: Vec::new(),
    };
    if let Some(length) = request.header("content-length") {
        request.body = vec![0; length.parse().ok()?];
        wire.read_exact(&mut request.body).await.ok()?;
    } else if request.header("transfer-encoding") == Some("chunked") {
        // The body keeps its chunk sizes. A boundary may end with a 0, so the line before the last one counts, too.
        while !request.body.ends_with(b"\r\n0\r\n\r\n") {
            request.body.push(wire.read_u8().await.ok()?);
        }
    }
    Some(request)
}
