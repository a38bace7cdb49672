//! A pause that one worker receives applies to all.

use std::sync::Arc;
use std::time::Duration;

use reqwest_steady::fleet::FleetStore;
use tokio::time::{Instant, sleep, timeout};

use super::{KEY, on_both_stores, worker};
use crate::support::raw::in_time;

type Store = Arc<dyn FleetStore>;

on_both_stores!(
    all_workers_see_a_pause_until_it_ends,
    a_shorter_pause_does_not_end_a_longer_one,
    no_pause_is_longer_than_an_hour,
    subscribers_get_each_pause_once_and_at_once,
);

async fn all_workers_see_a_pause_until_it_ends(store: Store) {
    store.pause(KEY, Duration::from_millis(300)).await.unwrap();
    let left = store.lease(KEY, worker()).await.unwrap().pause;
    assert!(left > Duration::from_millis(100) && left <= Duration::from_millis(300));
    sleep(Duration::from_millis(310)).await;
    let lease = store.lease(KEY, worker()).await.unwrap();
    assert_eq!(lease.pause, Duration::ZERO);
}

async fn a_shorter_pause_does_not_end_a_longer_one(store: Store) {
    store.pause(KEY, Duration::from_secs(30)).await.unwrap();
    store.pause(KEY, Duration::from_secs(2)).await.unwrap();
    store.pause(KEY, Duration::ZERO).await.unwrap();
    let left = store.lease(KEY, worker()).await.unwrap().pause;
    assert!(left > Duration::from_secs(25), "{left:?}");
}

async fn no_pause_is_longer_than_an_hour(store: Store) {
    store.pause(KEY, Duration::MAX).await.unwrap();
    let left = store.lease(KEY, worker()).await.unwrap().pause;
    assert!(left <= Duration::from_secs(3600), "{left:?}");
    assert!(left > Duration::from_secs(3590), "{left:?}");
}

async fn subscribers_get_each_pause_once_and_at_once(store: Store) {
    let mut one = store.pauses().await.unwrap();
    let mut other = store.pauses().await.unwrap();
    // Any key works, even one with special characters.
    let key = "12 api}.example.com\n{";
    let sent = Instant::now();
    store.pause(key, Duration::from_secs(2)).await.unwrap();
    for pauses in [&mut one, &mut other] {
        let pause = in_time(pauses.next()).await.unwrap();
        let took = sent.elapsed();
        println!("received a pause after {took:?}");
        assert!(took < Duration::from_millis(500), "{took:?}");
        assert_eq!(pause.key, key);
        assert_eq!(pause.length, Duration::from_secs(2));
    }
    // A repeated pause, as many workers send it, is not delivered again.
    store.pause(key, Duration::from_secs(1)).await.unwrap();
    let nothing = timeout(Duration::from_millis(100), one.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    // A dropped wait loses no pause.
    store.pause("next", Duration::from_secs(1)).await.unwrap();
    assert_eq!(in_time(one.next()).await.unwrap().key, "next");
}
