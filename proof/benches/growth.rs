//! How the cost of a call grows with headers, hosts, calls in flight and attempts.
//!
//! `cargo bench -p proof --bench growth` prints the instructions and allocations of a call at each size. It needs
//! `valgrind`. With `-- --check` it skips the largest sizes, and fails if a cost grows more than promised.

mod support;

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use reqwest_steady::{ThrottleMiddleware, ThrottleMiddlewareBuilder};
use support::cases::Case;
use support::count::{Cost, Counted, Counting, Job, costs, print_allocations};
use support::memory::Memory;
use support::stacks::{Stack, Trouble};
use support::table::{Table, ratio, whole};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM_UP: u32 = 100;
/// The most that a cost may grow. It also applies beyond the size of the host tables, where each call is to an evicted
/// host.
const LIMIT: f64 = 1.20;

/// The quantity that grows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Headers,
    ResponseHeaders,
    Hosts,
    InFlight,
    /// The same, with free memory cached for all of them.
    InFlightAtHand,
    Attempts,
}

const DIMENSIONS: [Dimension; 6] = [
    Dimension::Headers,
    Dimension::ResponseHeaders,
    Dimension::Hosts,
    Dimension::InFlight,
    Dimension::InFlightAtHand,
    Dimension::Attempts,
];

impl Dimension {
    fn name(self) -> &'static str {
        match self {
            Self::Headers => "headers of the request",
            Self::ResponseHeaders => "headers of the response",
            Self::Hosts => "hosts",
            Self::InFlight => "calls in flight",
            Self::InFlightAtHand => "calls in flight, memory at hand",
            Self::Attempts => "attempts",
        }
    }

    fn sizes(self, quick: bool) -> &'static [u32] {
        match self {
            Self::Headers | Self::ResponseHeaders if quick => &[4, 32, 64],
            Self::Headers | Self::ResponseHeaders => &[4, 8, 16, 32, 64],
            Self::Hosts if quick => &[1, 10_000],
            Self::Hosts => &[1, 100, 1_000, 10_000, 100_000],
            Self::InFlight | Self::InFlightAtHand if quick => &[1, 100, 5_000],
            Self::InFlight | Self::InFlightAtHand => &[1, 100, 10_000, 100_000],
            Self::Attempts if quick => &[1, 10, 200],
            Self::Attempts => &[1, 10, 100, 1_000],
        }
    }

    fn stacks(self, quick: bool) -> &'static [Stack] {
        use Stack::{Bare, Everything, ReqwestRetry, Retry, Throttled};
        match self {
            Self::Attempts => &[ReqwestRetry, Retry, Throttled],
            Self::InFlight | Self::InFlightAtHand => &[Bare, Retry, Throttled, Everything],
            _ if quick => &[Bare, Retry, Throttled, Everything],
            _ => &[Bare, ReqwestRetry, Retry, Throttled, Everything],
        }
    }

    /// Returns the number of calls to count.
    fn calls(self, size: u32) -> u32 {
        match self {
            Self::Headers | Self::ResponseHeaders => 200,
            // The size of the tables, so that rare work is included.
            Self::Hosts => 4_096,
            Self::InFlight | Self::InFlightAtHand => size.max(1_000),
            Self::Attempts => (200 / size).max(2),
        }
    }

    /// Returns the growth. 1 is ideal.
    fn growth(self, sizes: &[u32], costs: &[Cost]) -> f64 {
        let instructions: Vec<f64> = costs.iter().map(|cost| cost.instructions).collect();
        let allocations: Vec<f64> = costs.iter().map(|cost| cost.allocations).collect();
        match self {
            Self::Headers | Self::ResponseHeaders => bend(sizes, &instructions),
            Self::Hosts | Self::InFlight | Self::InFlightAtHand => spread(&instructions),
            // No attempt costs more than earlier ones, in memory too.
            Self::Attempts => bend(sizes, &instructions).max(bend(sizes, &allocations)),
        }
    }
}

