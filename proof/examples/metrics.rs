//! A client calls a server in trouble. This prints what its metrics say: a summary, then the scrape for Prometheus.
//!
//! `cargo run -p proof --example metrics`

#[path = "../../examples/support/print.rs"]
mod print;

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use futures_util::future::{join, join_all};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use print::{bold, count, dim, green, time, verdict};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::dead_letter::{DeadLetterSink, dead_letter_channel};
use reqwest_steady::observe::Metrics;
use reqwest_steady::{
    Backoff, Budget, ClientBuilderExt, RetryMiddleware, Steady, ThrottleMiddleware,
};
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

/// From a short backoff to the longest wait in a throttle's queue by default.
const SECONDS: [f64; 9] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Install the recorder before the client, because metrics register when they are created.
    let exporter = free_address()?;
    PrometheusBuilder::new()
        .with_http_listener(exporter)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .install()?;
    // The channel has room for one dead letter. The second one times out.
    let (letters, _unread) = dead_letter_channel(1);
    let client = client(letters)?;

    let server = start_server().await;
    let get = |route: &str| client.get(format!("{}{route}", server.uri())).send();
    get("/flaky").await?;
    get("/limited").await?;
    for _ in 0..2 {
        get("/down").await?; // the budget pays for one more retry, then it is empty
    }
    // This caller drops its call after 50 ms.
    let _ = timeout(Duration::from_millis(50), get("/slow")).await;
    join_all((0..10).map(|_| get("/slow"))).await;

    // During the scrape, some requests are in flight and some are queued.
    let busy = join_all((0..10).map(|_| get("/slow")));
    let scrape = async {
        sleep(Duration::from_millis(100)).await;
        let url = format!("http://{exporter}/metrics");
        reqwest::get(url).await?.error_for_status()?.text().await
    };
    let (_, scrape) = join(busy, scrape).await;
    let scrape = scrape?;

    summarize(&Samples::parse(&scrape));
    println!("\n{}\n\n{scrape}", bold("The scrape for Prometheus:"));
    check(&scrape)?;
    println!(
        "{}",
        green(format!(
            "All {} metrics are in the scrape, with help and type.",
            METRICS.len()
        ))
    );
    Ok(())
}

/// Allows three retries in ten seconds and five requests at once.
fn client(letters: impl DeadLetterSink) -> anyhow::Result<ClientWithMiddleware> {
    let retry = RetryMiddleware::builder()
        .backoff(Backoff::exponential(Duration::from_millis(100)))
        .budget(Budget::builder().min_retries_per_sec(0.3).build()?)
        .dead_letter_sink(letters)
        .dead_letter_timeout(Duration::from_millis(100));
    let throttle = ThrottleMiddleware::builder().max_in_flight(5);
    let steady = Steady::builder()
        .attempt_timeout(Duration::from_secs(10))
        .deadline(Duration::from_secs(60))
        .retry(retry)
        .throttle(throttle)
        .observer(Arc::new(Metrics::new()))
        .build()?;
    Ok(ClientBuilder::new(reqwest::Client::new())
        .with_steady(steady)
        .build())
}

/// Starts a server: `/flaky` fails twice, `/limited` asks for a pause, `/slow` takes 250 ms, and `/down` always fails.
async fn start_server() -> MockServer {
    let server = MockServer::start().await;
    let limited = ResponseTemplate::new(429)
        .insert_header("retry-after-ms", "300")
        .insert_header("x-ratelimit-remaining", "0");
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_millis(250));
    for (route, response, times) in [
        ("/flaky", ResponseTemplate::new(503), 2),
        ("/flaky", ResponseTemplate::new(200), u64::MAX),
        ("/limited", limited, 1),
        ("/limited", ResponseTemplate::new(200), u64::MAX),
        ("/slow", slow, u64::MAX),
        ("/down", ResponseTemplate::new(503), u64::MAX),
    ] {
        let responses = Mock::given(path(route)).respond_with(response);
        responses.up_to_n_times(times).mount(&server).await;
    }
    server
}

