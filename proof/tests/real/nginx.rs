//! A real server that throttles: nginx with `limit_req`, which refuses requests without `Retry-After`.
//!
//! Without nginx, these tests print that they are skipped. With `STEADY_REQUIRE_NGINX` set, they fail.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::StreamExt;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::observe::AttemptOutcome;
use reqwest_steady::{ReportSlot, RequestBuilderExt, RetryMiddleware, ThrottleMiddleware};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::directory::Directory;
use crate::support::raw::{direct, in_time};

const CALLS: usize = 500;

/// At 200 per second, the calls take 3 s. This timeout ends a test that hangs.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

/// The number of starts if another process takes the port.
const TRIES: usize = 5;

/// Set this variable where nginx is installed, so that no test is skipped unnoticed.
const REQUIRE: &str = "STEADY_REQUIRE_NGINX";

/// Prints to stderr directly, because the test harness would capture figures and skipped tests.
fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "nginx: {line}");
}

/// A process and its directory. Drop ends the process and removes the directory.
struct Nginx {
    process: Child,
    directory: Directory,
    port: u16,
}

impl Nginx {
    /// Starts nginx, or returns `None` if it is not installed.
    async fn start(site: Site) -> Option<Self> {
        for _ in 0..TRIES {
            let mut nginx = Self::spawn(site)?;
            if in_time(nginx.listens()).await {
                return Some(nginx);
            }
            say(format_args!("did not start:\n{}", nginx.read("errors")));
        }
        panic!("nginx did not start, {TRIES} times");
    }

    fn spawn(site: Site) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // From here on, another process may take the port. Then nginx ends and is started again.
        drop(listener);
        let directory = Directory::new();
        fs::write(directory.file("nginx.conf"), config(site, port)).unwrap();
        let errors = File::create(directory.file("errors")).unwrap();
        let started = Command::new("nginx")
            .arg("-p")
            .arg(directory.path())
            .args(["-c", "nginx.conf"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn();
        match started {
            Ok(process) => Some(Self {
                process,
                directory,
                port,
            }),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
                assert!(
                    env::var_os(REQUIRE).is_none(),
                    "{REQUIRE} is set, but `nginx` is not in PATH"
                );
                None
            }
        }
    }

