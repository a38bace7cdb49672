//! A server that answers 503 three times and then 200, and a client that gets through to it.
//!
//! `cargo run --example quickstart`

use std::time::Duration;

use reqwest_middleware::ClientBuilder;
use reqwest_steady::observe::AttemptOutcome;
use reqwest_steady::{Backoff, RetryMiddleware, RetryReport};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

/// 503 three times (the second time with a wish of its own), then 200.
async fn start_flaky_server() -> MockServer {
    let server = MockServer::start().await;
    let down = || ResponseTemplate::new(503);
    for answer in [
        down(),
        down().insert_header("retry-after-ms", "750"),
        down(),
        ResponseTemplate::new(200).set_body_string("the answer you wanted"),
    ] {
        Mock::given(method("GET"))
            .respond_with(answer)
            .up_to_n_times(1)
            .mount(&server)
            .await;
    }
    server
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = start_flaky_server().await;
    println!(
        "A server at {} answers 503 three times, then 200.\n",
        server.uri()
    );

    // This is all that a client needs; `RetryMiddleware::default()` starts from 200 ms.
    let retry = RetryMiddleware::builder()
        .backoff(Backoff::exponential(Duration::from_millis(400)))
        .build()?;
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(retry)
        .build();

    let response = client.get(server.uri()).send().await?;

    let report = RetryReport::of(&response).expect("every response carries one");
    println!("{:>10}  {:<24} then", "sent after", "answer");
    let attempts: Vec<_> = report.attempts().collect();
    for (index, attempt) in attempts.iter().enumerate() {
        let answer = match attempt.outcome() {
            AttemptOutcome::Status(status) => status.to_string(),
            AttemptOutcome::Failure(kind) => format!("no answer: {kind}"),
        };
        let then = match (attempts.get(index + 1), attempt.hint()) {
            (None, _) => format!("the call ends: {}", report.stop_reason()),
            (Some(next), Some(hint)) => format!(
                "waits {} ms: the server asked for {}, and a bit by chance",
                next.waited().as_millis(),
                hint.as_millis()
            ),
            (Some(next), None) => format!(
                "waits {} ms, drawn from 0 to {}",
                next.waited().as_millis(),
                400 << index
            ),
        };
        println!(
            "{:>7} ms  {answer:<24} {then}",
            attempt.sent_at().as_millis()
        );
    }

    println!(
        "\n{} retries, waited {} ms in all, and got \"{}\".",
        report.retries(),
        report.waited().as_millis(),
        response.text().await?
    );
    Ok(())
}
