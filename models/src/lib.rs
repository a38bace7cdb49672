//! Every order in which threads can meet in the budget's window, and in the counters of an allowance
//! (`allowance.rs`), tried out by loom.
//!
//! Both are the very files that the crate is built from, on loom's atomics; the window has three slots.
//! `models/run` then breaks them in the ways that are easy to get wrong, and expects each to fail
//! here: a model that passes them would prove nothing.

#![cfg(test)]

mod sync {
    pub(super) use loom::sync::Mutex;
    pub(super) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
}

mod allowance;
#[path = "../../src/admit/retries_left.rs"]
mod retries_left;

#[path = "../../src/admit/budget/window.rs"]
mod window;

use loom::sync::Arc;
use loom::thread;

/// Slot n is open from n to n + 1, and its entries are gone when slot n + 3 opens.
type Window = window::SlidingWindow<3>;

/// Two threads at once, in every placement: loom does not see all orders from every one of them.
fn race<A: Send + 'static, B: Send + 'static>(
    begin: fn(&Window),
    one: fn(&Window) -> A,
    other: fn(&Window) -> B,
    check: fn(&Window, A, B),
) {
    for placement in 0..3 {
        loom::model(move || {
            let window = Arc::new(Window::new(1));
            begin(&window);
            let (first, second) = (window.clone(), window.clone());
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
            check(&window, a, b);
        });
    }
}

#[test]
fn credit_that_has_expired_is_taken_by_nobody() {
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
fn one_credit_is_taken_once() {
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
fn a_debit_that_has_expired_is_back_for_whoever_sees_the_new_slot() {
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
            // The first has expired, the second lives for one slot more.
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
        // With a clock that is a little behind.
        |window| window.add(2, 1000),
        |window, (), ()| {
            assert_eq!(window.net(3), 1110);
            // It was added before the slot closed or after.
            let last = window.net(5);
            assert!(last == 100 || last == 1100, "{last}");
            assert_eq!(window.net(6), 0);
        },
    );
}

#[test]
fn what_is_given_back_is_no_credit_later() {
    race(
        |window| window.add(2, 0),
        |window| window.add(3, 0),
        |window| {
            let slot = window.try_take(2, 1, -1).unwrap();
            window.give_back(slot, 1);
        },
        |window, (), ()| {
            for now in 3..8 {
                assert!(window.net(now) <= 0, "credit out of nothing at {now}");
            }
            assert_eq!(window.net(8), 0);
        },
    );
}

#[test]
fn what_is_given_back_late_is_as_if_it_had_never_been() {
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
                assert!(window.net(now) <= 0, "credit out of nothing at {now}");
            }
            assert_eq!(window.net(6), 0);
        },
    );
}
