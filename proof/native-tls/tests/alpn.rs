//! Connections that turn out to be HTTP/2 (ALPN, RFC 7301). One connection is enough, so hyper-util cancels calls that
//! open another at the same time. Nothing of these calls was sent.
//!
//! With rustls, that takes two threads and rare timing, which `proof/tests/torment` sometimes has. With native-tls, one
//! thread is enough.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, join, join3, select};
use http::Response;
use reqwest::Method;
use reqwest_middleware::RequestBuilder;
use reqwest_steady::{RetryMiddlewareBuilder, StopReason};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::task::coop::{consume_budget, unconstrained};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

use crate::identity::Identity;
use crate::support::raw::{client, in_time, outcomes, reported, retry};

/// The budget of a tokio task: the steps before it must yield.
const BUDGET: usize = 128;

/// The progress of the server.
#[derive(Default)]
struct Progress {
    requests: AtomicUsize,
    /// The first connection has ended on both sides.
    first_ended: Notify,
    /// The server has completed its part of the other two handshakes.
    others_written: Notify,
}

/// Serves one connection until the client ends it. The connection of the first request accepts no second one.
async fn serve(tls: TlsStream<TcpStream>, progress: &Progress) {
    // A client that needs no second connection sends nothing.
    let Ok(mut connection) = h2::server::handshake(tls).await else {
        return;
    };
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let whole = respond.send_response(Response::new(()), false);
        whole.unwrap().send_data(Bytes::new(), true).unwrap();
        if progress.requests.fetch_add(1, Ordering::SeqCst) == 0 {
            connection.graceful_shutdown();
        }
    }
}

/// Accepts three connections. Ends the first after one request, and only then completes the other two. Then accepts
/// further connections.
async fn run(listener: TcpListener, config: Arc<ServerConfig>, progress: Arc<Progress>) {
    let accept = async || listener.accept().await.unwrap().0;
    let hello = async |tcp| {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), tcp).await;
        hello.unwrap()
    };
    let complete = |hello: StartHandshake<_>| hello.into_stream(config.clone());
    let (first, second, third) = (accept().await, accept().await, accept().await);
    let first = complete(hello(first).await).await.unwrap();
    serve(first, &progress).await;
    progress.first_ended.notify_one();

    let (second, third) = join(hello(second), hello(third)).await;
    let (second, third) = (complete(second), complete(third));
    let (second, third, ()) = join3(second, third, async {
        // Both were polled before this, so they have written their part.
        progress.others_written.notify_one();
    })
    .await;
    let more = async {
        loop {
            let hello = hello(accept().await).await;
            serve(complete(hello).await.unwrap(), &progress).await;
        }
    };
    let (second, third) = (second.unwrap(), third.unwrap());
    join3(serve(second, &progress), serve(third, &progress), more).await;
}

/// The outcomes of the attempts, and the stop reason.
async fn attempts(request: RequestBuilder) -> (Vec<String>, StopReason) {
    let (_, report) = reported(request).await;
    (outcomes(&report), report.stop_reason())
}

/// The outcomes of the attempts, the stop reason, and the number of requests of all calls.
type Outcome = (Vec<String>, StopReason, usize);

/// Makes three calls that open a connection each.
///
/// The first call and its connection end before the other two are polled again. The others were handed that connection,
/// so they fall back to the connections that they started to open.
///
/// The second call has this many steps left before tokio makes it yield, as a thread may be preempted. Returns the outcome
/// of the third call.
async fn three_calls(steps: usize, retry: RetryMiddlewareBuilder, method: &Method) -> Outcome {
    let identity = Identity::of("127.0.0.1");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/orders", listener.local_addr().unwrap());
    let progress = Arc::<Progress>::default();
    let mut server = JoinSet::new();
    server.spawn(run(listener, identity.config(&["h2"]), progress.clone()));

    let client = client(identity.trusted(), retry);
    let call = |method: &Method| attempts(client.request(method.clone(), &url));
    let mut first = pin!(call(&Method::GET));
    let mut second = pin!(call(&Method::GET));
    let mut third = pin!(call(method));
    // Now they start to connect, in this order.
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    assert!(third.as_mut().now_or_never().is_none());
    assert_eq!(first.await.0, ["200"]);
    in_time(progress.first_ended.notified()).await;

    // They send their first message, and are not polled when the reply arrives.
    let written = pin!(progress.others_written.notified());
    let hello = join(second.as_mut(), third.as_mut());
    let Either::Left(_) = in_time(select(written, hello)).await else {
        panic!("incomplete handshakes");
    };
    // Then all written data has arrived.
    tokio::time::sleep(Duration::from_millis(5)).await;
    for _ in steps..BUDGET - 1 {
        consume_budget().await;
    }
    assert!(second.as_mut().now_or_never().is_none());
    let others = join(second, unconstrained(third));
    let (second, (outcomes, stop)) = others.await;
    assert_eq!(second.0, ["200"]);
    let requests = progress.requests.load(Ordering::SeqCst);
    (outcomes, stop, requests)
}

/// Returns the outcome of the third call, if the second yields after it connects and before it shares the connection.
async fn cancelled(retry: impl Fn() -> RetryMiddlewareBuilder, method: Method) -> Outcome {
    for steps in 0..BUDGET {
        let outcome = three_calls(steps, retry(), &method).await;
        if outcome.0 != ["200"] {
            return outcome;
        }
    }
    panic!("no call was cancelled");
}

#[tokio::test]
async fn a_call_cancelled_for_an_http2_connection_was_not_sent() {
    let (outcomes, _, requests) = cancelled(retry, Method::GET).await;
    assert_eq!(outcomes, ["not_processed", "200"]);
    assert_eq!(requests, 3);

    let (outcomes, stop, requests) = cancelled(retry, Method::POST).await;
    assert_eq!(outcomes, ["not_processed"]);
    assert_eq!(stop, StopReason::NotIdempotent);
    assert_eq!(requests, 2);

    let (outcomes, _, requests) = cancelled(|| retry().retry_unsent(true), Method::POST).await;
    assert_eq!(outcomes, ["not_processed", "200"]);
    assert_eq!(requests, 3);
}
