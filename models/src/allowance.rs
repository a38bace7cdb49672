//! Models of the retry counters that nested scopes share.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::retries_left::{put_back, take};

/// Two calls with their own counters, inside a scope inside an outer scope.
struct Layers {
    own: [AtomicU32; 2],
    scope: AtomicU32,
    outer: AtomicU32,
}

impl Layers {
    /// Returns the counters of one call, the innermost first.
    fn of(&self, call: usize) -> impl Iterator<Item = &AtomicU32> + Clone {
        [&self.own[call], &self.scope, &self.outer].into_iter()
    }

    fn left(&self) -> [u32; 4] {
        let [one, other] = &self.own;
        [one, other, &self.scope, &self.outer].map(|left| left.load(Ordering::Relaxed))
    }
}

/// Runs both calls at once, in each placement on threads, because one placement does not reach all orders.
///
/// `left` has the initial counts of both calls, the scope and the outer scope.
fn race<T: Send + 'static>(
    left: [u32; 4],
    draw: fn(&Layers, usize) -> T,
    check: fn([u32; 4], [T; 2]),
) {
    for placement in 0..3 {
        loom::model(move || {
            let layers = Arc::new(Layers {
                own: [AtomicU32::new(left[0]), AtomicU32::new(left[1])],
                scope: AtomicU32::new(left[2]),
                outer: AtomicU32::new(left[3]),
            });
            let spawn = |call| {
                let layers = layers.clone();
                thread::spawn(move || draw(&layers, call))
            };
            let taken = match placement {
                0 => {
                    let one = spawn(0);
                    let other = draw(&layers, 1);
                    [one.join().unwrap(), other]
                }
                1 => {
                    let other = spawn(1);
                    let one = draw(&layers, 0);
                    [one, other.join().unwrap()]
                }
                _ => {
                    let (one, other) = (spawn(0), spawn(1));
                    [one.join().unwrap(), other.join().unwrap()]
                }
            };
            check(layers.left(), taken);
        });
    }
}

#[test]
fn one_call_gets_the_last_retry_and_the_other_loses_none() {
    race(
        [1, 1, 1, 5],
        |layers, call| take(layers.of(call)),
        |left, taken| match taken {
            [true, false] => assert_eq!(left, [0, 1, 0, 4]),
            [false, true] => assert_eq!(left, [1, 0, 0, 4]),
            both => panic!("{both:?}"),
        },
    );
}

#[test]
fn a_refusal_of_the_outer_scope_refunds_the_inner_one() {
    race(
        [1, 1, 2, 1],
        |layers, call| take(layers.of(call)),
        |left, taken| match taken {
            [true, false] => assert_eq!(left, [0, 1, 1, 0]),
            [false, true] => assert_eq!(left, [1, 0, 1, 0]),
            both => panic!("{both:?}"),
        },
    );
}

#[test]
fn a_refund_returns_exactly_what_was_taken() {
    race(
        [1, 1, 1, 2],
        |layers, call| {
            let taken = take(layers.of(call));
            if taken {
                put_back(layers.of(call));
            }
            taken
        },
        |left, taken| {
            assert!(taken[0] || taken[1]);
            assert_eq!(left, [1, 1, 1, 2]);
        },
    );
}

#[test]
fn a_refused_call_may_block_another_but_loses_no_retry() {
    race(
        [1, 0, 1, 1],
        |layers, call| {
            // The second call takes from the scope first, and has no retries left.
            let counters = layers.of(call).collect::<Vec<_>>();
            match call {
                0 => take(counters.into_iter()),
                _ => take(counters.into_iter().rev()),
            }
        },
        |left, taken| match taken {
            [true, false] => assert_eq!(left, [0, 0, 0, 0]),
            [false, false] => assert_eq!(left, [1, 0, 1, 1]),
            wrong => panic!("{wrong:?}"),
        },
    );
}