/// The exporter does not tell its port, so the port is chosen before.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Prints what the metrics say, with units.
fn summarize(samples: &Samples) {
    let calls = samples.total("steady_requests_total");
    println!(
        "{}\n",
        bold(format!(
            "A client has made {} to a server in trouble. Its metrics say:",
            count(calls, "call")
        ))
    );
    let succeeded = samples.with("steady_requests_total", "outcome=\"succeeded\"");
    let retries = samples.total("steady_retries_total");
    let unsent = samples.total("steady_retry_budget_exhausted_total");
    let letters = samples.total("steady_dead_letters_total");
    let delivered = samples.with("steady_dead_letters_total", "outcome=\"delivered\"");
    let headers = samples.total("steady_rate_limit_header_present_total");
    let row = |name: &str, value: &dyn Display, details: &str| {
        println!("{name:<18} {value:<24} {}", dim(details));
    };
    let waits = |name: &str, metric: &str| {
        let waits = samples.total(&format!("{metric}_count"));
        let sum = Duration::from_secs_f64(samples.value(&format!("{metric}_sum")));
        let mean = sum.div_f64(waits.max(1) as f64);
        let details = format!("{}, {} in all", count(waits, "wait"), time(sum));
        row(name, &format!("{} on average", time(mean)), &details);
    };

    row(
        "calls",
        &verdict(
            succeeded == calls,
            format!("{succeeded} of {calls} succeeded"),
        ),
        &samples.by_label("steady_requests_total", "outcome"),
    );
    row(
        "retries",
        &format!("{retries} sent"),
        &samples.by_label("steady_retries_total", "reason"),
    );
    let balance = samples.value("steady_retry_budget_balance");
    row(
        "retry budget",
        &verdict(unsent == 0, format!("{unsent} retries not sent")),
        &format!("{balance:.1} available now"),
    );
    waits("waits for retries", "steady_backoff_delay_seconds");
    waits("waits in queue", "steady_rate_limiter_wait_seconds");
    let in_flight = samples.total("steady_inflight_requests");
    let queued = samples.total("steady_queue_depth");
    row(
        "at the scrape",
        &format!("{} in flight", count(in_flight, "request")),
        &format!("{} in the queue", count(queued, "attempt")),
    );
    row(
        "limit headers",
        &format!("{headers} seen"),
        &samples.by_label("steady_rate_limit_header_present_total", "kind"),
    );
    row(
        "dead letters",
        &verdict(
            delivered == letters,
            format!("{delivered} of {letters} delivered"),
        ),
        &samples.by_label("steady_dead_letters_total", "outcome"),
    );
}

/// The samples of a scrape: the name, the labels and the value of each.
struct Samples<'a>(Vec<(&'a str, &'a str, f64)>);

impl<'a> Samples<'a> {
    fn parse(scrape: &'a str) -> Self {
        let lines = scrape.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| {
            let (name_and_labels, value) = line.rsplit_once(' ')?;
            let (name, labels) = name_and_labels.split_once('{')?;
            Some((name, labels.trim_end_matches('}'), value.parse().ok()?))
        });
        Self(samples.collect())
    }

    fn named(&self, name: &str) -> impl Iterator<Item = (&'a str, f64)> {
        let samples = self.0.iter().filter(move |sample| sample.0 == name);
        samples.map(|(_, labels, value)| (*labels, *value))
    }

    fn value(&self, name: &str) -> f64 {
        self.named(name).map(|(_, value)| value).sum()
    }

    fn total(&self, name: &str) -> usize {
        self.value(name) as usize
    }

    fn with(&self, name: &str, label: &str) -> usize {
        let samples = self
            .named(name)
            .filter(|(labels, _)| labels.contains(label));
        samples.map(|(_, value)| value as usize).sum()
    }

    /// Returns all values above zero, such as "succeeded: 12, abandoned: 1".
    fn by_label(&self, name: &str, label: &str) -> String {
        let start = format!("{label}=\"");
        let mut samples: Vec<_> = self.named(name).filter(|(_, value)| *value > 0.0).collect();
        samples.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let parts = samples.into_iter().filter_map(|(labels, value)| {
            let (_, label) = labels.split_once(&start)?;
            Some(format!("{}: {value}", label.split('"').next()?))
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Fails if a metric, its help or its type is missing.
fn check(scrape: &str) -> anyhow::Result<()> {
    for name in METRICS {
        for line in [
            format!("# HELP {name} "),
            format!("# TYPE {name} "),
            format!("\n{name}"),
        ] {
            ensure!(scrape.contains(&line), "{line:?} is missing in the scrape");
        }
    }
    Ok(())
}
