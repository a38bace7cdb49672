//! HTTP/2 connections over TLS that accept seven requests each, as with nginx's `keepalive_requests 7`.
//!
//! Far more calls run at once. So connections end while others open, and calls hit every stage of that.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::{ReportSlot, RequestBuilderExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::client::{CONCURRENCY, persistent};
use crate::front::acceptor;
use crate::{alone_in_process, call_count};

const KEEPALIVE_REQUESTS: u32 = 7;
/// More threads than cores, so that threads are preempted anywhere.
const THREADS: usize = 8;
/// A long timeout, because the machine is busy and no response is slow on purpose.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .unwrap()
}

async fn accept(listener: TcpListener, requests: Arc<AtomicU32>) {
    let acceptor = acceptor();
    while let Ok((tcp, _)) = listener.accept().await {
        tokio::spawn(serve(tcp, acceptor.clone(), requests.clone()));
    }
}

/// Serves until the client closes, or the connection has its seven requests.
async fn serve(tcp: TcpStream, acceptor: TlsAcceptor, requests: Arc<AtomicU32>) -> Option<()> {
    tcp.set_nodelay(true).ok()?;
    let tls = acceptor.accept(tcp).await.ok()?;
    let mut connection = h2::server::handshake(tls).await.ok()?;
    let mut taken = 0;
    while let Some(accepted) = connection.accept().await {
        let (_, mut respond) = accepted.ok()?;
        requests.fetch_add(1, Ordering::Relaxed);
        let mut stream = respond.send_response(Response::new(()), false).ok()?;
        stream.send_data(Bytes::new(), true).ok()?;
        taken += 1;
        if taken == KEEPALIVE_REQUESTS {
            connection.graceful_shutdown();
        }
    }
    Some(())
}

/// Makes calls while some are left. Returns the outcomes of the attempts and of the calls.
async fn make_calls(
    client: ClientWithMiddleware,
    address: SocketAddr,
    made: Arc<AtomicU32>,
) -> [BTreeMap<String, u32>; 2] {
    let [mut attempts, mut endings] = [BTreeMap::new(), BTreeMap::new()];
    while made.fetch_add(1, Ordering::Relaxed) < call_count() {
        let slot = ReportSlot::new();
        let get = client.get(format!("https://{address}/orders"));
        // The report contains the result.
        let _ = get.report_to(&slot).send().await;
        let report = slot.get().unwrap();
        for attempt in report.attempts() {
            *attempts.entry(attempt.outcome().to_string()).or_default() += 1;
        }
        let last = report.attempts().last().unwrap().outcome();
        let ending = format!("{last}: {}", report.stop_reason());
        *endings.entry(ending).or_default() += 1;
    }
    [attempts, endings]
}

#[test]
fn no_call_is_lost_to_connections_of_seven_requests() {
    let _turn = alone_in_process();
    let (servers, clients) = (runtime(), runtime());
    let requests = Arc::new(AtomicU32::new(0));
    let listener = servers.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    servers.spawn(accept(listener, requests.clone()));

    let [attempts, endings] = clients.block_on(async {
        let inner = reqwest::Client::builder()
            .no_proxy()
            .tls_danger_accept_invalid_certs(true);
        let retry = persistent().attempt_timeout(ATTEMPT_TIMEOUT);
        let client = ClientBuilder::new(inner.build().unwrap())
            .with(retry.build().unwrap())
            .build();
        let made = Arc::new(AtomicU32::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..CONCURRENCY {
            workers.spawn(make_calls(client.clone(), address, made.clone()));
        }
        let [mut attempts, mut endings] = [BTreeMap::<String, u32>::new(), BTreeMap::new()];
        for worker in workers.join_all().await {
            for (sum, counted) in [&mut attempts, &mut endings].into_iter().zip(worker) {
                for (name, times) in counted {
                    *sum.entry(name).or_default() += times;
                }
            }
        }
        [attempts, endings]
    });
    println!("  connections of seven requests: attempts {attempts:?}");
    println!("    {endings:?}");
    assert_eq!(
        endings,
        BTreeMap::from([("200: succeeded".to_owned(), call_count())])
    );
    let arrived = requests.load(Ordering::Relaxed);
    assert!(arrived >= call_count(), "{arrived}");
    assert!(arrived <= attempts.values().sum(), "{arrived}");
}
