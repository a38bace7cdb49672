//! Connections that the user creates, also to a cluster. The store uses them unchanged.

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::cluster::ClusterClient;
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::fleet::{FleetError, FleetStore, RedisStore};
use tokio::time::{Instant, sleep, timeout};

use super::redis_outage::{MAX_WAIT, ask, found_again};
use super::redis_server::{RedisServer, say};
use super::{KEY, worker};
use crate::support::raw::in_time;

/// A long timeout, because these tests do not measure time.
const PATIENT: Duration = Duration::from_secs(5);

/// Checks that two stores share a bucket of ten, and a pause.
async fn shares(connection: impl ConnectionLike + Clone + Send + Sync + 'static, key: &str) {
    let builder = || RedisStore::builder_from_connection(connection.clone());
    let one = builder().store_timeout(PATIENT).build().unwrap();
    let other = builder().store_timeout(PATIENT).build().unwrap();
    let ask = |want| worker().rate(0.001, 10).want(want);
    assert_eq!(one.lease(key, ask(7)).await.unwrap().tokens, 7);
    let second = other.lease(key, ask(7)).await.unwrap();
    // Three are left, and one of them is reserved for the other worker.
    assert_eq!((second.tokens, second.workers), (2, 2));
    one.pause(key, Duration::from_secs(30)).await.unwrap();
    let held = other.lease(key, ask(0)).await.unwrap();
    assert!(held.pause > Duration::from_secs(20), "{held:?}");
    // Without a client to listen with, a subscription stays silent. An error would be retried forever.
    let mut heard = one.pauses().await.unwrap();
    one.pause("more", Duration::from_secs(1)).await.unwrap();
    let nothing = timeout(Duration::from_millis(50), heard.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

#[tokio::test]
async fn each_kind_of_connection_works() {
    let name = "each_kind_of_connection_works";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let client = redis::Client::open(server.url()).unwrap();
    let plain = client.get_multiplexed_async_connection().await.unwrap();
    shares(plain, "plain").await;
    let managed = client.get_connection_manager().await.unwrap();
    shares(managed.clone(), "managed").await;
    let built = FleetLimits::builder()
        .redis_connection(managed)
        .prefix("billing")
        .build();
    assert!(format!("{built:?}").contains("billing"), "{built:?}");
}

#[tokio::test]
async fn a_client_to_listen_with_receives_pauses_at_once() {
    let name = "a_client_to_listen_with_receives_pauses_at_once";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_connection_manager().await.unwrap();
    let store = RedisStore::builder_from_connection(connection)
        .listen(&client)
        .store_timeout(PATIENT)
        .build()
        .unwrap();
    let mut heard = store.pauses().await.unwrap();
    store.pause(KEY, Duration::from_secs(2)).await.unwrap();
    assert_eq!(in_time(heard.next()).await.unwrap().key, KEY);
}

#[tokio::test]
async fn a_given_connection_fails_fast_and_recovers_by_itself() {
    let name = "a_given_connection_fails_fast_and_recovers_by_itself";
    let Some(mut server) = RedisServer::start(name).await else {
        return;
    };
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_connection_manager().await.unwrap();
    let store = RedisStore::builder_from_connection(connection);
    let store = store.store_timeout(MAX_WAIT).build().unwrap();
    found_again(&store).await;

    server.kill();
    let begun = Instant::now();
    let mut waited = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(1) {
        let (result, took) = ask(&store).await;
        assert!(result.is_err());
        waited += took;
        sleep(Duration::from_millis(5)).await;
    }
    // After each request that waits, others fail at once for at least 100 ms.
    assert!(waited < MAX_WAIT * 5, "{waited:?}");
    server.restart().await;
    let back = found_again(&store).await;
    say(format_args!(
        "a managed connection reconnected after a restart: {back:?}"
    ));

    server.signal("STOP");
    let (result, waited) = ask(&store).await;
    assert_eq!(result, Err(FleetError::TimedOut { after: MAX_WAIT }));
    assert!(waited >= MAX_WAIT, "{waited:?}");
    let begun = Instant::now();
    for _ in 0..100 {
        assert!(ask(&store).await.0.is_err());
    }
    assert!(begun.elapsed() < MAX_WAIT, "{:?}", begun.elapsed());
    server.signal("CONT");
    found_again(&store).await;
    // The late reply is discarded.
    for want in 1..50 {
        let asked = worker().rate(1e6, 1000).want(want);
        let lease = store.lease("fresh", asked).await.unwrap();
        assert_eq!((lease.tokens, lease.workers), (want, want));
    }
}

/// Two nodes, each with half of the keys.
#[tokio::test]
async fn a_cluster_works_through_a_cluster_connection() {
    let name = "a_cluster_works_through_a_cluster_connection";
    let Some(one) = RedisServer::start_node(name).await else {
        return;
    };
    let other = RedisServer::start_node(name).await.unwrap();
    one.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"])
        .await;
    other
        .command::<()>(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"])
        .await;
    one.meet(&other).await;

    let cluster = ClusterClient::new([one.url()]).unwrap();
    let connection = cluster.get_async_connection().await.unwrap();
    let ears = redis::Client::open(other.url()).unwrap();
    let store = RedisStore::builder_from_connection(connection.clone())
        .listen(&ears)
        .store_timeout(PATIENT)
        .build()
        .unwrap();
    let mut heard = store.pauses().await.unwrap();
    for number in 0..20 {
        let key = format!("host-{number}");
        let second = Duration::from_secs(1);
        shares(connection.clone(), &key).await;
        let pauses = format!("pauses-{number}");
        store.pause(&pauses, second).await.unwrap();
        // A node passes on pauses that were published on any node.
        while in_time(heard.next()).await.unwrap().key != pauses {}
    }
    for node in [&one, &other] {
        let keys: usize = node.command(&["DBSIZE"]).await;
        assert!(keys > 10, "{keys}");
    }

    // A URL connects to one node, which refuses keys of another node with MOVED.
    let alone = one.store();
    let mut moved = 0;
    for number in 0..20 {
        let asked = alone.lease(&format!("host-{number}"), worker()).await;
        match asked {
            Ok(_) => {}
            Err(FleetError::Refused { code }) if code == "MOVED" => moved += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..20).contains(&moved), "{moved}");
}
