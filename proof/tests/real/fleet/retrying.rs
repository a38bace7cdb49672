//! The retry budget that workers share.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use reqwest_steady::fleet::{FleetError, FleetStore, MemoryStore, RetriesAsk, RetryTerms};
use reqwest_steady::{Budget, Deposit};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{KEY, on_both_stores};

type Store = Arc<dyn FleetStore>;

on_both_stores!(
    the_store_counts_like_a_budget,
    concurrent_withdrawals_never_overdraw,
    unused_retries_can_be_returned,
    only_successes_refill_the_reserve,
    failures_take_half_a_retry_of_the_reserve,
    invalid_requests_change_nothing,
);

/// A fifteenth of this ttl is a whole number of microseconds, so the slots equal those of a budget.
const TERMS: RetryTerms = RetryTerms {
    ttl: Duration::from_millis(15_000),
    ratio: 0.1,
    min_per_sec: 0.4,
};

fn budget(terms: RetryTerms) -> Budget {
    Budget::builder()
        .ttl(terms.ttl)
        .retry_ratio(terms.ratio)
        .min_retries_per_sec(terms.min_per_sec)
        .deposit_on(Deposit::Request)
        .build()
        .unwrap()
}

/// Makes the same deposits and withdrawals in both, and compares the balances.
async fn both(
    store: &dyn FleetStore,
    budget: &Budget,
    deposits: u64,
    want: u32,
    terms: RetryTerms,
) {
    let ask = RetriesAsk::new(terms).deposits(deposits).want(want);
    let retries = store.retries(KEY, ask).await.unwrap();
    for _ in 0..deposits {
        budget.deposit();
    }
    let granted = (0..want).filter(|_| budget.try_withdraw()).count();
    assert_eq!(retries.granted as usize, granted);
    let difference = (retries.balance - budget.balance()).abs();
    assert!(difference < 1e-6, "{retries:?}, {budget:?}");
}

async fn the_store_counts_like_a_budget(store: Store) {
    let budget = budget(TERMS);
    for (deposits, want) in [(0, 7), (9, 1), (1, 1), (0, 1), (1000, 50), (3, 60), (7, 1)] {
        both(&*store, &budget, deposits, want, TERMS).await;
    }
}

proptest! {
    #[test]
    fn over_time_the_store_counts_like_a_budget(
        steps in vec((0..40_u64, 0..5_u32, 0..4_000_u64), 60),
        ratio in prop_oneof![Just(0.1), Just(0.2), Just(0.75), Just(0.0), Just(1.0)],
        min_per_sec in prop_oneof![Just(0.0), Just(0.4), Just(2.0)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let terms = RetryTerms { ratio, min_per_sec, ..TERMS };
        runtime.block_on(async {
            let (store, budget) = (MemoryStore::new(), budget(terms));
            for (deposits, want, wait) in steps {
                both(&store, &budget, deposits, want, terms).await;
                sleep(Duration::from_millis(wait)).await;
            }
        });
    }
}

async fn concurrent_withdrawals_never_overdraw(store: Store) {
    store
        .retries(KEY, RetriesAsk::new(TERMS).deposits(1000))
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut got = 0;
            for want in 1..=10 {
                let ask = RetriesAsk::new(TERMS).want(want);
                got += store.retries(KEY, ask).await.unwrap().granted;
            }
            got
        });
    }
    // A tenth of the 1000 deposits, and the reserve of 6.
    assert_eq!(tasks.join_all().await.into_iter().sum::<u32>(), 106);
}

async fn unused_retries_can_be_returned(store: Store) {
    let ask = RetriesAsk::new(TERMS);
    assert_eq!(store.retries(KEY, ask.want(100)).await.unwrap().granted, 6);
    let returned = store.retries(KEY, ask.unused(4)).await.unwrap();
    assert_eq!((returned.granted, returned.balance), (0, 4.0));
    assert_eq!(store.retries(KEY, ask.want(100)).await.unwrap().granted, 4);
    // A worker can return at most what was withdrawn.
    let returned = store.retries(KEY, ask.unused(u32::MAX)).await.unwrap();
    assert_eq!(returned.balance, 6.0);
}

async fn only_successes_refill_the_reserve(store: Store) {
    let terms = RetryTerms {
        ttl: Duration::from_millis(600),
        ratio: 1.0,
        min_per_sec: 10.0,
    };
    let ask = RetriesAsk::new(terms);
    let first = store.retries(KEY, ask.deposits(5).want(20)).await.unwrap();
    assert_eq!((first.granted, first.balance), (11, 0.0));
    let saved = store.retries(KEY, ask.deposits(30)).await.unwrap();
    assert_eq!(saved.balance, 30.0);
    sleep(Duration::from_millis(700)).await;
    let later = store.retries(KEY, ask).await.unwrap();
    assert_eq!(
        later.balance, 0.0,
        "the ttl is over, and time refills nothing"
    );
    // 7 could be refilled by now, but only 3 calls have succeeded.
    let refilled = store.retries(KEY, ask.successes(3)).await.unwrap();
    assert_eq!(refilled.balance, 3.0);
    // The time since then allows less than one, or a few on a busy machine.
    let at_once = store.retries(KEY, ask.successes(1000)).await.unwrap();
    assert!((3.0..6.0).contains(&at_once.balance), "{at_once:?}");
    sleep(Duration::from_millis(1500)).await;
    let full = store.retries(KEY, ask.successes(1000)).await.unwrap();
    assert_eq!(full.balance, 6.0);
}

