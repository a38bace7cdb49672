//! A client in trouble, and what Prometheus sees of it.
//!
//! `cargo run -p proof --example metrics`

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use futures_util::future::{join, join_all};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::dead_letter::{DeadLetterSink, dead_letter_channel};
use reqwest_steady::observe::Metrics;
use reqwest_steady::{Backoff, Budget, RetryMiddleware, ThrottleMiddleware};
use tokio::time::{sleep, timeout};
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

const METRICS: [&str; 15] = [
    "steady_requests_total",
    "steady_retries_total",
    "steady_retry_budget_balance",
    "steady_retry_budget_exhausted_total",
    "steady_call_duration_seconds",
    "steady_attempt_duration_seconds",
    "steady_backoff_delay_seconds",
    "steady_rate_limit_header_present_total",
    "steady_inflight_requests",
    "steady_queue_depth",
    "steady_queue_age_seconds",
    "steady_rate_limiter_wait_seconds",
    "steady_throttle_pace_requests_per_second",
    "steady_throttle_pause_seconds",
    "steady_dead_letters_total",
];

/// From a short backoff to the longest wait that a throttle allows by default.
const SECONDS: [f64; 9] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0];

/// `/flaky` fails twice, `/limited` wants a pause, `/slow` takes its time, and `/down` is down.
async fn start_server() -> MockServer {
    let server = MockServer::start().await;
    let limited = ResponseTemplate::new(429)
        .insert_header("retry-after-ms", "300")
        .insert_header("x-ratelimit-remaining", "0");
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_millis(250));
    for (route, answer, times) in [
        ("/flaky", ResponseTemplate::new(503), 2),
        ("/flaky", ResponseTemplate::new(200), u64::MAX),
        ("/limited", limited, 1),
        ("/limited", ResponseTemplate::new(200), u64::MAX),
        ("/slow", slow, u64::MAX),
        ("/down", ResponseTemplate::new(503), u64::MAX),
    ] {
        let answers = Mock::given(path(route)).respond_with(answer);
        answers.up_to_n_times(times).mount(&server).await;
    }
    server
}

/// The exporter cannot say which port it was given, so one is looked for before.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Three retries in ten seconds, and five requests at once; the other values are as they come.
fn client(
    metrics: Arc<Metrics>,
    letters: impl DeadLetterSink,
) -> anyhow::Result<ClientWithMiddleware> {
    let retry = RetryMiddleware::builder()
        .backoff(Backoff::exponential(Duration::from_millis(100)))
        .budget(Budget::builder().min_retries_per_sec(0.3).build()?)
        .dead_letter_sink(letters)
        .dead_letter_timeout(Duration::from_millis(100))
        .observer(Arc::clone(&metrics));
    let throttle = ThrottleMiddleware::builder()
        .max_in_flight(5)
        .observer(metrics);
    Ok(ClientBuilder::new(reqwest::Client::new())
        .with(retry.build()?)
        .with(throttle.build()?)
        .build())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // First the recorder, then what counts.
    let exporter = free_address()?;
    PrometheusBuilder::new()
        .with_http_listener(exporter)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .install()?;
    // One letter finds room here, and a second does not.
    let (letters, _unread) = dead_letter_channel(1);
    let client = client(Arc::new(Metrics::new()), letters)?;

    let server = start_server().await;
    let get = |route: &str| client.get(format!("{}{route}", server.uri())).send();
    get("/flaky").await?;
    get("/limited").await?;
    for _ in 0..2 {
        get("/down").await?; // the budget pays for one more retry, and then for none
    }
    // This caller has no patience.
    let _ = timeout(Duration::from_millis(50), get("/slow")).await;
    join_all((0..10).map(|_| get("/slow"))).await;

    // Some are under way and some wait while Prometheus looks.
    let busy = join_all((0..10).map(|_| get("/slow")));
    let scrape = async {
        sleep(Duration::from_millis(100)).await;
        let url = format!("http://{exporter}/metrics");
        reqwest::get(url).await?.error_for_status()?.text().await
    };
    let (_, scrape) = join(busy, scrape).await;
    let scrape = scrape?;

    println!("{scrape}");
    for name in METRICS {
        for line in [
            format!("# HELP {name} "),
            format!("# TYPE {name} "),
            format!("\n{name}"),
        ] {
            ensure!(scrape.contains(&line), "{line:?} is missing");
        }
    }
    Ok(())
}
