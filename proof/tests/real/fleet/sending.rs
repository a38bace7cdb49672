//! The fixed rate and the adaptive rate that workers share.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use reqwest_steady::fleet::{FleetError, FleetStore, LeaseAsk, MemoryStore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::{KEY, PERIOD, on_both_stores, worker};

type Store = Arc<dyn FleetStore>;

on_both_stores!(
    a_full_bucket_is_available_at_once_then_the_rate,
    a_refused_worker_learns_when_to_ask_again,
    unused_tokens_go_to_other_workers,
    without_a_rate_all_is_granted_and_workers_counted,
    the_share_of_a_dead_worker_goes_to_the_others,
    sums_of_grants_stay_within_the_bound,
    eight_greedy_workers_get_equal_shares,
    eight_workers_that_ask_once_a_period_get_their_share,
    a_worker_that_always_asks_does_not_starve_others,
    a_single_active_worker_gets_the_whole_rate,
    workers_can_change_the_rate_one_after_the_other,
    keys_are_independent,
    the_pace_of_the_fleet_is_the_sum_of_all_changes,
    invalid_requests_change_nothing,
);

async fn a_full_bucket_is_available_at_once_then_the_rate(store: Store) {
    let ask = worker().rate(100.0, 40);
    let first = store.lease(KEY, ask.want(1000)).await.unwrap();
    // The bucket, and nothing in advance: a single worker has a fair share of five.
    assert_eq!((first.tokens, first.retry_after), (40, Duration::ZERO));
    let ahead = store.lease(KEY, ask.want(1000)).await.unwrap();
    assert_eq!(ahead.tokens, 5);
    let started = Instant::now();
    sleep(Duration::from_millis(100)).await;
    let later = store.lease(KEY, ask.want(1000)).await.unwrap();
    let most = started.elapsed().as_secs_f64() * 100.0 + 1.0;
    assert!(later.tokens >= 5, "{later:?}");
    assert!(f64::from(later.tokens) <= most, "{later:?}");
}

async fn a_refused_worker_learns_when_to_ask_again(store: Store) {
    let ask = worker().rate(20.0, 1);
    while store.lease(KEY, ask.want(1)).await.unwrap().tokens > 0 {}
    let refused = store.lease(KEY, ask.want(1)).await.unwrap();
    assert_eq!(refused.tokens, 0);
    assert!(refused.retry_after >= Duration::from_millis(1));
    assert!(refused.retry_after <= Duration::from_millis(50));
    sleep(refused.retry_after).await;
    assert_eq!(store.lease(KEY, ask.want(1)).await.unwrap().tokens, 1);
}

async fn unused_tokens_go_to_other_workers(store: Store) {
    let (one, other) = (worker().rate(1.0, 10), worker().rate(1.0, 10));
    assert_eq!(store.lease(KEY, one.want(10)).await.unwrap().tokens, 10);
    // One token in advance.
    assert_eq!(store.lease(KEY, other.want(9)).await.unwrap().tokens, 1);
    assert_eq!(store.lease(KEY, other.want(9)).await.unwrap().tokens, 0);
    store.lease(KEY, one.unused(9)).await.unwrap();
    let got = store.lease(KEY, other.want(9)).await.unwrap().tokens;
    assert!(got >= 6, "{got}");
    // A worker cannot return more than the bucket holds.
    store.lease(KEY, one.unused(u32::MAX)).await.unwrap();
    let got = store.lease(KEY, other.want(u32::MAX)).await.unwrap().tokens;
    assert!(got <= 10, "{got}");
}

async fn without_a_rate_all_is_granted_and_workers_counted(store: Store) {
    for expected in 1..=5 {
        let lease = store.lease(KEY, worker().want(u32::MAX)).await.unwrap();
        assert_eq!((lease.tokens, lease.workers), (u32::MAX, expected));
        assert_eq!((lease.pause, lease.pace), (Duration::ZERO, None));
    }
}

