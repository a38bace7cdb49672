//! Deposit and withdraw beside tower's `TpsBudget`, on one thread and on two.
//!
//! `cargo bench --bench budget` prints nanoseconds for one deposit and one withdrawal. Rounds of both
//! take turns in one run, and the median counts, for machines are noisy.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use reqwest_steady::{Budget, Deposit};
use tower::retry::budget::{Budget as _, TpsBudget};

const ROUNDS: usize = 101;
const OPERATIONS: u32 = 20_000;

/// The time that one operation takes, if so many threads do nothing else.
#[allow(clippy::disallowed_methods)]
fn round(threads: usize, operation: &(impl Fn() + Sync)) -> f64 {
    let start = Barrier::new(threads);
    let work = || {
        start.wait();
        let started = Instant::now();
        for _ in 0..OPERATIONS {
            operation();
        }
        started.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS)
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let here = work();
        let all = others.into_iter().map(|thread| thread.join().unwrap());
        all.fold(here, f64::max)
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let tower = TpsBudget::new(Duration::from_secs(10), 10, 0.2);
    let steady = Budget::builder()
        .retry_ratio(0.2)
        .min_retries_per_sec(10.0)
        .deposit_on(Deposit::Request)
        .build()
        .unwrap();
    let in_tower = || {
        tower.deposit();
        black_box(tower.withdraw());
    };
    let in_steady = || {
        steady.deposit();
        black_box(steady.try_withdraw());
    };

    println!("one deposit and one withdrawal, nanoseconds (median of {ROUNDS} rounds):");
    println!(
        "{:<8} {:>12} {:>16} {:>7}",
        "threads", "tower", "reqwest-steady", "ratio"
    );
    for threads in [1, 2] {
        let (mut peer, mut own) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            peer.push(round(threads, &in_tower));
            own.push(round(threads, &in_steady));
        }
        let (peer, own) = (median(peer), median(own));
        println!("{threads:<8} {peer:>12.1} {own:>16.1} {:>7.2}", own / peer);
    }
}
