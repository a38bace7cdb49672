//! Models of the reserve, which failures empty and only successes refill.

use super::pool::{RETRY, ReservePool};
use super::race_on;

/// One second, in the pool's unit of time.
const SEC: u64 = 1_000_000_000;

/// Runs two threads at once on a pool of four retries, of which `left` are left. Successes refill one per second.
fn race<A: Send + 'static, B: Send + 'static>(
    left: u32,
    one: fn(&ReservePool) -> A,
    other: fn(&ReservePool) -> B,
    check: fn(&ReservePool, A, B),
) {
    let new = move || {
        let pool = ReservePool::new(4.0, 1.0);
        for _ in left..4 {
            assert!(pool.try_take(0));
        }
        pool
    };
    race_on(new, one, other, check);
}

#[test]
fn the_last_retry_is_taken_once() {
    race(
        1,
        |pool| pool.try_take(0),
        |pool| pool.try_take(0),
        |pool, one, other| {
            assert!(one ^ other);
            assert_eq!(pool.retries(0), 0.0);
        },
    );
}

#[test]
fn no_worker_takes_from_the_part_of_others() {
    race(
        3,
        |pool| pool.try_take(pool.floor(2)),
        |pool| pool.try_take(pool.floor(2)),
        |pool, one, other| {
            assert!(one ^ other);
            assert_eq!(pool.floor(2), 2 * RETRY);
            assert_eq!(pool.retries(0), 2.0);
        },
    );
}

#[test]
fn two_failures_take_a_whole_retry() {
    race(
        2,
        |pool| pool.on_failure(0),
        |pool| pool.on_failure(0),
        |pool, (), ()| assert_eq!(pool.retries(0), 1.0),
    );
}

#[test]
fn failures_end_at_the_floor() {
    race(
        3,
        |pool| {
            pool.on_failure(pool.floor(2));
            pool.on_failure(pool.floor(2));
        },
        |pool| pool.on_failure(pool.floor(2)),
        |pool, (), ()| assert_eq!(pool.retries(0), 2.0),
    );
}

#[test]
fn a_failure_and_a_refund_both_count() {
    race(
        2,
        |pool| pool.on_failure(0),
        ReservePool::put_back,
        |pool, (), ()| assert_eq!(pool.retries(0), 2.5),
    );
}

#[test]
fn a_success_and_a_retry_both_count() {
    race(
        1,
        |pool| pool.on_success(SEC),
        |pool| pool.try_take(0),
        |pool, (), taken| {
            assert!(taken);
            assert_eq!(pool.retries(0), 1.0);
        },
    );
}

#[test]
fn a_refund_beside_a_success_fills_the_pool_and_no_more() {
    race(
        3,
        |pool| pool.on_success(SEC),
        ReservePool::put_back,
        |pool, (), ()| assert_eq!(pool.retries(0), 4.0),
    );
}

#[test]
fn successes_at_the_same_time_refill_once() {
    race(
        0,
        |pool| pool.on_success(SEC / 2),
        |pool| pool.on_success(SEC / 2),
        |pool, (), ()| assert_eq!(pool.retries(0), 0.5),
    );
}

#[test]
fn successes_refill_no_more_than_the_limit() {
    race(
        0,
        |pool| pool.on_success(SEC / 4),
        |pool| pool.on_success(SEC),
        // If both see the same last refill, one of them gives up its part.
        |pool, (), ()| {
            let refilled = pool.retries(0);
            assert!((0.25..=1.0).contains(&refilled), "{refilled}");
        },
    );
}