async fn the_share_of_a_dead_worker_goes_to_the_others(store: Store) {
    let (one, other) = (worker().rate(1000.0, 1), worker().rate(1000.0, 1));
    store.lease(KEY, one).await.unwrap();
    let both = store.lease(KEY, other.want(1000)).await.unwrap();
    assert_eq!((both.workers, both.tokens), (2, 25));
    for _ in 0..7 {
        sleep(Duration::from_millis(450)).await;
        store.lease(KEY, other).await.unwrap();
    }
    let alone = store.lease(KEY, other.want(1000)).await.unwrap();
    assert_eq!((alone.workers, alone.tokens), (1, 50));
}

/// One request of a random sequence.
#[derive(Clone, Copy, Debug)]
struct Step {
    worker: usize,
    want: u32,
    /// The share of its tokens that the worker returns, in tenths.
    unused: u32,
    wait: Duration,
}

fn steps(most_wait: u64, count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0..5_usize, 0..60_u32, 0..=10_u32, 0..=most_wait);
    let step = step.prop_map(|(worker, want, unused, wait)| Step {
        worker,
        want,
        unused,
        wait: Duration::from_micros(wait),
    });
    vec(step, count)
}

/// Checks the grants between any two times: at most the bucket, its refill, and one fair share.
async fn stays_within_the_bound(store: Store, rate: f64, burst: u32, steps: Vec<Step>) {
    let asks: Vec<LeaseAsk> = (0..5).map(|_| worker().rate(rate, burst)).collect();
    let mut held = [0_u32; 5];
    let mut given: Vec<(Instant, Instant, f64)> = Vec::new();
    for step in steps {
        let unused = held[step.worker] * step.unused / 10;
        let ask = asks[step.worker].want(step.want).unused(unused);
        let before = Instant::now();
        let lease = store.lease(KEY, ask).await.unwrap();
        assert!(lease.tokens <= step.want);
        assert_eq!(
            lease.retry_after.is_zero(),
            lease.tokens > 0 || step.want == 0
        );
        held[step.worker] = lease.tokens;
        let net = f64::from(lease.tokens) - f64::from(unused);
        given.push((before, Instant::now(), net));
        sleep(step.wait).await;
    }
    let fair = (rate * PERIOD.as_secs_f64()).max(1.0);
    for (index, (begun, ..)) in given.iter().enumerate() {
        let mut sum = 0.0;
        for (_, ended, net) in &given[index..] {
            sum += net;
            let passed = (*ended - *begun).as_secs_f64();
            let most = f64::from(burst) + rate * passed + fair;
            assert!(sum <= most + 1e-6, "{sum} > {most}");
        }
    }
}

async fn sums_of_grants_stay_within_the_bound(store: Store) {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = steps(4_000, 300).new_tree(&mut runner).unwrap().current();
    stays_within_the_bound(store, 400.0, 15, steps).await;
}

proptest! {
    #[test]
    fn no_sequence_gets_more_than_the_bound(
        steps in steps(300_000, 60),
        rate in prop_oneof![0.01..1e4_f64, Just(1e6)],
        burst in prop_oneof![1..200_u32, Just(1)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            stays_within_the_bound(Arc::new(MemoryStore::new()), rate, burst, steps).await;
        });
    }
}

/// The strategy of a worker that takes as much as it can.
#[derive(Clone, Copy)]
enum Greed {
    /// Uses its tokens at once and asks again. After a refusal, waits as long as the store asks.
    Polite,
    /// Asks every millisecond, whatever the store asks.
    Rude,
    /// Asks once per period, whatever the store asks.
    Slow,
}

impl Greed {
    /// Returns the wait until the next request.
    fn wait(self, refused_for: Duration) -> Duration {
        match self {
            Self::Polite => refused_for.max(Duration::from_millis(1)),
            Self::Rude => Duration::from_millis(1),
            Self::Slow => PERIOD,
        }
    }
}