    /// Waits until nginx listens. Returns `false` if the process ends instead.
    async fn listens(&mut self) -> bool {
        // nginx writes the file once the port is open. A connection to the port could reach another process.
        while !self.directory.file("pid").exists() {
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
        true
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/orders", self.port)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.directory.file(file)).unwrap_or_default()
    }

    /// Counts the responses by status. Waits for `expected` lines, because nginx logs after it responds.
    async fn statuses(&self, expected: usize) -> BTreeMap<u16, usize> {
        let written = async {
            loop {
                let log = self.read("statuses");
                if log.lines().count() >= expected && log.ends_with('\n') {
                    return log;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let mut counts = BTreeMap::new();
        for status in in_time(written).await.lines() {
            *counts.entry(status.parse().unwrap()).or_default() += 1;
        }
        counts
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The process may have ended already. A panic here would hide the first one.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The settings of the only site.
#[derive(Clone, Copy)]
struct Site {
    /// Added to `listen`.
    protocol: &'static str,
    /// The number of requests per connection.
    keepalive_requests: u32,
    /// The limit.
    limit: &'static str,
}

impl Site {
    /// HTTP/1.1 with persistent connections.
    const fn limited(limit: &'static str) -> Self {
        Self {
            protocol: "",
            keepalive_requests: 100_000,
            limit,
        }
    }

    /// HTTP/2, with a GOAWAY after this many requests.
    const fn leaving_after(keepalive_requests: u32) -> Self {
        Self {
            protocol: "http2",
            keepalive_requests,
            limit: "",
        }
    }
}

/// A single process, so that a kill leaves no worker behind. Started by root, it keeps its user.
///
/// A second location responds, because `return` in the limited location would respond before the limit applies.
fn config(site: Site, port: u16) -> String {
    let Site {
        protocol,
        keepalive_requests,
        limit,
    } = site;
    format!(
        r#"
daemon off;
master_process off;
pid pid;
error_log stderr warn;
events {{ worker_connections 2048; }}
http {{
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    log_format status $status;
    limit_req_zone $binary_remote_addr zone=one:1m rate=200r/s;
    limit_req_log_level info;
    server {{
        listen 127.0.0.1:{port} {protocol};
        keepalive_requests {keepalive_requests};
        access_log statuses status;
        location / {{
            {limit}
            try_files /nothing @accepted;
        }}
        location @accepted {{ return 200 accepted; }}
    }}
}}
"#
    )
}

#[cfg(target_os = "linux")]
fn retry_alone() -> ClientWithMiddleware {
    ClientBuilder::new(direct().build().unwrap())
        .with(RetryMiddleware::default())
        .build()
}

fn with_throttle() -> ClientWithMiddleware {
    ClientBuilder::new(direct().build().unwrap())
        .with(RetryMiddleware::default())
        .with(ThrottleMiddleware::default())
        .build()
}

/// The outcome of [`CALLS`] calls.
struct Outcome {
    succeeded: usize,
    statuses: BTreeMap<u16, usize>,
    took: Duration,
}

impl Outcome {
    fn requests(&self) -> usize {
        self.statuses.values().sum()
    }

    fn requests_per_success(&self) -> f64 {
        self.requests() as f64 / self.succeeded as f64
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {CALLS} calls succeeded, {:.3} requests per success {:?}, {:.1} s",
            self.succeeded,
            self.requests_per_success(),
            self.statuses,
            self.took.as_secs_f64(),
        )
    }
}

/// Makes all calls at once, each with an idempotency key. Returns `None` if nginx is not installed.
async fn calls(name: &str, limit: &'static str, client: ClientWithMiddleware) -> Option<Outcome> {
    let Some(nginx) = Nginx::start(Site::limited(limit)).await else {
        say(format_args!("{name}: skipped, `nginx` is not in PATH"));
        return None;
    };
    let begun = tokio::time::Instant::now();
    let mut under_way = JoinSet::new();
    for index in 0..CALLS {
        let slot = ReportSlot::new();
        let post = client.post(nginx.url()).body("order");
        let post = post.idempotency_key(format!("order-{index}"));
        let post = post.report_to(&slot);
        under_way.spawn(async move {
            let result = post.send().await;
            let succeeded = result.is_ok_and(|response| response.status() == 200);
            (succeeded, slot.get().unwrap())
        });
    }
    let ended = timeout(LONG_ENOUGH, under_way.join_all()).await;
    let ended = ended.expect("calls that end within seconds");
    let took = begun.elapsed();
    let attempts = ended.iter().flat_map(|(_, report)| report.attempts());
    let responses = attempts
        .filter(|attempt| matches!(attempt.outcome(), AttemptOutcome::Status(_)))
        .count();
    let outcome = Outcome {
        succeeded: ended.iter().filter(|(succeeded, _)| *succeeded).count(),
        statuses: nginx.statuses(responses).await,
        took,
    };
    say(format_args!("{name}: {outcome}"));
    // The reports contain every request, so nothing else has retried.
    assert_eq!(outcome.requests(), responses);
    assert_eq!(outcome.statuses.get(&200), Some(&outcome.succeeded));
    Some(outcome)
}

const REFUSES_WITH_429: &str = "limit_req zone=one burst=10 nodelay; limit_req_status 429;";
const DELAYS_THEN_REFUSES: &str = "limit_req zone=one burst=10; limit_req_status 429;";
/// The default status of nginx.
const REFUSES_WITH_503: &str = "limit_req zone=one burst=10 nodelay;";

/// Checks that all calls succeed with few extra requests.
///
/// An idle machine needs 1.02 requests per success. The limit leaves room for a busy one.
async fn all_succeed(name: &str, limit: &'static str) {
    let Some(outcome) = calls(name, limit, with_throttle()).await else {
        return;
    };
    assert_eq!(outcome.succeeded, CALLS);
    assert!(outcome.requests_per_success() <= 1.3, "{outcome}");
}

#[tokio::test]
async fn with_the_throttle_all_calls_succeed_despite_429s() {
    all_succeed("429, with the throttle", REFUSES_WITH_429).await;
}

#[tokio::test]
async fn with_the_throttle_all_calls_succeed_despite_delays() {
    all_succeed("delays and 429, with the throttle", DELAYS_THEN_REFUSES).await;
}

#[tokio::test]
async fn with_the_throttle_nearly_all_calls_succeed_despite_503s() {
    let name = "503, with the throttle";
    let Some(outcome) = calls(name, REFUSES_WITH_503, with_throttle()).await else {
        return;
    };
    // A 503 has many causes, so the throttle needs several to recognize a limit. Each retry is paid from the budget. A
    // call fails if the budget is empty.
    assert!(outcome.succeeded >= CALLS * 9 / 10, "{outcome}");
    assert!(outcome.requests_per_success() <= 1.3, "{outcome}");
}

/// Prints the figures without a throttle, for comparison with the tests above.
///
/// How many calls succeed depends on their speed, so the test only compares reports and server log.
// Elsewhere, a process may not be allowed 500 connections, which all of its tests share.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_retry_alone_reports_every_response_of_the_server() {
    calls("429, retry alone", REFUSES_WITH_429, retry_alone()).await;
}

/// Makes GETs on connections that nginx ends with a GOAWAY after seven requests. Unprocessed requests cost no budget.
async fn gets_on_short_lived_connections(name: &str, add: fn(ClientBuilder) -> ClientBuilder) {
    const GETS: usize = 5000;
    const AT_ONCE: usize = 100;
    let Some(nginx) = Nginx::start(Site::leaving_after(7)).await else {
        say(format_args!("{name}: skipped, `nginx` is not in PATH"));
        return;
    };
    let inner = direct().http2_prior_knowledge().build().unwrap();
    let client = add(ClientBuilder::new(inner)).build();
    let gets = (0..GETS).map(|_| {
        let slot = ReportSlot::new();
        let get = client.get(nginx.url()).report_to(&slot);
        async move {
            let succeeded = get
                .send()
                .await
                .is_ok_and(|response| response.status() == 200);
            (succeeded, slot.get().unwrap())
        }
    });
    let gets = futures_util::stream::iter(gets).buffer_unordered(AT_ONCE);
    let ended: Vec<_> = timeout(LONG_ENOUGH, gets.collect()).await.unwrap();
    let succeeded = ended.iter().filter(|(succeeded, _)| *succeeded).count();
    let retries: u32 = ended.iter().map(|(_, report)| report.retries()).sum();
    let stops = ended.iter().filter(|(succeeded, _)| !succeeded);
    let stops: Vec<_> = stops.map(|(_, report)| report).take(3).collect();
    say(format_args!(
        "{name}: {succeeded} of {GETS} GETs succeeded, {retries} retries"
    ));
    assert_eq!(succeeded, GETS, "{stops:?}");
    assert!(
        retries > 0,
        "all requests were processed, so the test shows nothing"
    );
}

#[tokio::test]
async fn requests_that_were_not_processed_cost_no_budget() {
    gets_on_short_lived_connections("GOAWAY, retry alone", |builder| {
        builder.with(RetryMiddleware::default())
    })
    .await;
}

#[tokio::test]
async fn requests_that_were_not_processed_close_no_throttle() {
    gets_on_short_lived_connections("GOAWAY, with the throttle", |builder| {
        let builder = builder.with(RetryMiddleware::default());
        builder.with(ThrottleMiddleware::default())
    })
    .await;
}
