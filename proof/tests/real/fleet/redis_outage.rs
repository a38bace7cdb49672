//! A Redis that is down, hangs or restarts. No caller waits for long, and the store reconnects.

use std::time::Duration;

use reqwest_steady::fleet::{FleetError, FleetStore, RedisStore};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::redis_server::{RedisServer, say};
use super::{KEY, worker};
use crate::support::raw::in_time;

/// Longer than the default of 50 ms, so that a busy machine does not fail the test.
pub(super) const MAX_WAIT: Duration = Duration::from_millis(200);
/// No request takes this long.
const TOO_LONG: Duration = Duration::from_secs(1);

fn store(server: &RedisServer) -> RedisStore {
    server.builder().store_timeout(MAX_WAIT).build().unwrap()
}

/// Asks for a lease once, and returns how long that took.
pub(super) async fn ask(store: &RedisStore) -> (Result<u32, FleetError>, Duration) {
    let begun = Instant::now();
    let asked = store.lease(KEY, worker().rate(1e6, 1000).want(1)).await;
    let took = begun.elapsed();
    assert!(took < TOO_LONG, "{took:?}");
    (asked.map(|lease| lease.tokens), took)
}

/// Asks until the store responds, and returns how long that took.
pub(super) async fn found_again(store: &RedisStore) -> Duration {
    let begun = Instant::now();
    in_time(async {
        while ask(store).await.0.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    begun.elapsed()
}

#[tokio::test]
async fn a_killed_redis_fails_at_once_and_is_found_again() {
    let name = "a_killed_redis_fails_at_once_and_is_found_again";
    let Some(mut server) = RedisServer::start(name).await else {
        return;
    };
    let store = store(&server);
    assert_eq!(found_again(&store).await.as_secs(), 0);
    let mut heard = store.pauses().await.unwrap();
    server.kill();
    for _ in 0..20 {
        let (result, _) = ask(&store).await;
        let error = result.unwrap_err();
        assert!(matches!(error, FleetError::Unavailable { .. }), "{error}");
        sleep(Duration::from_millis(10)).await;
    }
    // Existing and new subscriptions get an error.
    assert!(in_time(heard.next()).await.is_err());
    assert!(in_time(store.pauses()).await.is_err());
    server.restart().await;
    say(format_args!(
        "reconnected after a restart: {:?}",
        found_again(&store).await
    ));
    let mut heard = store.pauses().await.unwrap();
    store.pause(KEY, Duration::from_secs(1)).await.unwrap();
    assert_eq!(in_time(heard.next()).await.unwrap().key, KEY);
}

#[tokio::test]
async fn a_hanging_redis_costs_one_wait_and_late_replies_are_lost() {
    let name = "a_hanging_redis_costs_one_wait_and_late_replies_are_lost";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let store = store(&server);
    found_again(&store).await;
    let mut heard = store.pauses().await.unwrap();
    server.signal("STOP");
    let (result, waited) = ask(&store).await;
    assert_eq!(result, Err(FleetError::TimedOut { after: MAX_WAIT }));
    assert!(waited >= MAX_WAIT, "{waited:?}");
    // Right after it, requests fail without a wait.
    let begun = Instant::now();
    for _ in 0..100 {
        assert!(ask(&store).await.0.is_err());
    }
    assert!(begun.elapsed() < MAX_WAIT, "{:?}", begun.elapsed());
    // Later requests never wait longer than the limit.
    for _ in 0..20 {
        assert!(ask(&store).await.0.is_err());
        sleep(Duration::from_millis(20)).await;
    }
    // A silent subscription ends with an error.
    assert!(in_time(heard.next()).await.is_err());
    server.signal("CONT");
    say(format_args!(
        "reconnected after it hung: {:?}",
        found_again(&store).await
    ));
    for want in 1..50 {
        let asked = worker().rate(1e6, 1000).want(want);
        let lease = store.lease("fresh", asked).await.unwrap();
        assert_eq!((lease.tokens, lease.workers), (want, want));
    }
}

/// The server accepts connections, and never responds.
#[tokio::test]
async fn a_silent_server_costs_one_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let silent = tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            kept.push(listener.accept().await.unwrap().0);
        }
    });
    let store = RedisStore::builder(&url)
        .store_timeout(MAX_WAIT)
        .build()
        .unwrap();
    let mut waited = Duration::ZERO;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(900) {
        let (result, took) = ask(&store).await;
        assert!(result.is_err());
        waited += took;
        sleep(Duration::from_millis(5)).await;
    }
    // One request waits for the connection attempt, which lasts 1 s. The others fail at once.
    assert!(waited < MAX_WAIT * 2, "{waited:?}");
    assert!(in_time(store.pauses()).await.is_err());
    silent.abort();
}

#[tokio::test]
async fn many_requests_to_a_closed_port_all_fail_soon() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    drop(listener);
    let store = std::sync::Arc::new(RedisStore::new(&url).unwrap());
    let mut asked = JoinSet::new();
    for _ in 0..100 {
        let store = store.clone();
        asked.spawn(async move { ask(&store).await.0.is_err() });
    }
    assert!(asked.join_all().await.into_iter().all(|failed| failed));
    assert_eq!(store.round_trips(), 0);
}

/// The runtime of the first connection has ended.
#[test]
fn a_store_outlives_the_runtime_of_its_first_use() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let name = "a_store_outlives_the_runtime_of_its_first_use";
    let Some(server) = first.block_on(RedisServer::start(name)) else {
        return;
    };
    let store = store(&server);
    first.block_on(found_again(&store));
    drop(first);
    let took = runtime().block_on(found_again(&store));
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_store_without_a_runtime_fails_without_a_panic() {
    let store = RedisStore::new("redis://127.0.0.1:1").unwrap();
    let mut asked = std::pin::pin!(store.lease(KEY, worker()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let result = asked.as_mut().poll(&mut context);
    assert!(matches!(
        result,
        std::task::Poll::Ready(Err(FleetError::Unavailable { .. }))
    ));
}