/// Returns the tokens until the end, and the number of requests.
async fn be_greedy(store: Store, ask: LeaseAsk, greed: Greed, end: Instant) -> (u32, u32) {
    let (mut got, mut asked) = (0, 0);
    while Instant::now() < end {
        let lease = store.lease(KEY, ask.want(10_000)).await.unwrap();
        got += lease.tokens;
        asked += 1;
        sleep_until(end.min(Instant::now() + greed.wait(lease.retry_after))).await;
    }
    (got, asked)
}

const GREEDY_FOR: Duration = Duration::from_secs(2);

/// Returns the tokens and the requests of each worker, at a rate of 800 per second.
async fn all_greedy(store: Store, burst: u32, workers: &[Greed]) -> Vec<(u32, u32)> {
    // The store knows all workers from the start.
    let asks: Vec<LeaseAsk> = (workers.iter())
        .map(|_| worker().rate(800.0, burst))
        .collect();
    for ask in &asks {
        store.lease(KEY, *ask).await.unwrap();
    }
    let end = Instant::now() + GREEDY_FOR;
    let mut tasks = JoinSet::new();
    for (place, (ask, greed)) in asks.into_iter().zip(workers.iter().copied()).enumerate() {
        let store = store.clone();
        tasks.spawn(async move { (place, be_greedy(store, ask, greed, end).await) });
    }
    let mut got = tasks.join_all().await;
    got.sort_unstable();
    got.into_iter().map(|(_, got)| got).collect()
}

fn is_about(value: u32, expected: f64, tolerance: f64) -> bool {
    (f64::from(value) - expected).abs() <= expected * tolerance
}

async fn eight_greedy_workers_get_equal_shares(store: Store) {
    let got = all_greedy(store, 20, &[Greed::Polite; 8]).await;
    let total: u32 = got.iter().map(|(got, _)| got).sum();
    println!("8 greedy workers: (got, asked) {got:?}, {total} of 1600");
    assert!(is_about(total, 1600.0, 0.1), "{total}: {got:?}");
    let mean = f64::from(total) / 8.0;
    let same = got.iter().all(|(got, _)| is_about(*got, mean, 0.2));
    assert!(same, "{got:?}");
}

async fn eight_workers_that_ask_once_a_period_get_their_share(store: Store) {
    let got = all_greedy(store, 80, &[Greed::Slow; 8]).await;
    println!("8 workers that ask once per period: (got, asked) {got:?}");
    // Five tokens per request. On a busy machine a worker misses some periods. One of them gets the initial rest.
    for (got, asked) in got {
        assert!(got >= 5 * asked, "{got} for {asked}");
    }
}

async fn a_worker_that_always_asks_does_not_starve_others(store: Store) {
    let mut greed = [Greed::Polite; 4];
    greed[0] = Greed::Rude;
    let got = all_greedy(store, 20, &greed).await;
    println!("one of 4 asks every millisecond: (got, asked) {got:?}");
    for (got, _) in &got[1..] {
        assert!(*got >= 300, "of 400 each: {got:?}");
    }
}

async fn a_single_active_worker_gets_the_whole_rate(store: Store) {
    // The other workers want nothing.
    for _ in 0..7 {
        store.lease(KEY, worker().rate(800.0, 20)).await.unwrap();
    }
    let (got, asked) = all_greedy(store, 20, &[Greed::Polite]).await[0];
    println!("one of 8 is greedy: {got} of 1600, asked {asked} times");
    assert!(is_about(got, 1600.0, 0.1), "{got}");
}

async fn workers_can_change_the_rate_one_after_the_other(store: Store) {
    let id = worker();
    // A debt at a high rate must not take hours at a low rate.
    while store
        .lease(KEY, id.rate(100_000.0, 10).want(10_000))
        .await
        .unwrap()
        .tokens
        > 1000
    {}
    let slow = id.rate(10.0, 5);
    let lease = store.lease(KEY, slow.want(1)).await.unwrap();
    assert!(lease.retry_after <= Duration::from_millis(200), "{lease:?}");
    // A debt at a low rate is paid off soon at a high rate.
    while store
        .lease(KEY, id.rate(0.01, 1).want(1))
        .await
        .unwrap()
        .tokens
        > 0
    {}
    let lease = store.lease(KEY, id.rate(1000.0, 5).want(5)).await.unwrap();
    assert!(lease.retry_after <= Duration::from_millis(100), "{lease:?}");
    // A smaller bucket keeps fewer of the tokens.
    let other = worker();
    store.lease("other", other.rate(1.0, 1000)).await.unwrap();
    let lease = store
        .lease("other", other.rate(1.0, 3).want(1000))
        .await
        .unwrap();
    assert_eq!(lease.tokens, 3);
}