fn run(dimension: Dimension, stack: Stack, size: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let calls = dimension.calls(size);
    runtime.block_on(async {
        match dimension {
            Dimension::Headers => headers(stack, size, 4, calls).await,
            Dimension::ResponseHeaders => headers(stack, 4, size, calls).await,
            Dimension::Hosts => hosts(stack, size, calls).await,
            Dimension::InFlight | Dimension::InFlightAtHand => {
                in_flight(stack, size, calls).await;
            }
            Dimension::Attempts => attempts(stack, size, calls).await,
        }
    });
    print_allocations();
}

async fn headers(stack: Stack, sent: u32, received: u32, calls: u32) {
    let server = Memory {
        headers: shuffled_headers(received),
        ..Memory::default()
    };
    let client = stack.client(Trouble::None, Some(server));
    let headers = shuffled_headers(sent);
    for number in 0..WARM_UP + calls {
        let request = client.get("http://localhost:8080/v1/orders");
        let request = request.headers(headers.clone());
        let call = pin!(async { assert_eq!(request.send().await.unwrap().status(), 200) });
        match number < WARM_UP {
            true => call.await,
            false => Counted(call).await,
        }
    }
}

/// Returns headers without a meaning for middlewares, in a fixed order that is not sorted. Sorted names would be cheaper
/// to sort than what users send.
fn shuffled_headers(count: u32) -> HeaderMap {
    assert!(count <= 64, "a name would repeat");
    let value = HeaderValue::from_static("a value of some length");
    (0..count)
        .map(|number| (number * 37 + 11) % 64)
        .map(|number| HeaderName::try_from(format!("x-plain-{number:02}")).unwrap())
        .map(|name| (name, value.clone()))
        .collect()
}

/// Calls one host after another, in rotation.
async fn hosts(stack: Stack, hosts: u32, calls: u32) {
    let client = stack.client(Trouble::None, Some(Memory::default()));
    let urls: Vec<Url> = (0..hosts)
        .map(|host| format!("http://host-{host:06}.example.com/v1/orders"))
        .map(|url| url.parse().unwrap())
        .collect();
    let mut urls = urls.iter().cycle();
    let warm_up = hosts.max(WARM_UP);
    for number in 0..warm_up + calls {
        let url = urls.next().expect("an endless iterator").clone();
        let call = pin!(async { assert_eq!(client.get(url).send().await.unwrap().status(), 200) });
        match number < warm_up {
            true => call.await,
            false => Counted(call).await,
        }
    }
}

/// Runs rounds of calls that wait for their responses at the same time.
///
/// The first round does not count, because fresh memory is cheaper to allocate. Each call has a different URL, so that
/// none is coalesced.
async fn in_flight(stack: Stack, size: u32, calls: u32) {
    let server = Memory {
        waits: true,
        ..Memory::default()
    };
    let waiting = server.waiting.clone();
    let client = stack.client_with(roomy_throttle(), Trouble::None, Some(server));
    for round in 0..=calls / size {
        let call = |number| {
            let request = client.get(format!("http://localhost:8080/v1/orders/{number:06}"));
            let call = async { assert_eq!(request.send().await.unwrap().status(), 200) };
            match round {
                0 => tokio::spawn(Box::pin(call)),
                _ => tokio::spawn(Counted(Box::pin(call))),
            }
        };
        let calls: Vec<_> = (0..size).map(call).collect();
        for call in calls {
            call.await.unwrap();
        }
    }
    assert_eq!(waiting.most.load(Ordering::Relaxed), size);
}

/// Builds a throttle in which no call waits. `waiting.rs` measures waiting.
///
/// It is not adaptive. An adaptive throttle opens step by step, and closes after hundreds of failures in a row.
fn roomy_throttle() -> ThrottleMiddlewareBuilder {
    ThrottleMiddleware::builder()
        .max_in_flight(1_000_000)
        .adaptive(false)
        .max_queue_wait(Duration::from_secs(1))
}

