//! The cost of a call with limits that a fleet shares, while the worker holds a lease.
//!
//! `cargo bench -p proof --bench fleet` compares a retry and a throttle with a local rate and in a fleet. It prints
//! instructions, time, and polls per call. It counts instructions with `valgrind`. Rounds of both alternate in one run,
//! and the median counts. With `-- --check` it only counts instructions. It fails if there are more than promised, or if
//! a call needs more than one poll.

mod support;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::{RetryMiddleware, ThrottleMiddleware};
use support::cases::Case;
use support::count::{Counted, Counting, Job, costs, print_allocations};
use support::stacks::Stack;
use support::table::{Table, whole};
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CALLS: u32 = 2000;
const ROUNDS: usize = 101;
/// The calls between two yields. Yields let the tasks run that query the store.
const AT_A_STRETCH: u32 = 50;
/// The time until a worker knows its demand and renews leases early enough.
const WARM_UP: Duration = Duration::from_millis(1500);
/// The most instructions that sharing may add to a call. A microsecond has some thousands.
const PROMISE: f64 = 700.0;
const URL: &str = "http://localhost:8080/v1/orders?page=7";

const ALONE: &str = "local rate";
const FLEET: &str = "fleet rate, lease held";

fn client(stack: &str) -> ClientWithMiddleware {
    // More than these calls need.
    let mut throttle = ThrottleMiddleware::builder().rate(1_000_000.0, 1_000_000);
    let mut retry = RetryMiddleware::builder();
    if stack == FLEET {
        let fleet = FleetLimits::in_memory();
        retry = retry.fleet(fleet.clone());
        throttle = throttle.fleet(fleet);
    }
    let client = reqwest::Client::builder().no_proxy().build();
    ClientBuilder::new(client.expect("valid client settings"))
        .with(retry.build().unwrap())
        .with(throttle.build().unwrap())
        .with(Case::Get.server())
        .build()
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

async fn call(client: &ClientWithMiddleware) {
    let response = Case::Get
        .request(Stack::Throttled, client, URL)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), Case::Get.status());
}

#[allow(clippy::disallowed_methods)]
async fn warm_up(client: &ClientWithMiddleware) {
    let started = Instant::now();
    while started.elapsed() < WARM_UP {
        call(client).await;
        tokio::task::yield_now().await;
    }
}

static POLLS: AtomicU64 = AtomicU64::new(0);

/// A future that counts its polls, but not their cost.
struct Polled<F>(F);

impl<F: Future + Unpin> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        POLLS.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll(context)
    }
}

/// Runs under valgrind, which counts.
fn run(stack: &str) {
    let client = client(stack);
    runtime().block_on(async {
        warm_up(&client).await;
        for number in 0..CALLS {
            if number % AT_A_STRETCH == 0 {
                tokio::task::yield_now().await;
            }
            Polled(Counted(pin!(call(&client)))).await;
        }
    });
    let polls = POLLS.load(Ordering::Relaxed);
    assert_eq!(
        polls,
        u64::from(CALLS),
        "some calls needed more than one poll"
    );
    print_allocations();
}

/// Returns the nanoseconds per call (median of all rounds) and the polls per call.
#[allow(clippy::disallowed_methods)]
fn timed() -> [(f64, f64); 2] {
    let clients = [ALONE, FLEET].map(client);
    let mut times = [Vec::new(), Vec::new()];
    let mut polls = [0; 2];
    runtime().block_on(async {
        for client in &clients {
            warm_up(client).await;
        }
        // The first two rounds do not count, because each client went idle while the other warmed up.
        for round in 0..ROUNDS + 2 {
            for (place, client) in clients.iter().enumerate() {
                let before = POLLS.load(Ordering::Relaxed);
                let mut time = Duration::ZERO;
                for _ in 0..CALLS / AT_A_STRETCH {
                    tokio::task::yield_now().await;
                    let started = Instant::now();
                    for _ in 0..AT_A_STRETCH {
                        Polled(pin!(call(client))).await;
                    }
                    time += started.elapsed();
                }
                if round >= 2 {
                    times[place].push(time.as_secs_f64() * 1e9 / f64::from(CALLS));
                    polls[place] += POLLS.load(Ordering::Relaxed) - before;
                }
            }
        }
    });
    [0, 1].map(|place| {
        times[place].sort_by(f64::total_cmp);
        let calls = ROUNDS as f64 * f64::from(CALLS);
        (times[place][ROUNDS / 2], polls[place] as f64 / calls)
    })
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["--run", stack] = args[..] {
        return run(stack);
    }
    let check = args.contains(&"--check");
    let counts = costs(&[ALONE, FLEET].map(|stack| Job::new(&[stack], CALLS)));
    let (alone, fleet) = (counts[0], counts[1]);
    let added = fleet.beyond(alone);
    let mut table = Table::new(["one GET with retry and throttle", ALONE, FLEET, "added"]);
    let mut add = |name: &str, [alone, fleet, added]: [String; 3]| {
        table.row([name.to_owned(), alone, fleet, added]);
    };
    let counted = [alone, fleet, added];
    add("instructions", counted.map(|it| whole(it.instructions)));
    add(
        "allocations",
        counted.map(|it| format!("{:.2}", it.allocations)),
    );
    if !check {
        let [(alone, polls_alone), (fleet, polls)] = timed();
        add("nanoseconds", [alone, fleet, fleet - alone].map(whole));
        add(
            "polls",
            [polls_alone, polls, polls - polls_alone].map(|it| format!("{it:.4}")),
        );
    }
    println!("{table}");
    assert!(
        !check || added.instructions <= PROMISE,
        "more than promised: {:.0}",
        added.instructions
    );
}
