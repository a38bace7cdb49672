//! The cost of waiting in a throttle.
//!
//! `cargo bench -p proof --bench waiting` prints the bytes of a call that waits in a throttle, up to 100,000 at once. It
//! compares them with a call that waits for its response in the bare client. It also prints the bytes that a million hosts
//! take. With `valgrind` it counts the instructions of a call that waited among few and among many. They should be equal.
//!
//! The allocator counts bytes, and the clock is paused, so the results do not depend on the machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use reqwest_steady::{RequestBuilderExt, RetryMiddleware, ThrottleMiddleware};

/// The system's allocator, which counts the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all work is done by the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A server that responds after a millisecond, or never.
struct Server {
    responds: bool,
}

#[async_trait::async_trait]
impl Middleware for Server {
    async fn handle(
        &self,
        _: Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        if !self.responds {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(Response::from(http::Response::new("ok")))
    }
}

fn client(throttled: bool, responds: bool) -> ClientWithMiddleware {
    let mut builder = ClientBuilder::new(reqwest::Client::new());
    if throttled {
        let throttle = ThrottleMiddleware::builder()
            .max_in_flight(8)
            .max_queue(1_000_000)
            .max_queue_wait(Duration::from_secs(24 * 60 * 60));
        builder = builder
            .with(RetryMiddleware::default())
            .with(throttle.build().unwrap());
    }
    builder.with(Server { responds }).build()
}

fn in_virtual_time<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(future)
}

async fn call(client: ClientWithMiddleware) {
    let url = "http://localhost:8080/v1/orders?page=7";
    // With a key, so that a copy is kept for a retry.
    let request = client.post(url).idempotency_key("order-4711");
    let response = request.body("x".repeat(100)).send().await;
    assert_eq!(response.unwrap().status(), 200);
}

/// Returns the bytes per call of this many calls that wait forever.
fn waiting(calls: usize, throttled: bool) -> usize {
    in_virtual_time(async {
        let client = client(throttled, false);
        let before = IN_USE.load(Ordering::Relaxed);
        let tasks: Vec<_> = (0..calls)
            .map(|_| tokio::spawn(call(client.clone())))
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(tasks.iter().all(|task| !task.is_finished()));
        (IN_USE.load(Ordering::Relaxed) - before) / calls
    })
}

/// Returns the bytes in use after one call to each of this many hosts.
fn after_hosts(hosts: usize) -> usize {
    in_virtual_time(async {
        let client = client(true, true);
        let before = IN_USE.load(Ordering::Relaxed);
        for host in 0..hosts {
            let url = format!("http://host-{host}.example.com/");
            client.get(url).send().await.unwrap();
        }
        IN_USE.load(Ordering::Relaxed).saturating_sub(before)
    })
}

fn drain(calls: usize) {
    in_virtual_time(async {
        let client = client(true, true);
        let tasks = (0..calls).map(|_| tokio::spawn(call(client.clone())));
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
}

fn instructions(calls: usize) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--drain", &calls.to_string()])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let (_, number) = stderr.split_once("Collected : ")?;
    number.split_whitespace().next()?.parse().ok()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, calls] = &args[..] {
        assert_eq!(flag, "--drain");
        return drain(calls.parse().expect("a number of calls"));
    }

    println!(
        "{:>10} {:>12} {:>12} {:>12}",
        "waiting", "bare bytes", "here", "more"
    );
    for calls in [1_000, 10_000, 100_000] {
        let [bare, throttled] = [false, true].map(|throttled| waiting(calls, throttled));
        println!(
            "{calls:>10} {bare:>12} {throttled:>12} {:>12}",
            throttled - bare
        );
    }
    for hosts in [1_000, 10_000, 1_000_000] {
        println!(
            "{hosts:>10} hosts called once: {} KiB kept",
            after_hosts(hosts) / 1024
        );
    }
    let counts = [0, 500, 5_000, 50_000].map(instructions);
    if let [Some(none), Some(few), Some(more), Some(many)] = counts {
        let each = [(few, 500.0), (more, 5_000.0), (many, 50_000.0)];
        let [few, more, many] = each.map(|(count, calls)| (count - none) / calls);
        println!("instructions per call, by the number of calls at once:");
        println!("500: {few:.0}, 5,000: {more:.0}, 50,000: {many:.0}");
    } else {
        println!("valgrind is not installed: instructions are not counted");
    }
}
