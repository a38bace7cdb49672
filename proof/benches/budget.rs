//! The cost of a deposit and a withdrawal, compared with tower's `TpsBudget`, on one thread and on two.
//!
//! `cargo bench -p proof --bench budget` prints instructions and time. It counts instructions with `valgrind`. Rounds of
//! both alternate in one run, and the median counts, because machines are noisy. With `-- --check` it only counts
//! instructions, and fails if there are more than tower's.

mod support;

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use reqwest_steady::{Budget, Deposit};
use support::count::{Counting, Job, costs, counted, print_allocations};
use support::table::{Table, ratio};
use tower::retry::budget::{Budget as _, TpsBudget};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 101;
const OPERATIONS: u32 = 20_000;

/// Returns the time of one operation while this many threads do nothing else.
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

fn tower() -> impl Fn() + Sync {
    let budget = TpsBudget::new(Duration::from_secs(10), 10, 0.2);
    move || {
        budget.deposit();
        black_box(budget.withdraw());
    }
}

fn steady() -> impl Fn() + Sync {
    let budget = Budget::builder()
        .retry_ratio(0.2)
        .min_retries_per_sec(10.0)
        .deposit_on(Deposit::Request)
        .build()
        .unwrap();
    move || {
        budget.deposit();
        black_box(budget.try_withdraw());
    }
}

fn run(operation: impl Fn()) {
    (0..OPERATIONS).for_each(|_| operation());
    counted(|| (0..OPERATIONS).for_each(|_| operation()));
    print_allocations();
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["--run", "tower"] => return run(tower()),
        ["--run", "steady"] => return run(steady()),
        _ => {}
    }
    let check = args.contains(&"--check");
    let mut table = Table::new(["deposit and withdrawal", "tower", "reqwest-steady", "ratio"]);
    let mut add = |name: String, peer: f64, own: f64| {
        let numbers = [peer, own].map(|number| format!("{number:.1}"));
        let [peer_text, own_text] = numbers;
        table.row([name, peer_text, own_text, ratio(own / peer)]);
    };
    let jobs = ["tower", "steady"].map(|name| Job::new(&[name], OPERATIONS));
    let counts = costs(&jobs);
    let [peer, own] = [0, 1].map(|place: usize| counts[place].instructions);
    add("instructions".to_owned(), peer, own);
    for threads in [1, 2] {
        if check {
            break;
        }
        let (in_tower, in_steady) = (tower(), steady());
        let (mut peer, mut own) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            peer.push(round(threads, &in_tower));
            own.push(round(threads, &in_steady));
        }
        let name = format!("nanoseconds, threads at once: {threads}");
        add(name, median(peer), median(own));
    }
    println!("{table}");
    assert!(
        !check || own <= peer,
        "more instructions than tower: {own:.0} instead of {peer:.0}"
    );
}
