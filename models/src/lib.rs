//! loom models of the budget's window, its reserve (`reserve.rs`) and the counters of scopes (`allowance.rs`), in every
//! order of threads.
//!
//! They use the source files of the crate with loom's atomics. The window has three slots. `models/run` plants likely
//! mistakes and expects the models to fail, because a model that passes them would prove nothing.

#![cfg(test)]

mod sync {
    pub(super) use loom::sync::Mutex;
    pub(super) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
}

mod allowance;
#[path = "../../src/admit/retries_left.rs"]
mod retries_left;

#[allow(dead_code, reason = "the models need no part of it that only reads")]
#[path = "../../src/admit/budget/pool.rs"]
mod pool;
mod reserve;

#[path = "../../src/admit/budget/window.rs"]
mod window;

use loom::sync::Arc;
use loom::thread;

/// Creates a window in which slot n is open from n to n + 1, and expires when slot n + 3 opens.
type Window = window::SlidingWindow<3>;

/// Runs two threads at once on a window.
fn race<A: Send + 'static, B: Send + 'static>(
    begin: fn(&Window),
    one: fn(&Window) -> A,
    other: fn(&Window) -> B,
    check: fn(&Window, A, B),
) {
    let new = move || {
        let window = Window::new(1);
        begin(&window);
        window
    };
    race_on(new, one, other, check);
}

/// Runs two threads at once, in each placement on threads, because one placement does not reach all orders.
fn race_on<S: Send + Sync + 'static, A: Send + 'static, B: Send + 'static>(
    new: impl Fn() -> S + Copy + Send + Sync + 'static,
    one: fn(&S) -> A,
    other: fn(&S) -> B,
    check: fn(&S, A, B),
) {
    for placement in 0..3 {
        loom::model(move || {
            let shared = Arc::new(new());
            let (first, second) = (shared.clone(), shared.clone());
            let (a, b) = match placement {
                0 => {
                    let thread = thread::spawn(move || one(&first));
                    let b = other(&second);
                    (thread.join().unwrap(), b)
                }
                1 => {
                    let thread = thread::spawn(move || other(&second));
                    let a = one(&first);
                    (a, thread.join().unwrap())
                }
                _ => {
                    let one = thread::spawn(move || one(&first));
                    let other = thread::spawn(move || other(&second));
                    (one.join().unwrap(), other.join().unwrap())
                }
            };
            check(&shared, a, b);
        });
    }
}

#[test]
fn expired_credit_cannot_be_taken() {
    race(
        |window| window.add(0, 1),
        |window| window.try_take(3, 1, 0).is_some(),
        |window| window.try_take(3, 1, 0).is_some(),
        |window, one, other| {
            assert!(!one && !other);
            assert_eq!(window.net(3), 0);
        },
    );
}

#[test]
fn a_credit_is_taken_once() {
    race(
        |window| window.add(0, 1),
        |window| window.try_take(0, 1, 0).is_some(),
        |window| window.try_take(0, 1, 0).is_some(),
        |window, one, other| {
            assert!(one ^ other);
            assert_eq!(window.net(0), 0);
        },
    );
}

#[test]
fn an_expired_debit_is_back_once_a_thread_sees_the_new_slot() {
    race(
        |window| assert!(window.try_take(0, 1, -1).is_some()),
        |window| window.add(3, 0),
        |window| window.try_take(3, 1, -1).is_some(),
        |_, (), taken| assert!(taken),
    );
}

#[test]
fn a_slot_closes_once() {
    race(
        |window| {
            window.add(0, 1);
            window.add(1, 10);
        },
        |window| window.add(3, 100),
        |window| window.add(3, 1000),
        |window, (), ()| {
            // The first entry has expired, the second lives for one more slot.
            assert_eq!(window.net(3), 1110);
            assert_eq!(window.net(4), 1100);
            assert_eq!(window.net(6), 0);
        },
    );
}

#[test]
fn nothing_is_lost_while_a_slot_closes() {
    race(
        |window| {
            window.add(0, 1);
            window.add(2, 10);
        },
        |window| window.add(3, 100),
        // This clock is slightly behind.
        |window| window.add(2, 1000),
        |window, (), ()| {
            assert_eq!(window.net(3), 1110);
            // The entry came before or after the slot closed.
            let last = window.net(5);
            assert!(last == 100 || last == 1100, "{last}");
            assert_eq!(window.net(6), 0);
        },
    );
}

#[test]
fn a_refund_is_no_credit_later() {
    race(
        |window| window.add(2, 0),
        |window| window.add(3, 0),
        |window| {
            let slot = window.try_take(2, 1, -1).unwrap();
            window.give_back(slot, 1);
        },
        |window, (), ()| {
            for now in 3..8 {
                assert!(window.net(now) <= 0, "credit without a deposit at {now}");
            }
            assert_eq!(window.net(8), 0);
        },
    );
}

#[test]
fn a_late_refund_has_no_effect() {
    race(
        |_| {},
        |window| window.add(1, 0),
        |window| {
            let slot = window.try_take(0, 1, -1).unwrap();
            window.add(1, 0);
            window.give_back(slot, 1);
        },
        |window, (), ()| {
            for now in 1..6 {
                assert!(window.net(now) <= 0, "credit without a deposit at {now}");
            }
            assert_eq!(window.net(6), 0);
        },
    );
}
