//! A forward proxy that opens no tunnel. The request was never sent, so the failure is a connect failure.
//!
//! reqwest distinguishes only 200 and 407 (RFC 9110 §15.5.8) from the other statuses of a proxy.

use std::sync::{Arc, Mutex};

use reqwest::{ClientBuilder, Proxy};
use reqwest_middleware::RequestBuilder;
use reqwest_steady::{RequestBuilderExt, StopReason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::identity::Identity;
use crate::support::raw::{Server, client, outcomes, reported, respond, retry};

const URL: &str = "https://payments.test/orders";

/// The responses of the proxy to consecutive connections. After the last one, it opens tunnels.
type Refusals = Vec<String>;

/// A proxy that is also the server behind the tunnel.
struct Forward {
    server: Server,
    /// The first line of every request to the proxy itself.
    asked: Arc<Mutex<Vec<String>>>,
    identity: Identity,
}

impl Forward {
    async fn start(refusals: Refusals) -> Self {
        let identity = Identity::of("payments.test");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (acceptor, seen) = (identity.acceptor(), asked.clone());
        let open = move |index: usize, mut tcp: TcpStream| {
            let (acceptor, seen) = (acceptor.clone(), seen.clone());
            let refusal = refusals.get(index).cloned();
            async move {
                let line = read_connect(&mut tcp).await?;
                seen.lock().unwrap().push(line);
                let Some(refusal) = refusal else {
                    tcp.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
                    return acceptor.accept(tcp).await.ok();
                };
                tcp.write_all(refusal.as_bytes()).await.ok()?;
                None
            }
        };
        Self {
            server: Server::start_with(open, |_| respond(200, "whole")).await,
            asked,
            identity,
        }
    }

    fn inner(&self) -> ClientBuilder {
        let proxy = Proxy::https(format!("http://127.0.0.1:{}", self.server.port()));
        self.identity.trusted().proxy(proxy.unwrap())
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Reads a request, and returns its first line.
async fn read_connect(tcp: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    head.lines().next().map(str::to_owned)
}

fn refusal(status: u16) -> String {
    format!("HTTP/1.1 {status} Whatever\r\ncontent-length: 5\r\n\r\nsorry")
}

/// Returns the outcomes of the attempts and the stop reason.
async fn attempts(request: RequestBuilder) -> (Vec<String>, StopReason) {
    let (result, report) = reported(request).await;
    if let Err(error) = &result {
        assert!(error.is_connect(), "{error:?}");
        assert_eq!(error.url().unwrap().as_str(), URL);
    }
    (outcomes(&report), report.stop_reason())
}

const CONNECT: &str = "CONNECT payments.test:443 HTTP/1.1";

/// Refuses two connections like this, and opens a tunnel for the third.
async fn is_retried(refusal: String) {
    let start = || Forward::start(vec![refusal.clone(); 2]);
    let proxy = start().await;
    let (outcomes, _) = attempts(client(proxy.inner(), retry()).get(URL)).await;
    assert_eq!(outcomes, ["connect", "connect", "200"], "{refusal:?}");
    assert_eq!(proxy.asked(), [CONNECT; 3]);
    assert_eq!(proxy.server.count(), 1);

    let proxy = start().await;
    let (outcomes, stop) = attempts(client(proxy.inner(), retry()).post(URL)).await;
    assert_eq!(outcomes, ["connect"]);
    assert_eq!(stop, StopReason::NotIdempotent);
    assert_eq!(proxy.asked(), [CONNECT]);

    let proxy = start().await;
    let eager = client(proxy.inner(), retry().retry_unsent(true));
    let (outcomes, _) = attempts(eager.post(URL)).await;
    assert_eq!(outcomes, ["connect", "connect", "200"]);
    assert_eq!(proxy.asked(), [CONNECT; 3]);
    assert_eq!(proxy.server.count(), 1);
}

#[tokio::test]
async fn a_proxy_that_cannot_open_a_tunnel_now_is_retried() {
    for status in [429, 502, 503, 504] {
        is_retried(refusal(status)).await;
    }
}

#[tokio::test]
async fn a_proxy_that_ends_the_connection_is_retried() {
    is_retried(String::new()).await;
    is_retried("HTTP/1.1 200".to_owned()).await;
}

// reqwest does not distinguish it from a 503. The retries are safe, and the budget limits them.
#[tokio::test]
async fn a_proxy_that_forbids_the_host_is_retried_too() {
    let proxy = Forward::start(vec![refusal(403); 9]).await;
    let get = client(proxy.inner(), retry()).get(URL).max_retries(2);
    let (outcomes, stop) = attempts(get).await;
    assert_eq!(outcomes, ["connect"; 3]);
    assert_eq!(stop, StopReason::RetriesExhausted);
    assert_eq!(proxy.asked(), [CONNECT; 3]);
}

#[tokio::test]
async fn a_proxy_that_wants_other_credentials_is_final() {
    let proxy = Forward::start(vec![refusal(407)]).await;
    let eager = client(proxy.inner(), retry().retry_unsent(true));
    let (outcomes, stop) = attempts(eager.get(URL)).await;
    assert_eq!(outcomes, ["handshake"]);
    assert_eq!(stop, StopReason::NotRetryable);
    assert_eq!(proxy.asked(), [CONNECT]);
    assert_eq!(proxy.server.count(), 0);
}
