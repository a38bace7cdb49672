//! A server that takes 20 requests in every 100 ms, and 200 writes that all want to go at once.
//!
//! `cargo run --example burst`

// A server has a clock of its own.
#![allow(clippy::disallowed_methods)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::{IdempotencyKey, RequestBuilderExt, RetryMiddleware, ThrottleMiddleware};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

const WRITES: usize = 200;
const WINDOW: Duration = Duration::from_millis(100);
const PER_WINDOW: u32 = 20;

/// Refuses what is too much, and counts both.
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

async fn write_all(name: &str, client: impl FnOnce(ClientBuilder) -> ClientBuilder) {
    let server = MockServer::start().await;
    let limited = Limited::default();
    let answers = Mock::given(method("POST")).respond_with(limited.clone());
    answers.mount(&server).await;
    let client: ClientWithMiddleware = client(ClientBuilder::new(reqwest::Client::new())).build();

    let started = Instant::now();
    let writes = (0..WRITES).map(|index| {
        let write = client
            .post(server.uri())
            .idempotency_key(IdempotencyKey::random())
            .body(format!("write {index}"));
        async move { matches!(write.send().await, Ok(response) if response.status() == 201) }
    });
    let written = join_all(writes).await.into_iter().filter(|done| *done);

    let counts = limited.0.lock().unwrap();
    println!(
        "{name:<20} {:>7} {:>8} {:>7} {:>9.1} s",
        written.count(),
        counts.accepted,
        counts.refused,
        started.elapsed().as_secs_f64(),
    );
}

#[tokio::main]
async fn main() {
    println!("{WRITES} writes at once, on a server that takes {PER_WINDOW} in every 100 ms:\n");
    println!(
        "{:<20} {:>7} {:>8} {:>7} {:>11}",
        "", "written", "accepted", "refused", "took"
    );
    write_all("no retry", |builder| builder).await;
    write_all("retry", |builder| builder.with(RetryMiddleware::default())).await;
    write_all("retry and throttle", |builder| {
        builder
            .with(RetryMiddleware::default())
            .with(ThrottleMiddleware::default())
    })
    .await;
    println!(
        "\nOne refusal teaches all others: the rest waits until there is room, and goes through."
    );
}
