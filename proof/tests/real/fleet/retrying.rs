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
    after_the_ttl_only_the_reserve_remains,
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

async fn after_the_ttl_only_the_reserve_remains(store: Store) {
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
    assert_eq!(store.retries(KEY, ask).await.unwrap().balance, 6.0);
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
