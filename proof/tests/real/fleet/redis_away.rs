//! A Redis that is down, hangs or is restarted: nobody waits for long, and it is found again.

use std::time::Duration;

use reqwest_steady::fleet::{FleetError, FleetStore, RedisStore};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::redis_server::{RedisServer, say};
use super::{KEY, worker};
use crate::support::raw::in_time;

/// Longer than the usual 50 ms: a test must not fail because a machine has much to do.
pub(super) const MAX_WAIT: Duration = Duration::from_millis(200);
/// What no question takes.
const TOO_LONG: Duration = Duration::from_secs(1);

fn store(server: &RedisServer) -> RedisStore {
    server.builder().store_timeout(MAX_WAIT).build().unwrap()
}

/// Asks once, in time, and says how long it took.
pub(super) async fn ask(store: &RedisStore) -> (Result<u32, FleetError>, Duration) {
    let begun = Instant::now();
    let asked = store.lease(KEY, worker().rate(1e6, 1000).want(1)).await;
    let took = begun.elapsed();
    assert!(took < TOO_LONG, "{took:?}");
    (asked.map(|lease| lease.tokens), took)
}

/// Asks until it is answered, and says how long that took.
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
        let (answer, _) = ask(&store).await;
        let error = answer.unwrap_err();
        assert!(matches!(error, FleetError::Unavailable { .. }), "{error}");
        sleep(Duration::from_millis(10)).await;
    }
    // Who listens is told, and so is who wants to.
    assert!(in_time(heard.next()).await.is_err());
    assert!(in_time(store.pauses()).await.is_err());
    server.restart().await;
    say(format_args!(
        "back after a restart: {:?}",
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
    let (answer, waited) = ask(&store).await;
    assert_eq!(answer, Err(FleetError::TimedOut { after: MAX_WAIT }));
    assert!(waited >= MAX_WAIT, "{waited:?}");
    // Right after it, nobody waits.
    let begun = Instant::now();
    for _ in 0..100 {
        assert!(ask(&store).await.0.is_err());
    }
    assert!(begun.elapsed() < MAX_WAIT, "{:?}", begun.elapsed());
    // Nor does anybody for longer than the limit, however long it lasts.
    for _ in 0..20 {
        assert!(ask(&store).await.0.is_err());
        sleep(Duration::from_millis(20)).await;
    }
    // A connection on which nothing comes is given up.
    assert!(in_time(heard.next()).await.is_err());
    server.signal("CONT");
    say(format_args!(
        "back after it hung: {:?}",
        found_again(&store).await
    ));
    for want in 1..50 {
        let asked = worker().rate(1e6, 1000).want(want);
        let lease = store.lease("fresh", asked).await.unwrap();
        assert_eq!((lease.tokens, lease.workers), (want, want));
    }
}

/// Accepts, and says nothing.
#[tokio::test]
async fn one_that_never_says_a_word_is_waited_for_once() {
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
        let (answer, took) = ask(&store).await;
        assert!(answer.is_err());
        waited += took;
        sleep(Duration::from_millis(5)).await;
    }
    // One waited for the connection. The others did not, while it is being tried for a second.
    assert!(waited < MAX_WAIT * 2, "{waited:?}");
    assert!(in_time(store.pauses()).await.is_err());
    silent.abort();
}

#[tokio::test]
async fn many_that_ask_one_that_is_not_there_all_know_soon() {
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

/// Its connection belonged to a runtime that has ended.
#[test]
fn a_store_outlives_the_runtime_that_it_was_first_used_in() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let name = "a_store_outlives_the_runtime_that_it_was_first_used_in";
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
fn without_a_runtime_it_is_an_error_and_no_panic() {
    let store = RedisStore::new("redis://127.0.0.1:1").unwrap();
    let mut asked = std::pin::pin!(store.lease(KEY, worker()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let answer = asked.as_mut().poll(&mut context);
    assert!(matches!(
        answer,
        std::task::Poll::Ready(Err(FleetError::Unavailable { .. }))
    ));
}
