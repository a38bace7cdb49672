use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use super::fleet_budget::FleetBudget;
use super::pool::ReservePool;
use super::state::SLOTS;
use super::window::SlidingWindow;
use super::*;
use crate::fleet::FleetLimits;

fn budget(ratio: f64) -> Budget {
    Budget::builder()
        .retry_ratio(ratio)
        .min_retries_per_sec(0.0)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn retries_match_the_ratio() {
    for (ratio, expected) in [
        (0.1, 1000),
        (0.25, 2500),
        (0.5, 5000),
        (0.75, 7500),
        (0.99, 9900),
        (0.999, 9990),
        (0.9999, 9999),
        (0.01, 100),
        (0.001, 10),
        (0.0001, 1),
        (1.0, 10_000),
        (0.0, 0),
    ] {
        let budget = budget(ratio);
        let mut allowed = 0;
        for _ in 0..10_000 {
            budget.deposit();
            allowed += i32::from(budget.try_withdraw());
        }
        assert!((allowed - expected).abs() <= 1, "{ratio}: {allowed}");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_empty_the_reserve_and_only_successes_refill_it() {
    let budget = Budget::builder().retry_ratio(0.0).build().unwrap();
    assert_eq!(budget.balance(), 20.0);
    for _ in 0..20 {
        assert!(budget.try_withdraw());
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    assert!(!budget.try_withdraw());
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(budget.balance(), 0.0, "time refilled it");
    // One retry for each success, at most two per second.
    budget.deposit();
    assert_eq!(budget.balance(), 1.0);
    budget.deposit();
    assert_eq!(budget.balance(), 1.0, "refilled twice at the same moment");
    for successes in 1..=10 {
        tokio::time::advance(Duration::from_millis(100)).await;
        budget.deposit();
        let refilled = 1.0 + 0.2 * f64::from(successes);
        assert!((budget.balance() - refilled).abs() < 1e-5, "{budget:?}");
    }
    for _ in 0..100 {
        tokio::time::advance(Duration::from_secs(4)).await;
        budget.deposit();
    }
    assert_eq!(budget.balance(), 20.0);
}

#[tokio::test(start_paused = true)]
async fn failures_without_a_retry_take_half_a_retry_from_the_reserve() {
    let budget = Budget::builder().build().unwrap();
    for _ in 0..37 {
        budget.on_failure();
    }
    assert_eq!(budget.balance(), 1.5);
    drop(budget.withdraw_at(clock::now()).unwrap());
    assert_eq!(budget.balance(), 1.5, "a dropped hold gives it back");
    budget.withdraw_at(clock::now()).unwrap().spend();
    assert!(!budget.try_withdraw());
    budget.on_failure();
    budget.on_failure();
    assert_eq!(budget.balance(), 0.0);
}

#[test]
fn a_worker_of_a_fleet_has_its_part_of_the_pool() {
    let pool = ReservePool::new(20.0, 2.0);
    let floor = pool.floor(4);
    assert_eq!(pool.retries(floor), 5.0);
    for failures in 1..=5 {
        pool.on_failure(floor);
        assert_eq!(pool.retries(floor), 5.0 - f64::from(failures) / 2.0);
        assert!(pool.is_half_full(floor));
    }
    pool.on_failure(floor);
    assert!(!pool.is_half_full(floor), "less than half of its part");
    assert!(pool.try_take(floor) && pool.try_take(floor));
    assert!(!pool.try_take(floor), "the rest is for others");
    pool.on_failure(floor);
    // Another worker joins. Nothing is taken below its part.
    assert_eq!(
        (pool.retries(floor), pool.retries(pool.floor(5))),
        (0.0, 0.0)
    );
    pool.on_failure(pool.floor(5));
    assert_eq!(pool.retries(0), 15.0);
}

#[tokio::test(start_paused = true)]
async fn deposits_count_for_the_ttl() {
    let budget = budget(1.0);
    for second in 0..10 {
        budget.deposit();
        assert_eq!(budget.balance(), f64::from(second + 1));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(budget.balance(), 10.0);
    tokio::time::advance(Duration::from_millis(700)).await;
    assert_eq!(budget.balance(), 9.0);
    tokio::time::advance(Duration::from_secs(100)).await;
    assert_eq!(budget.balance(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_hold_undoes_its_debit() {
    for pause in [0, 500, 3000, 9000, 10_700, 60_000] {
        let budget = Budget::builder().retry_ratio(0.5).build().unwrap();
        for _ in 0..10 {
            budget.deposit();
        }
        let hold = budget.withdraw_at(clock::now()).unwrap();
        tokio::time::advance(Duration::from_millis(pause)).await;
        drop(hold);
        let untouched = if pause > 10_000 { 20.0 } else { 25.0 };
        assert_eq!(budget.balance(), untouched, "after {pause} ms");
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(budget.balance(), 20.0, "later, after {pause} ms");
    }
}

#[test]
fn an_unlimited_budget_always_pays() {
    let budget = Budget::unlimited();
    assert!((0..100_000).all(|_| budget.try_withdraw()));
    assert_eq!(budget.balance(), f64::INFINITY);
}

#[test]
fn an_invalid_setting_is_named_with_its_value() {
    let builder = Budget::builder;
    for (builder, said) in [
        (
            builder().ttl(Duration::ZERO),
            "ttl (0s) should be longer than zero and at most an hour",
        ),
        (
            builder().ttl(Duration::from_secs(3601)),
            "ttl (1h 1s) should be longer than zero and at most an hour",
        ),
        (
            builder().retry_ratio(-0.5),
            "retry_ratio (-0.5) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)",
        ),
        (
            builder().retry_ratio(f64::NAN),
            "retry_ratio (nan) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)",
        ),
        (
            builder().retry_ratio(f64::INFINITY),
            "retry_ratio (inf) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)",
        ),
        (
            builder().retry_ratio(1.0001),
            "retry_ratio (1.0001) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)",
        ),
        (
            builder().retry_ratio(10.0),
            "retry_ratio (10.0) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)",
        ),
        (
            builder().min_retries_per_sec(-1.0),
            "min_retries_per_sec (-1.0) should be from 0 to 1000000",
        ),
        (
            builder().min_retries_per_sec(f64::NAN),
            "min_retries_per_sec (nan) should be from 0 to 1000000",
        ),
        (
            builder().min_retries_per_sec(f64::INFINITY),
            "min_retries_per_sec (inf) should be from 0 to 1000000",
        ),
    ] {
        assert_eq!(builder.build().unwrap_err().to_string(), said);
    }
    let tiny = builder().min_retries_per_sec(0.05).build().unwrap_err();
    assert_eq!(
        tiny.to_string(),
        "min_retries_per_sec (0.05) should be 0, or at least 0.1 (one retry within the ttl of 10s)"
    );
    let tiny = builder().retry_ratio(4e-7).build().unwrap_err();
    assert_eq!(
        tiny.to_string(),
        "retry_ratio (4e-7) should be 0, or at least 0.000001"
    );
    let shortest = builder()
        .ttl(Duration::from_nanos(1))
        .min_retries_per_sec(0.0);
    assert!(shortest.build().is_ok());
    assert!(
        builder()
            .ttl(Duration::from_secs(3600))
            .retry_ratio(1.0)
            .build()
            .is_ok()
    );
}

/// Eight threads, a million operations each, on a clock that moves: slots roll all the time.
#[test]
fn racing_threads_count_exactly_and_never_overdraw() {
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    const THREADS: u64 = 8;
    const OPERATIONS: u64 = 1_000_000;
    let window = SlidingWindow::<SLOTS>::new(1000);
    let clock = AtomicU64::new(0);
    let taken = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (window, clock, taken) = (&window, &clock, &taken);
            scope.spawn(move || {
                for operation in 0..OPERATIONS {
                    let now = clock.fetch_add(1, Ordering::Relaxed);
                    match (operation + thread) % 4 {
                        0 | 1 => window.add(now, 1),
                        2 => {
                            if window.try_take(now, 3, 0).is_some() {
                                taken.fetch_add(3, Ordering::Relaxed);
                            }
                        }
                        _ => {
                            if let Some(slot) = window.try_take(now, 3, 0) {
                                window.give_back(slot, 3);
                            }
                        }
                    }
                }
            });
        }
    });
    let added = (THREADS * OPERATIONS / 2) as i64;
    let taken = taken.into_inner();
    assert!(taken > 0 && taken <= added, "{taken} of {added}");
    // When all has expired, slot by slot, nothing is left and nothing is missing.
    let end = clock.into_inner();
    let nets: Vec<_> = (0..=SLOTS as u64 + 1)
        .map(|slots| window.net(end + 1000 * slots))
        .collect();
    assert!(nets.iter().any(|net| *net != 0), "nothing was live");
    assert_eq!(nets[SLOTS + 1], 0, "{nets:?}");

    // With a clock that stands still, every unit is accounted for, and so is every one that is given back.
    for refunds in [false, true] {
        let window = SlidingWindow::<SLOTS>::new(u64::MAX);
        let taken = AtomicI64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for operation in 0..OPERATIONS / 2 {
                        window.add(0, 3);
                        let Some(slot) = window.try_take(0, 4, 0) else {
                            continue;
                        };
                        if refunds && operation % 2 == 0 {
                            window.give_back(slot, 4);
                        } else {
                            taken.fetch_add(4, Ordering::Relaxed);
                        }
                        assert!(window.net(0) >= 0);
                    }
                });
            }
        });
        let added = (THREADS * OPERATIONS / 2 * 3) as i64;
        assert_eq!(window.net(0), added - taken.into_inner(), "{refunds}");
        // What was given back last may still be there.
        assert!(refunds || window.net(0) < 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_polls_delays_no_other() {
    let (fleet, settings, start) = (FleetLimits::in_memory(), Budget::builder(), clock::now());
    let shared = FleetBudget::new(&fleet, "a.example", settings.terms, start);
    let budget = settings.start(start, Some(shared));
    let mut idle = pin!(budget.withdraw_shared(None));
    assert!(poll_once(idle.as_mut()).await.is_none());
    // The ask of the first call is under way, and this one waits for it as well.
    assert!(budget.withdraw_shared(None).await.is_some());
    assert_eq!(clock::now(), start, "it waited for the idle call");
    assert!(budget.withdraw_shared(None).await.is_some());
    assert_eq!(clock::now(), start, "it waited for the idle call");
    assert!(idle.await.is_some());
}

/// Polls a future once.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        Poll::Ready(match polled {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}
