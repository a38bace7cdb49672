//! The lab in a browser: a small server on loopback that runs what its page asks for.
//!
//! The page has a form for the service and one for settings. It copies the settings as TOML or Rust.
//!
//! It runs the real middlewares in virtual time in this process, listens on loopback only, and loads nothing from
//! elsewhere. A page of another site cannot use it: a request must name this host, and its body must be JSON.

mod choices;
mod form;
mod limits;
mod page;
mod response;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

pub(crate) use limits::{Bound, Bounded};
use response::{JsonResponse, Lab};

/// The largest body of a request. The longest description is a tenth of it.
const LARGEST_BODY: usize = 64 * 1024;
const MOST_CONNECTIONS: usize = 64;
/// The time for the headers of a request, and then for its body.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves until the process ends. Port 0 is any free port.
pub(crate) fn serve(port: u16) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        crate::println(&format!(
            "Open http://{address}/ in a browser. Ctrl+C ends it."
        ));
        accept(listener, address).await
    })
}

async fn accept(listener: TcpListener, address: SocketAddr) -> Result<()> {
    let server = Arc::new(Server {
        hosts: [
            format!("{address}"),
            format!("localhost:{}", address.port()),
        ],
        lab: Lab::new(),
    });
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let room = connections.clone().acquire_owned().await?;
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files. They do not get fewer at once.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let server = server.clone();
        tokio::spawn(async move {
            server.connection(stream).await;
            drop(room);
        });
    }
}

struct Server {
    /// The names of this server.
    hosts: [String; 2],
    lab: Lab,
}

impl Server {
    async fn connection(&self, stream: TcpStream) {
        let respond =
            service_fn(|request| async { Ok::<_, Infallible>(self.respond(request).await) });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(16 * 1024)
            .serve_connection(TokioIo::new(stream), respond)
            .await;
        // A browser that closes a tab breaks connections, and a slow client runs out of time.
        drop(served);
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let json = match self.refusal(&head.headers) {
            Some(refusal) => refusal,
            None => match (&head.method, head.uri.path()) {
                (&Method::GET, "/") => return page(),
                (&Method::POST, "/run" | "/form") => {
                    let body = timeout(PATIENCE, Limited::new(body, LARGEST_BODY).collect()).await;
                    match (is_json(&head.headers), body) {
                        (false, _) => JsonResponse::error(
                            StatusCode::UNSUPPORTED_MEDIA_TYPE,
                            "the body must be application/json",
                        ),
                        (true, Err(_)) => JsonResponse::error(
                            StatusCode::REQUEST_TIMEOUT,
                            "the body took too long",
                        ),
                        (true, Ok(Err(_))) => JsonResponse::error(
                            StatusCode::PAYLOAD_TOO_LARGE,
                            format!("a body has at most {LARGEST_BODY} bytes"),
                        ),
                        (true, Ok(Ok(body))) => {
                            let body = body.to_bytes();
                            match head.uri.path() {
                                "/run" => self.lab.run(&body).await,
                                _ => self.lab.form(&body),
                            }
                        }
                    }
                }
                (_, "/" | "/run" | "/form") => JsonResponse::error(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "use GET / and POST /run or /form",
                ),
                _ => JsonResponse::error(StatusCode::NOT_FOUND, "there is only /"),
            },
        };
        let mut response = with_headers(
            Response::new(Full::from(json.body)),
            "application/json",
            "default-src 'none'",
        );
        *response.status_mut() = json.status;
        if json.status == StatusCode::METHOD_NOT_ALLOWED {
            let allowed = if head.uri.path() == "/" {
                "GET"
            } else {
                "POST"
            };
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static(allowed));
        }
        response
    }

    /// Refuses a request from the page of another site. With DNS, such a site can give its name this address.
    fn refusal(&self, headers: &HeaderMap) -> Option<JsonResponse> {
        let text = |name| {
            headers
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        let here = text(HOST).is_some_and(|host| self.hosts.iter().any(|own| own == host));
        let from_here = match headers.get(ORIGIN) {
            None => true,
            Some(_) => text(ORIGIN)
                .and_then(|origin| origin.strip_prefix("http://"))
                .is_some_and(|host| self.hosts.iter().any(|own| own == host)),
        };
        let message = format!("this server is only for pages of http://{}/", self.hosts[0]);
        (!here || !from_here).then(|| JsonResponse::error(StatusCode::FORBIDDEN, message))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// The page. Its style and script have a nonce, so nothing that gets into the page by mistake can run.
fn page() -> Response<Full<Bytes>> {
    let nonce = format!("{:032x}", rand::random::<u128>());
    let policy = format!(
        "default-src 'none'; connect-src 'self'; img-src data:; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let body = Full::from(page::page(&nonce));
    with_headers(Response::new(body), "text/html; charset=utf-8", &policy)
}

fn with_headers(
    mut response: Response<Full<Bytes>>,
    kind: &'static str,
    policy: &str,
) -> Response<Full<Bytes>> {
    let headers = response.headers_mut();
    let policy = HeaderValue::from_str(policy).expect("a policy of visible letters");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    for (name, value) in [
        (CONTENT_TYPE.as_str(), kind),
        (CACHE_CONTROL.as_str(), "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
