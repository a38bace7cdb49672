//! What Prometheus reads, and what a call pays for being counted.
//!
//! A program of its own: there is one recorder for all threads, and one allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use openmetrics_parser::prometheus::parse_prometheus;
use reqwest::{Body, Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use reqwest_steady::observe::Metrics;
use reqwest_steady::{
    Backoff, Budget, RetryMiddleware, RetryMiddlewareBuilder, ThrottleMiddleware,
};

/// The system's allocator, which counts for each thread how often it is asked.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers by what the path says: `/503` with 503, `/slow` with 200 after 100 ms.
struct Server;

#[async_trait::async_trait]
impl Middleware for Server {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let path = request.url().path();
        if path == "/slow" {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let response = http::Response::builder()
            .status(path[1..].parse().unwrap_or(200))
            .header("x-ratelimit-limit", "100");
        Ok(response.body(Body::from("")).unwrap().into())
    }
}

async fn get(client: &ClientWithMiddleware, path: &str) -> Option<u16> {
    let url = format!("http://api.example.com/{path}");
    let response = client.get(url).send().await.ok()?;
    Some(response.status().as_u16())
}

/// Every metric has something to count.
async fn make_trouble() {
    let metrics = Arc::new(Metrics::new());
    let budget = Budget::builder().min_retries_per_sec(0.1).retry_ratio(0.1);
    let retry = RetryMiddleware::builder()
        .backoff(Backoff::exponential(Duration::from_millis(1)))
        .budget(budget.build().unwrap())
        .observer(Arc::clone(&metrics));
    let throttle = ThrottleMiddleware::builder()
        .max_in_flight(1)
        .adaptive(false)
        .observer(Arc::clone(&metrics));
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(retry.build().unwrap())
        .with(throttle.build().unwrap())
        .with(Server)
        .build();
    assert_eq!(get(&client, "503").await, Some(503));
    let both = tokio::join!(get(&client, "slow"), get(&client, "slow"));
    assert_eq!(both, (Some(200), Some(200)));
    // A refusal makes another throttle pause, and then it keeps to a pace.
    let adaptive = ThrottleMiddleware::builder().observer(metrics);
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(adaptive.build().unwrap())
        .with(Server)
        .build();
    assert_eq!(get(&client, "429").await, Some(429));
    assert_eq!(get(&client, "200").await, Some(200));
}

#[tokio::test]
async fn a_strict_parser_accepts_the_scrape_and_finds_all_metrics_in_it() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let exporter: SocketAddr = free.local_addr().unwrap();
    drop(free);
    PrometheusBuilder::new()
        .with_http_listener(exporter)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &[0.01, 0.1, 1.0])
        .unwrap()
        .install()
        .unwrap();
    make_trouble().await;

    let scrape = reqwest::get(format!("http://{exporter}/metrics")).await;
    let text = scrape.unwrap().error_for_status().unwrap();
    let text = text.text().await.unwrap();

    let mut exposition = parse_prometheus(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for (name, kind) in [
        ("steady_requests_total", "counter"),
        ("steady_retries_total", "counter"),
        ("steady_retry_budget_balance", "gauge"),
        ("steady_retry_budget_exhausted_total", "counter"),
        ("steady_call_duration_seconds", "histogram"),
        ("steady_attempt_duration_seconds", "histogram"),
        ("steady_backoff_delay_seconds", "histogram"),
        ("steady_rate_limit_header_present_total", "counter"),
        ("steady_inflight_requests", "gauge"),
        ("steady_queue_depth", "gauge"),
        ("steady_queue_age_seconds", "gauge"),
        ("steady_rate_limiter_wait_seconds", "histogram"),
        ("steady_throttle_pace_requests_per_second", "gauge"),
        ("steady_throttle_pause_seconds", "gauge"),
        ("steady_dead_letters_total", "counter"),
    ] {
        let family = exposition.families.remove(name);
        let family = family.unwrap_or_else(|| panic!("no {name} in\n{text}"));
        assert_eq!(family.family_type.to_string(), kind, "{name}");
        assert!(!family.help.is_empty(), "{name} is not described");
        assert!(family.get_label_names().contains(&"host".to_owned()));
        assert!(family.iter_samples().count() > 0, "{name} has no value");
        assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1);
        assert_eq!(text.matches(&format!("# HELP {name} ")).count(), 1);
    }
    let others: Vec<_> = exposition.families.keys().collect();
    assert!(others.is_empty(), "{others:?} are in no list");
    for line in [
        r#"steady_requests_total{host="api.example.com",outcome="budget_empty"} 1"#,
        r#"steady_requests_total{host="api.example.com",outcome="succeeded"} 2"#,
        r#"steady_rate_limit_header_present_total{host="api.example.com",kind="x_ratelimit"} 4"#,
        r#"steady_rate_limiter_wait_seconds_count{host="api.example.com"} 2"#,
        r#"steady_call_duration_seconds_count{host="api.example.com"} 3"#,
        r#"steady_attempt_duration_seconds_count{host="api.example.com"} 4"#,
        r#"steady_throttle_pace_requests_per_second{host="api.example.com"} 20"#,
    ] {
        assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
    }
}

#[test]
fn a_parser_that_accepts_anything_would_not_do() {
    let sound = "# TYPE a_total counter\na_total{b=\"c\"} 1\n";
    assert!(parse_prometheus(sound).is_ok());
    for broken in [
        "# TYPE a_total counter\na_total{b=\"c} 1\n",
        "# TYPE a_total counter\na_total{b=\"c\"} one\n",
        "# TYPE a_total counter\na_total{b=\"c\",b=\"d\"} 1\n",
        "# TYPE a_total counter\na_total{b=\"c\"} 1\na_total{b=\"c\"} 2\n",
        "# TYPE a-total counter\na-total 1\n",
        "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_sum 1\na_count 2\n",
    ] {
        assert!(parse_prometheus(broken).is_err(), "{broken}");
    }
}

#[test]
fn a_call_that_succeeds_at_once_costs_no_allocation_to_count() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _local = metrics::set_default_local_recorder(&recorder);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let allocations_of = |retry: RetryMiddlewareBuilder| {
        let client = ClientBuilder::new(reqwest::Client::new())
            .with(retry.build().unwrap())
            .with(Server)
            .build();
        runtime.block_on(async {
            // The first call makes what is kept.
            assert_eq!(get(&client, "200").await, Some(200));
            let before = ALLOCATIONS.get();
            for _ in 0..100 {
                assert_eq!(get(&client, "200").await, Some(200));
            }
            ALLOCATIONS.get() - before
        })
    };

    // Events have a price of their own, so what looks on and does nothing is what to compare with.
    let looked_on = allocations_of(RetryMiddleware::builder().observe_fn(|_| {}));
    let counted = allocations_of(RetryMiddleware::builder().observer(Arc::new(Metrics::new())));

    assert!(looked_on > 0);
    // Counting itself allocates nothing. The recorder keeps the samples of two histograms in blocks of 64 or more.
    let blocks = 2 * 100_u64.div_ceil(64);
    assert!(counted - looked_on <= blocks, "{counted}, {looked_on}");
    let requests = r#"steady_requests_total{host="api.example.com",outcome="succeeded"} 101"#;
    assert!(recorder.handle().render().contains(requests));
}
