//! Connections that the user has made: they are taken as they are, also to a cluster.

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::cluster::ClusterClient;
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::fleet::{FleetError, FleetStore, RedisStore};
use tokio::time::{Instant, sleep, timeout};

use super::redis_away::{MAX_WAIT, ask, found_again};
use super::redis_server::{RedisServer, say};
use super::{KEY, worker};
use crate::support::raw::in_time;

/// In these it is not a matter of time.
const PATIENT: Duration = Duration::from_secs(5);

/// Two share a bucket of ten, and a pause.
async fn shares(connection: impl ConnectionLike + Clone + Send + Sync + 'static, key: &str) {
    let builder = || RedisStore::builder_from_connection(connection.clone());
    let one = builder().store_timeout(PATIENT).build().unwrap();
    let other = builder().store_timeout(PATIENT).build().unwrap();
    let ask = |want| worker().rate(0.001, 10).want(want);
    assert_eq!(one.lease(key, ask(7)).await.unwrap().tokens, 7);
    let second = other.lease(key, ask(7)).await.unwrap();
    // Of three, for one is left for the other.
    assert_eq!((second.tokens, second.workers), (2, 2));
    one.pause(key, Duration::from_secs(30)).await.unwrap();
    let held = other.lease(key, ask(0)).await.unwrap();
    assert!(held.pause > Duration::from_secs(20), "{held:?}");
    // Nobody listens, and that is no failure, which would be tried again and again.
    let mut heard = one.pauses().await.unwrap();
    one.pause("more", Duration::from_secs(1)).await.unwrap();
    let nothing = timeout(Duration::from_millis(50), heard.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

#[tokio::test]
async fn each_kind_of_connection_is_taken() {
    let name = "each_kind_of_connection_is_taken";
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
async fn who_brings_a_client_to_listen_with_is_told_of_pauses_at_once() {
    let name = "who_brings_a_client_to_listen_with_is_told_of_pauses_at_once";
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
        let (answer, took) = ask(&store).await;
        assert!(answer.is_err());
        waited += took;
        sleep(Duration::from_millis(5)).await;
    }
    // After each that waits, others fail at once for 100 ms at least.
    assert!(waited < MAX_WAIT * 5, "{waited:?}");
    server.restart().await;
    let back = found_again(&store).await;
    say(format_args!(
        "a managed connection is back after a restart: {back:?}"
    ));

    server.signal("STOP");
    let (answer, waited) = ask(&store).await;
    assert_eq!(answer, Err(FleetError::TimedOut { after: MAX_WAIT }));
    assert!(waited >= MAX_WAIT, "{waited:?}");
    let begun = Instant::now();
    for _ in 0..100 {
        assert!(ask(&store).await.0.is_err());
    }
    assert!(begun.elapsed() < MAX_WAIT, "{:?}", begun.elapsed());
    server.signal("CONT");
    found_again(&store).await;
    // The answer that came late went to nobody.
    for want in 1..50 {
        let asked = worker().rate(1e6, 1000).want(want);
        let lease = store.lease("fresh", asked).await.unwrap();
        assert_eq!((lease.tokens, lease.workers), (want, want));
    }
}

/// Two nodes, each with half of the keys.
#[tokio::test]
async fn a_cluster_is_asked_through_a_connection_that_knows_it() {
    let name = "a_cluster_is_asked_through_a_connection_that_knows_it";
    let Some(one) = RedisServer::start_node(name).await else {
        return;
    };
    let other = RedisServer::start_node(name).await.unwrap();
    one.tell::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"])
        .await;
    other
        .tell::<()>(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"])
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
        // Whichever node it was told to, the one that is listened to passes it on.
        while in_time(heard.next()).await.unwrap().key != pauses {}
    }
    for node in [&one, &other] {
        let keys: usize = node.tell(&["DBSIZE"]).await;
        assert!(keys > 10, "{keys}");
    }

    // A URL leads to one node, which sends everybody away who asks for what another has.
    let alone = one.store();
    let mut sent_away = 0;
    for number in 0..20 {
        let asked = alone.lease(&format!("host-{number}"), worker()).await;
        match asked {
            Ok(_) => {}
            Err(FleetError::Refused { code }) if code == "MOVED" => sent_away += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..20).contains(&sent_away), "{sent_away}");
}
