//! A server fails three times and then succeeds. The client retries until it has the response.
//!
//! `cargo run --example quickstart`

#[path = "support/print.rs"]
mod print;

use std::time::Duration;

use anyhow::{Context, ensure};
use print::{bold, dim, green, red, time};
use reqwest_middleware::ClientBuilder;
use reqwest_steady::observe::AttemptReport;
use reqwest_steady::{Backoff, ClientBuilderExt, RetryReport, Steady};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // This is all that a client needs.
    let steady = Steady::builder()
        .attempt_timeout(Duration::from_secs(10)) // a silent server would block the call forever
        .deadline(Duration::from_secs(60)) // for all attempts together
        .build()?;
    let client = ClientBuilder::new(reqwest::Client::new())
        .with_steady(steady)
        .build();

    let server = start_flaky_server().await;
    println!(
        "{}\n",
        bold("A server fails three times, then succeeds. The client makes one call.")
    );
    let response = client.get(server.uri()).send().await?;

    // Every response says what it took to get it.
    let report = RetryReport::of(&response).context("the response carries no report")?;
    show(report);
    println!("{report}");
    ensure!(response.status() == 200 && report.retries() == 3);
    println!(
        "{}",
        green("The call succeeded. Without retries, it would have failed with 503.")
    );
    Ok(())
}

/// Returns 503 three times, then 200. With the second 503, the server asks for a wait of 750 ms.
async fn start_flaky_server() -> MockServer {
    let server = MockServer::start().await;
    for response in [
        ResponseTemplate::new(503),
        ResponseTemplate::new(503).insert_header("retry-after-ms", "750"),
        ResponseTemplate::new(503),
        ResponseTemplate::new(200),
    ] {
        let once = Mock::given(method("GET")).respond_with(response);
        once.up_to_n_times(1).mount(&server).await;
    }
    server
}

/// Prints one line per attempt.
fn show(report: &RetryReport) {
    println!(
        "{}",
        dim("attempt   sent after   response   what the client does next")
    );
    let attempts: Vec<_> = report.attempts().collect();
    for (index, attempt) in attempts.iter().enumerate() {
        let sent = attempt.sent_at().as_millis();
        print!("{:>7} {sent:>9} ms   ", index + 1);
        match attempts.get(index + 1) {
            Some(next) => println!(
                "{:<8}   waits {:>4} ms  {}",
                red(attempt.outcome()),
                next.waited().as_millis(),
                dim(why(attempt, index))
            ),
            None => println!("{:<8}   returns the response", green(attempt.outcome())),
        }
    }
    println!();
}

/// Says why the client waits after an attempt.
fn why(attempt: &AttemptReport, index: usize) -> String {
    match attempt.hint() {
        Some(hint) => format!("the server asked for {}; jitter adds to it", time(hint)),
        None => {
            let most = Backoff::default().ceiling(index as u32);
            format!("backoff: a random time of at most {}", time(most))
        }
    }
}
