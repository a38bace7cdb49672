//! A real server that throttles: nginx with `limit_req`, which refuses what comes too fast and says
//! nothing about when to come again.
//!
//! Without nginx these tests are skipped, and say so; with `STEADY_REQUIRE_NGINX` set they fail.

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

/// At 200 a second the calls take three seconds. This keeps a test that went wrong from hanging.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

/// How often to start it, if others take its port.
const TRIES: usize = 5;

/// Set where nginx is known to be there, so that these tests cannot be skipped unnoticed.
const REQUIRE: &str = "STEADY_REQUIRE_NGINX";

/// Past the capture of the test harness, which would hide it: numbers that nobody sees, and a test
/// that did not run, are worth nothing.
fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "nginx: {line}");
}

/// One process, which ends when this is dropped, and a directory, which is removed.
struct Nginx {
    process: Child,
    directory: Directory,
    port: u16,
}

impl Nginx {
    /// `None` if there is no nginx here.
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
        // From here on, another process may take the port. Then nginx gives up, and is tried again.
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
                    "{REQUIRE} is set, but there is no `nginx` in PATH"
                );
                None
            }
        }
    }

    /// `false` if it has ended instead.
    async fn listens(&mut self) -> bool {
        // It is written once the port is open. To knock at the port instead might be to knock at
        // somebody else's.
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

    /// How often it answered with each status. It writes this down after it has answered, so there
    /// may be something to wait for.
    async fn answers(&self, expected: usize) -> BTreeMap<u16, usize> {
        let written = async {
            loop {
                let log = self.read("answers");
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
        // It may be gone already, and a panic in here would hide the first one.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What its only site does.
#[derive(Clone, Copy)]
struct Site {
    /// Added to `listen`.
    protocol: &'static str,
    /// How many requests a connection takes.
    keepalive_requests: u32,
    /// Whom it refuses.
    limit: &'static str,
}

impl Site {
    /// Connections over HTTP/1.1 that last.
    const fn limited(limit: &'static str) -> Self {
        Self {
            protocol: "",
            keepalive_requests: 100_000,
            limit,
        }
    }

    /// HTTP/2, with a GOAWAY after so many requests.
    const fn leaving_after(keepalive_requests: u32) -> Self {
        Self {
            protocol: "http2",
            keepalive_requests,
            limit: "",
        }
    }
}

/// A single process: killed, it leaves no worker behind; and started by root, it stays what it is.
///
/// `return` in the limited location would answer before the limit is looked at, so the answer comes
/// from a second one.
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
        access_log answers status;
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

/// What came of [`CALLS`] calls.
struct Outcome {
    succeeded: usize,
    answers: BTreeMap<u16, usize>,
    took: Duration,
}

impl Outcome {
    fn requests(&self) -> usize {
        self.answers.values().sum()
    }

    fn requests_per_success(&self) -> f64 {
        self.requests() as f64 / self.succeeded as f64
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {CALLS} calls succeeded, {:.3} requests for each success {:?}, {:.1} s",
            self.succeeded,
            self.requests_per_success(),
            self.answers,
            self.took.as_secs_f64(),
        )
    }
}

/// All calls at once, each with an idempotency key. `None` if there is no nginx here.
async fn calls(name: &str, limit: &'static str, client: ClientWithMiddleware) -> Option<Outcome> {
    let Some(nginx) = Nginx::start(Site::limited(limit)).await else {
        say(format_args!("{name}: skipped, no `nginx` in PATH"));
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
            let succeeded = result.is_ok_and(|answer| answer.status() == 200);
            (succeeded, slot.get().unwrap())
        });
    }
    let ended = timeout(LONG_ENOUGH, under_way.join_all()).await;
    let ended = ended.expect("should end within seconds");
    let took = begun.elapsed();
    let attempts = ended.iter().flat_map(|(_, report)| report.attempts());
    let answered = attempts
        .filter(|attempt| matches!(attempt.outcome(), AttemptOutcome::Status(_)))
        .count();
    let outcome = Outcome {
        succeeded: ended.iter().filter(|(succeeded, _)| *succeeded).count(),
        answers: nginx.answers(answered).await,
        took,
    };
    say(format_args!("{name}: {outcome}"));
    // Each report tells of every request, and nothing else repeats any.
    assert_eq!(outcome.requests(), answered);
    assert_eq!(outcome.answers.get(&200), Some(&outcome.succeeded));
    Some(outcome)
}

const REFUSES_WITH_429: &str = "limit_req zone=one burst=10 nodelay; limit_req_status 429;";
const DELAYS_THEN_REFUSES: &str = "limit_req zone=one burst=10; limit_req_status 429;";
/// What it does unless told otherwise.
const REFUSES_WITH_503: &str = "limit_req zone=one burst=10 nodelay;";

/// All get through, at the price of a few requests more. It was 1.02 requests for each success on a
/// quiet machine; the limit leaves room for one that is not.
async fn lets_all_through(name: &str, limit: &'static str) {
    let Some(outcome) = calls(name, limit, with_throttle()).await else {
        return;
    };
    assert_eq!(outcome.succeeded, CALLS);
    assert!(outcome.requests_per_success() <= 1.3, "{outcome}");
}

#[tokio::test]
async fn through_the_throttle_all_calls_pass_a_server_that_refuses_with_429() {
    lets_all_through("429, with the throttle", REFUSES_WITH_429).await;
}

#[tokio::test]
async fn through_the_throttle_all_calls_pass_a_server_that_delays_before_it_refuses() {
    lets_all_through("delays and 429, with the throttle", DELAYS_THEN_REFUSES).await;
}

#[tokio::test]
async fn through_the_throttle_nearly_all_calls_pass_a_server_that_refuses_with_503() {
    let name = "503, with the throttle";
    let Some(outcome) = calls(name, REFUSES_WITH_503, with_throttle()).await else {
        return;
    };
    // A 503 may mean anything, so it takes several to show that there are too many requests, and
    // each retry is paid from the budget. A call that finds it empty fails.
    assert!(outcome.succeeded >= CALLS * 9 / 10, "{outcome}");
    assert!(outcome.requests_per_success() <= 1.3, "{outcome}");
}

/// What the throttle is worth: its own numbers are printed by the tests above. How many calls come
/// through here depends on how fast they are made, so only the books are checked.
// Elsewhere a process may not have 500 connections, which all of its tests have to share.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_retry_alone_reports_every_request_that_the_server_answered() {
    calls("429, retry alone", REFUSES_WITH_429, retry_alone()).await;
}

/// A connection that nginx ends with a GOAWAY after seven requests leaves many unprocessed. Those cost no budget.
async fn gets_on_short_lived_connections(name: &str, add: fn(ClientBuilder) -> ClientBuilder) {
    const GETS: usize = 5000;
    const AT_ONCE: usize = 100;
    let Some(nginx) = Nginx::start(Site::leaving_after(7)).await else {
        say(format_args!("{name}: skipped, no `nginx` in PATH"));
        return;
    };
    let inner = direct().http2_prior_knowledge().build().unwrap();
    let client = add(ClientBuilder::new(inner)).build();
    let gets = (0..GETS).map(|_| {
        let slot = ReportSlot::new();
        let get = client.get(nginx.url()).report_to(&slot);
        async move {
            let succeeded = get.send().await.is_ok_and(|answer| answer.status() == 200);
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
        "{name}: {succeeded} of {GETS} gets succeeded, {retries} retries"
    ));
    assert_eq!(succeeded, GETS, "{stops:?}");
    assert!(
        retries > 0,
        "nothing was left unprocessed, so nothing was shown"
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
