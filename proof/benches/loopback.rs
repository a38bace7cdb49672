//! Throughput and latency over real sockets, compared with the bare client and reqwest-retry.
//!
//! `cargo bench -p proof --bench loopback` prints ratios. With `-- "GET ok"` it makes only calls of that kind.
//!
//! The server is this program with `--serve`, in another process on loopback, which ends with its parent. Machines are
//! noisy, so all stacks alternate in many short rounds. Each round is compared with the bare client in the same turn, and
//! the median counts.

// This bench measures wall-clock time.
#![allow(clippy::disallowed_methods)]

mod support;

use std::cell::Cell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use reqwest_middleware::ClientWithMiddleware;
use rustix::time::{ClockId, clock_gettime};
use support::cases::{CASES, Case};
use support::memory::Memory;
use support::stacks::{STACKS, Stack, Trouble};
use support::table::{Table, ratio};
use tokio::net::TcpListener;

/// An odd number, so that there is a median round.
const ROUNDS: usize = 121;
const CONCURRENCIES: [usize; 2] = [1, 32];

/// Returns enough calls for a round of some milliseconds.
fn calls_in_a_round(case: Case, concurrency: usize) -> usize {
    match case {
        Case::Large => 32,
        _ if concurrency == 1 => 150,
        _ => 320,
    }
}

/// Among calls that recover, one in this many fails at first. If all failed, the throttle would rightly slow them down,
/// which this bench does not measure.
const FAILS: u64 = 20;

/// The first request to a path under this prefix gets a 503.
const FLAKY: &str = "/flaky/";

fn serve() {
    // Ends with the parent, however that ends.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        std::io::stdout().flush().unwrap();
        let failed = Arc::new(Mutex::new(HashSet::new()));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let failed = failed.clone();
            let service = service_fn(move |request| respond(request, failed.clone()));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            // A connection that the client closed is no error.
            tokio::spawn(async { drop(connection.await) });
        }
    });
}

async fn respond(
    request: hyper::Request<Incoming>,
    failed: Arc<Mutex<HashSet<String>>>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    let mut response = hyper::Response::new(Full::from(r#"{"id":4711,"state":"paid"}"#));
    if path.starts_with(FLAKY) {
        let mut failed = failed.lock().unwrap();
        if !failed.remove(&path) {
            failed.insert(path);
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        }
    }
    Ok(response)
}

/// The server process, as seen by its parent.
struct Server {
    child: Child,
    /// The server ends when this is closed.
    stdin: Option<ChildStdin>,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let stdout = child.stdout.take().expect("a piped output");
        BufReader::new(stdout).read_line(&mut address).unwrap();
        Self {
            stdin: child.stdin.take(),
            child,
            address: address.trim().to_owned(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[derive(Clone, Copy, Default)]
struct Round {
    seconds: f64,
    /// The CPU time of the client. Other processes do not count.
    on_a_core: f64,
}

/// Returns the CPU time of this thread. The client uses no other thread.
fn seconds_on_a_core() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A client to measure.
type Subject = (Stack, ClientWithMiddleware);

/// The calls of one kind. Each has a different URL, so that none is coalesced.
struct Load<'a> {
    case: Case,
    concurrency: usize,
    server: &'a Server,
    /// The number of calls so far.
    number: Cell<u64>,
}

impl Load<'_> {
    /// Measures a round, and adds the latency of each call to `latencies`.
    async fn round(&self, subject: &Subject, latencies: &mut Vec<f64>) -> Round {
        let calls = calls_in_a_round(self.case, self.concurrency);
        let computed = seconds_on_a_core();
        let started = Instant::now();
        let worker = || async {
            let mut took = Vec::new();
            for _ in 0..calls / self.concurrency {
                let started = Instant::now();
                self.call(subject).await;
                took.push(started.elapsed().as_secs_f64());
            }
            took
        };
        let all = join_all((0..self.concurrency).map(|_| worker())).await;
        let round = Round {
            seconds: started.elapsed().as_secs_f64(),
            on_a_core: seconds_on_a_core() - computed,
        };
        latencies.extend(all.into_iter().flatten());
        round
    }

    async fn call(&self, (stack, client): &Subject) {
        let number = self.number.replace(self.number.get() + 1);
        let fails = self.case.trouble() != Trouble::None && number.is_multiple_of(FAILS);
        let path = if fails { FLAKY } else { "/steady/" };
        let url = format!("http://{}{path}{number}", self.server.address);
        loop {
            let response = self
                .case
                .request(*stack, client, &url)
                .send()
                .await
                .unwrap();
            let status = response.status();
            response.bytes().await.unwrap();
            if status == 200 {
                return;
            }
            // Only the bare client sees the 503. It retries at once.
            assert_eq!(status, 503);
        }
    }
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

fn measure(case: Case, concurrency: usize, server: &Server, table: &mut Table) {
    let load = Load {
        case,
        concurrency,
        server,
        number: Cell::new(0),
    };
    let subject = |stack: Stack| (stack, stack.client::<Memory>(case.trouble(), None));
    let subjects = STACKS.map(subject);
    let mut latencies: [Vec<f64>; STACKS.len()] = Default::default();
    let mut throughputs: [Vec<f64>; STACKS.len()] = Default::default();
    let mut computings: [Vec<f64>; STACKS.len()] = Default::default();
    runtime().block_on(async {
        for subject in &subjects {
            // Opens connections and gates.
            for _ in 0..3 {
                load.round(subject, &mut Vec::new()).await;
            }
        }
        for round in 0..ROUNDS {
            let mut rounds = [Round::default(); STACKS.len()];
            for turn in 0..STACKS.len() {
                let place = (round + turn) % STACKS.len();
                rounds[place] = load.round(&subjects[place], &mut latencies[place]).await;
            }
            let bare = rounds[0];
            for (place, own) in rounds.into_iter().enumerate() {
                throughputs[place].push(bare.seconds / own.seconds);
                computings[place].push(own.on_a_core / bare.on_a_core);
            }
        }
    });
    let quantiles = [0.5, 0.99, 0.999];
    let bare = quantiles.map(|share| quantile(&mut latencies[0], share));
    for (place, stack) in STACKS.iter().enumerate().skip(1) {
        let mut throughput = |share| quantile(&mut throughputs[place], share);
        let mut row = vec![
            case.name().to_owned(),
            stack.name().to_owned(),
            concurrency.to_string(),
            ratio(throughput(0.5)),
            format!("{:.2} to {:.2}", throughput(0.25), throughput(0.75)),
            ratio(quantile(&mut computings[place], 0.5)),
        ];
        for (share, bare) in quantiles.into_iter().zip(bare) {
            row.push(ratio(quantile(&mut latencies[place], share) / bare));
        }
        table.row(row);
    }
}

fn main() {
    if std::env::args().any(|arg| arg == "--serve") {
        return serve();
    }
    let server = Server::start();
    let mut table = Table::new([
        "call",
        "stack",
        "at once",
        "throughput",
        "middle half of rounds",
        "computing",
        "p50",
        "p99",
        "p99.9",
    ]);
    let wanted: Vec<Case> = CASES
        .into_iter()
        .filter(|case| std::env::args().any(|arg| arg == case.name()))
        .collect();
    for case in CASES {
        if !wanted.is_empty() && !wanted.contains(&case) {
            continue;
        }
        for concurrency in CONCURRENCIES {
            measure(case, concurrency, &server, &mut table);
        }
    }
    println!("{table}");
}
