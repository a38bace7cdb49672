//! 200 writes start at once, but the server accepts only 20 per 100 ms. Three clients try to get them through.
//!
//! `cargo run --example burst`

// The server limits requests by the clock.
#![allow(clippy::disallowed_methods)]

#[path = "support/print.rs"]
mod print;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::join_all;
use print::{bold, dim, green, time, verdict};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::{
    ClientBuilderExt, IdempotencyKey, RequestBuilderExt, RetryMiddleware, Steady,
};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

const WRITES: usize = 200;
const WINDOW: Duration = Duration::from_millis(100);
const PER_WINDOW: u32 = 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let plain = ClientBuilder::new(reqwest::Client::new()).build();
    let retry_only = ClientBuilder::new(reqwest::Client::new())
        .with(RetryMiddleware::default())
        .build();
    let steady = Steady::builder()
        .attempt_timeout(Duration::from_secs(10))
        .deadline(Duration::from_secs(60))
        .build()?;
    let client = ClientBuilder::new(reqwest::Client::new())
        .with_steady(steady)
        .build();

    println!(
        "{}\n",
        bold(format!(
            "{WRITES} writes start at once. The server accepts {PER_WINDOW} per {} and refuses the rest.",
            time(WINDOW)
        ))
    );
    println!(
        "{}",
        dim("client                     succeeded   requests sent   refused     took")
    );
    write_all("no retry", &plain).await?;
    write_all("retry only", &retry_only).await?;
    let written = write_all("Steady: retry + throttle", &client).await?;

    ensure!(written == WRITES, "only {written} of {WRITES} writes");
    println!(
        "\n{}",
        green(
            "With the throttle every write succeeds, because calls wait until the server has room."
        )
    );
    Ok(())
}

/// Sends all writes at once to a new server, and prints one line about them. Returns how many succeeded.
async fn write_all(name: &str, client: &ClientWithMiddleware) -> anyhow::Result<usize> {
    let server = MockServer::start().await;
    let limited = Limited::default();
    let responses = Mock::given(method("POST")).respond_with(limited.clone());
    responses.mount(&server).await;

    let started = Instant::now();
    let writes = (0..WRITES).map(|index| {
        let write = client
            .post(server.uri())
            .idempotency_key(IdempotencyKey::random())
            .body(format!("write {index}"));
        async move { matches!(write.send().await, Ok(response) if response.status() == 201) }
    });
    let results = join_all(writes).await;
    let took = started.elapsed();

    let written = results.into_iter().filter(|done| *done).count();
    let counts = limited.0.lock().unwrap();
    println!(
        "{name:<24} {:>11} {:>15} {:>9} {:>8}",
        verdict(written == WRITES, format!("{written} of {WRITES}")),
        counts.accepted + counts.refused,
        counts.refused,
        time(took),
    );
    let accepted = counts.accepted;
    ensure!(
        accepted == written,
        "{accepted} were accepted, but {written} succeeded"
    );
    Ok(written)
}

/// Accepts 20 requests per 100 ms, refuses the others with 429, and counts both.
#[derive(Clone, Default)]
struct Limited(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    window: Option<Instant>,
    in_window: u32,
    accepted: usize,
    refused: usize,
}

impl Respond for Limited {
    fn respond(&self, _: &Request) -> ResponseTemplate {
        let mut counts = self.0.lock().unwrap();
        let now = Instant::now();
        if counts.window.is_none_or(|began| now - began >= WINDOW) {
            counts.window = Some(now);
            counts.in_window = 0;
        }
        if counts.in_window == PER_WINDOW {
            counts.refused += 1;
            return ResponseTemplate::new(429);
        }
        counts.in_window += 1;
        counts.accepted += 1;
        ResponseTemplate::new(201)
    }
}