/// Makes calls that succeed only in their last attempt.
async fn attempts(stack: Stack, attempts: u32, calls: u32) {
    let server = Memory::default();
    let failures = server.failures.clone();
    let client = stack.client_with(roomy_throttle(), Trouble::Retries(1_000), Some(server));
    for _ in 0..calls {
        failures.store(attempts - 1, Ordering::Relaxed);
        let request = Case::Get.request(stack, &client, "http://localhost:8080/v1/orders");
        let call = async { assert_eq!(request.send().await.unwrap().status(), 200) };
        Counted(pin!(call)).await;
        assert_eq!(failures.load(Ordering::Relaxed), 0);
    }
}

/// Returns the largest cost divided by the smallest.
fn spread(costs: &[f64]) -> f64 {
    let most = costs.iter().copied().fold(f64::MIN, f64::max);
    most / costs.iter().copied().fold(f64::MAX, f64::min)
}

/// Returns the cost per unit between the last two sizes, relative to the cost per unit before.
fn bend(sizes: &[u32], costs: &[f64]) -> f64 {
    let each =
        |from: usize, to: usize| (costs[to] - costs[from]) / f64::from(sizes[to] - sizes[from]);
    let last = sizes.len() - 1;
    each(last - 1, last) / each(0, last - 1)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let named = |name: &str| DIMENSIONS.into_iter().find(|it| it.name() == name);
    if let ["--run", dimension, stack, size] = args[..] {
        let dimension = named(dimension).expect("a dimension");
        return run(
            dimension,
            Stack::named(stack),
            size.parse().expect("a size"),
        );
    }
    let check = args.contains(&"--check");
    let mut broken = Vec::new();
    for dimension in DIMENSIONS {
        if args.iter().any(|arg| named(arg).is_some()) && !args.contains(&dimension.name()) {
            continue;
        }
        broken.extend(measure(dimension, check));
    }
    if check && !broken.is_empty() {
        panic!("grows more than promised: {}", broken.join("; "));
    }
}

/// Prints a table, and returns what exceeds the limit.
fn measure(dimension: Dimension, quick: bool) -> Vec<String> {
    let (stacks, sizes) = (dimension.stacks(quick), dimension.sizes(quick));
    let mut jobs = Vec::new();
    for stack in stacks {
        for size in sizes {
            let args = [dimension.name(), stack.name(), &size.to_string()];
            let job = Job::new(&args, dimension.calls(*size));
            jobs.push(match dimension {
                Dimension::InFlightAtHand => job.with_memory_at_hand(),
                _ => job,
            });
        }
    }
    let costs = costs(&jobs);
    let mut broken = Vec::new();
    let names: Vec<String> = sizes.iter().map(|size| whole(f64::from(*size))).collect();
    let heading = [dimension.name()].into_iter();
    let heading = heading.chain(names.iter().map(String::as_str));
    let mut table = Table::new(heading.chain(["allocations", "grows"]));
    for (stack, costs) in stacks.iter().zip(costs.chunks(sizes.len())) {
        let grown = dimension.growth(sizes, costs);
        let own = !matches!(stack, Stack::Bare | Stack::ReqwestRetry);
        if own && grown > LIMIT {
            broken.push(format!(
                "{}, {}: {grown:.3}",
                dimension.name(),
                stack.name()
            ));
        }
        let [least, most] = [0, sizes.len() - 1].map(|place| whole(costs[place].allocations));
        let mut row = vec![stack.name().to_owned()];
        row.extend(costs.iter().map(|cost| whole(cost.instructions)));
        row.push(match least == most {
            true => most,
            false => format!("{least} to {most}"),
        });
        row.push(ratio(grown));
        table.row(row);
    }
    println!("{table}");
    broken
}
