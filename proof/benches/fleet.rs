//! What a call costs that shares its limits with others, and holds a lease.
//!
//! `cargo bench -p proof --bench fleet` prints what a retry and a throttle with a rate take for a call, alone
//! and in a fleet: in instructions, for which it needs `valgrind`, in time, and how often the call was polled. Rounds of
//! both take turns in one run, and the median counts. With `-- --check` it only counts instructions, and fails if they
//! are more than promised, or if a call was not over at its first poll.

mod support;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::{RetryMiddleware, ThrottleMiddleware};
use support::cases::Case;
use support::count::{Counted, Counting, Job, costs, tell_allocations};
use support::stacks::Stack;
use support::table::{Table, whole};
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CALLS: u32 = 2000;
const ROUNDS: usize = 101;
/// So often, others may run: questions to the store are put by tasks of their own.
const AT_A_STRETCH: u32 = 50;
/// Until a worker knows what it needs, and leases it before it has run out.
const WARM_UP: Duration = Duration::from_millis(1500);
/// The most instructions that sharing may add to a call. A microsecond is some thousands.
const PROMISE: f64 = 700.0;
const URL: &str = "http://localhost:8080/v1/orders?page=7";

const ALONE: &str = "a rate of its own";
const FLEET: &str = "a rate in a fleet, lease held";

fn client(stack: &str) -> ClientWithMiddleware {
    // More than any of these calls need.
    let mut throttle = ThrottleMiddleware::builder().rate(1_000_000.0, 1_000_000);
    let mut retry = RetryMiddleware::builder();
    if stack == FLEET {
        let fleet = FleetLimits::in_memory();
        retry = retry.fleet(fleet.clone());
        throttle = throttle.fleet(fleet);
    }
    let client = reqwest::Client::builder().no_proxy().build();
    ClientBuilder::new(client.expect("it is the default otherwise"))
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

/// A future of which the polls are counted, and not what they do.
struct Polled<F>(F);

impl<F: Future + Unpin> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        POLLS.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll(context)
    }
}

/// Counted by valgrind.
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
    assert_eq!(polls, u64::from(CALLS), "some calls were not over at once");
    tell_allocations();
}

/// Nanoseconds a call, in the median of all rounds, and how often it was polled.
#[allow(clippy::disallowed_methods)]
fn timed() -> [(f64, f64); 2] {
    let clients = [ALONE, FLEET].map(client);
    let mut times = [Vec::new(), Vec::new()];
    let mut polls = [0; 2];
    runtime().block_on(async {
        for client in &clients {
            warm_up(client).await;
        }
        // The first two are not counted: each has waited for the other to get warm.
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