async fn failures_take_half_a_retry_of_the_reserve(store: Store) {
    let ask = RetriesAsk::new(TERMS);
    let left = store.retries(KEY, ask.failures(3)).await.unwrap();
    assert_eq!(left.balance, 4.5);
    // Retries come first.
    let taken = store.retries(KEY, ask.want(4).failures(7)).await.unwrap();
    assert_eq!((taken.granted, taken.balance), (4, 0.0));
    let returned = store.retries(KEY, ask.unused(1)).await.unwrap();
    assert_eq!(returned.balance, 1.0);
    // Deposits are not touched.
    let saved = store
        .retries(KEY, ask.deposits(30).failures(9))
        .await
        .unwrap();
    assert_eq!(saved.balance, 3.0);
}

/// One step of the pool: what happens to it, and how long after the step before.
type PoolStep = (bool, u64, u32, u64);

fn pool_steps(most: u64) -> impl Strategy<Value = Vec<PoolStep>> {
    vec((any::<bool>(), 0..3_u64, 0..3_u32, 0..most), 60)
}

/// Takes one step in the store, and returns what it grants and what is left.
async fn pool_step(store: &dyn FleetStore, step: PoolStep) -> (u32, f64) {
    let (has_success, failures, want, _) = step;
    let terms = RetryTerms {
        ratio: 0.0,
        ..TERMS
    };
    let ask = RetriesAsk::new(terms).successes(has_success.into());
    let ask = ask.failures(failures).want(want);
    let retries = store.retries(KEY, ask).await.unwrap();
    (retries.granted, retries.balance)
}

proptest! {
    #[test]
    fn over_time_the_pool_of_a_store_counts_like_a_reserve(steps in pool_steps(4000)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = MemoryStore::new();
            // A model of the rule: at most one retry per success, and 0.4 per second.
            let (mut level, mut refilled) = (6.0_f64, 0.0);
            let mut now = 0.0;
            for step in steps {
                let (has_success, failures, want, wait) = step;
                let (granted, left) = pool_step(&store, step).await;
                if has_success {
                    let earned = ((now - refilled) * TERMS.min_per_sec).min(1.0);
                    (level, refilled) = ((level + earned).min(6.0), now);
                }
                let paid = f64::from(want).min((level + 1e-6).floor());
                level = (level - paid - failures as f64 / 2.0).max(0.0);
                assert_eq!(f64::from(granted), paid, "{step:?}");
                assert!((left - level).abs() < 1e-6, "{step:?}: {left}, expected {level}");
                sleep(Duration::from_millis(wait)).await;
                now += wait as f64 / 1000.0;
            }
        });
    }
}

/// The script of Redis and the store in memory take the same steps. Redis needs real time, so a tolerance remains.
#[cfg(unix)]
#[tokio::test]
async fn the_pool_of_redis_is_that_of_the_memory_store() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let name = "the_pool_of_redis_is_that_of_the_memory_store";
    let Some(server) = super::redis_server::RedisServer::start(name).await else {
        return;
    };
    let (redis, memory) = (server.store(), MemoryStore::new());
    let mut runner = TestRunner::deterministic();
    let steps = pool_steps(100).new_tree(&mut runner).unwrap().current();
    let mut compared = 0;
    for step in steps {
        let one = pool_step(&*redis, step).await;
        let other = pool_step(&memory, step).await;
        // A retry that is just earned in one store may be missing in the other by a moment.
        let difference = (one.1 + f64::from(one.0)) - (other.1 + f64::from(other.0));
        assert!(difference.abs() < 0.1, "{step:?}: {one:?}, {other:?}");
        if one.0 != other.0 {
            break;
        }
        compared += 1;
        sleep(Duration::from_millis(step.3)).await;
    }
    assert!(compared > 20, "{compared}");
}

async fn invalid_requests_change_nothing(store: Store) {
    let good = RetriesAsk::new(TERMS);
    store.retries(KEY, good.want(2)).await.unwrap();
    for terms in [
        RetryTerms {
            ratio: f64::NAN,
            ..TERMS
        },
        RetryTerms {
            ratio: -1.0,
            ..TERMS
        },
        RetryTerms {
            ratio: 10.0,
            ..TERMS
        },
        RetryTerms {
            min_per_sec: f64::INFINITY,
            ..TERMS
        },
        RetryTerms {
            ttl: Duration::ZERO,
            ..TERMS
        },
        RetryTerms {
            ttl: Duration::MAX,
            ..TERMS
        },
    ] {
        let error = store
            .retries(KEY, RetriesAsk::new(terms))
            .await
            .unwrap_err();
        assert!(matches!(error, FleetError::BadValue(_)), "{error}");
    }
    assert!(store.retries(KEY, good.deposits(u64::MAX)).await.is_err());
    assert_eq!(store.retries(KEY, good).await.unwrap().balance, 4.0);
}