async fn keys_are_independent(store: Store) {
    for key in ["a", "b", "a:b", "a}b", "{a}", "ключ", " ", "a\nb", "}"] {
        let ask = worker().rate(1.0, 3).want(3).pace(1.0, 2.0);
        let lease = store.lease(key, ask).await.unwrap();
        assert_eq!((lease.tokens, lease.workers), (3, 1), "{key:?}");
        assert_eq!((lease.pace, lease.pause), (Some(2.0), Duration::ZERO));
        store.pause(key, Duration::from_secs(9)).await.unwrap();
    }
}

async fn the_pace_of_the_fleet_is_the_sum_of_all_changes(store: Store) {
    let (one, other) = (worker(), worker());
    let pace = async |ask: LeaseAsk| store.lease(KEY, ask).await.unwrap().pace;
    assert_eq!(pace(one).await, None);
    assert_eq!(pace(other).await, None);
    // The store assumes that all workers have the pace of the first.
    assert_eq!(pace(one.pace(0.0, 12.5)).await, Some(25.0));
    assert_eq!(pace(other).await, Some(25.0));
    assert_eq!(pace(other.pace(12.5, 6.0)).await, Some(18.5));
    assert_eq!(pace(one.pace(12.5, 0.1)).await, Some(18.5 + (0.1 - 12.5)));
    assert_eq!(pace(one.pace(1e6, 0.0)).await, Some(1.0 / 30.0));
    assert_eq!(pace(one.pace(0.0, 1e6)).await, Some(1e6));
}

async fn invalid_requests_change_nothing(store: Store) {
    let good = worker().rate(1.0, 5);
    let taken = store.lease(KEY, good.want(2).pace(0.0, 4.0)).await.unwrap();
    assert_eq!(taken.tokens, 2);
    for bad in [
        good.rate(f64::NAN, 5),
        good.rate(f64::NEG_INFINITY, 5),
        good.rate(0.0, 5),
        good.rate(1e300, 5),
        good.rate(1.0, 0),
        good.pace(f64::NAN, 1.0),
        good.pace(1.0, f64::INFINITY),
        LeaseAsk::new(good.worker, Duration::ZERO),
        LeaseAsk::new(good.worker, Duration::MAX),
    ] {
        let error = store.lease(KEY, bad.want(5)).await.unwrap_err();
        assert!(matches!(error, FleetError::BadValue(_)), "{error}");
    }
    assert!(store.lease("", good).await.is_err());
    assert!(store.lease(&"k".repeat(1025), good).await.is_err());
    let rest = store.lease(KEY, good.want(5)).await.unwrap();
    assert_eq!((rest.tokens, rest.pace, rest.workers), (3, Some(4.0), 1));
}

#[tokio::test(start_paused = true)]
async fn a_pace_without_updates_expires_after_a_minute() {
    let store = MemoryStore::new();
    let ask = worker();
    store.lease(KEY, ask.pace(0.0, 5.0)).await.unwrap();
    sleep(Duration::from_secs(59)).await;
    assert_eq!(store.lease(KEY, ask).await.unwrap().pace, Some(5.0));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(store.lease(KEY, ask).await.unwrap().pace, None);
}

#[tokio::test(start_paused = true)]
async fn refused_workers_that_died_delay_no_others() {
    let store = MemoryStore::new();
    for _ in 0..100 {
        store
            .lease(KEY, worker().rate(1.0, 1).want(1))
            .await
            .unwrap();
    }
    let ask = worker().rate(1.0, 1).want(1);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(store.lease(KEY, ask).await.unwrap().tokens, 1);
}
