//! The metrics of a call, value by value.
//!
//! Each test has a separate recorder for its thread, and runs on that thread only.

use std::sync::Arc;
use std::time::Duration;

use metrics::set_default_local_recorder;
use metrics_exporter_prometheus::PrometheusBuilder;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use reqwest_steady::dead_letter::dead_letter_channel;
use reqwest_steady::observe::Metrics;
use reqwest_steady::{
    Backoff, Budget, Jitter, RequestBuilderExt, RetryMiddleware, RetryMiddlewareBuilder,
    RetryReport, ThrottleMiddleware,
};
use tokio::time::timeout;

use crate::support::scripted::{Reply, Server, URL, call, late, respond, respond_with, throttled};

const SECOND: Duration = Duration::from_secs(1);

/// Waits of 200 ms, 400 ms and so on.
fn retry() -> RetryMiddlewareBuilder {
    let backoff = Backoff::exponential(Duration::from_millis(200)).jitter(Jitter::None);
    let metrics = Arc::new(Metrics::new());
    RetryMiddleware::builder()
        .backoff(backoff)
        .observer(metrics)
}

/// Returns all metrics except zeros. The host is always the same and left out.
fn counted(recorder: &DebuggingRecorder) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        let value = match value {
            DebugValue::Counter(0) => continue,
            DebugValue::Counter(value) => value.to_string(),
            DebugValue::Gauge(value) => value.to_string(),
            DebugValue::Histogram(values) if values.is_empty() => continue,
            DebugValue::Histogram(values) => format!("{values:?}"),
        };
        let mut labels = key.key().labels();
        let host = labels.next().unwrap();
        assert_eq!((host.key(), host.value()), ("host", "api.example.com"));
        let more: String = labels
            .map(|label| format!(" {}={}", label.key(), label.value()))
            .collect();
        lines.push(format!("{}{more}: {value}", key.key().name()));
    }
    lines.sort();
    lines
}

#[tokio::test(start_paused = true)]
async fn a_call_that_succeeds_counts_its_retries_by_reason() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let server = Server::statuses([503, 503, 200]);
    let client = server.client(retry().build().unwrap());

    assert_eq!(client.get(URL).send().await.unwrap().status(), 200);

    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0, 0.0, 0.0]",
            "steady_backoff_delay_seconds: [0.2, 0.4]",
            "steady_call_duration_seconds: [0.6]",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=succeeded: 1",
            "steady_retries_total reason=503: 2",
            // A reserve of 20, minus 2 retries, plus 0.2 for the success.
            "steady_retry_budget_balance: 19.2",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_call_is_counted_once() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let server = Server::new(|index| match index {
        1 => Reply::fail(std::io::ErrorKind::ConnectionReset),
        _ => respond(502),
    });
    let client = server.client(retry().max_retries(2).build().unwrap());

    assert_eq!(client.get(URL).send().await.unwrap().status(), 502);

    assert_eq!(server.count(), 3);
    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0, 0.0, 0.0]",
            "steady_backoff_delay_seconds: [0.2, 0.4]",
            "steady_call_duration_seconds: [0.6]",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=retries_exhausted: 1",
            "steady_retries_total reason=502: 1",
            "steady_retries_total reason=reset: 1",
            "steady_retry_budget_balance: 17.5",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_not_retryable_never_count_as_exhausted() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    // Not even with zero retries.
    let client = |retry: RetryMiddlewareBuilder, server: &Arc<Server>| {
        server.client(
            retry
                .max_retries(0)
                .budget(Budget::unlimited())
                .build()
                .unwrap(),
        )
    };

    let missing = client(retry(), &Server::statuses([404]));
    assert_eq!(missing.get(URL).send().await.unwrap().status(), 404);
    let vetoed = Server::new(|_| respond_with(503, &[("x-should-retry", "false")]));
    let vetoed = client(retry(), &vetoed);
    assert_eq!(vetoed.get(URL).send().await.unwrap().status(), 503);
    let unsafe_ = client(retry(), &Server::statuses([503]));
    assert_eq!(unsafe_.post(URL).send().await.unwrap().status(), 503);

    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0, 0.0, 0.0]",
            "steady_call_duration_seconds: [0.0, 0.0, 0.0]",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=not_idempotent: 1",
            "steady_requests_total outcome=not_retryable: 1",
            "steady_requests_total outcome=server_veto: 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_permanent_response_counts_only_a_request() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let client = Server::statuses([404]).client(retry().build().unwrap());

    assert_eq!(client.get(URL).send().await.unwrap().status(), 404);

    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0]",
            "steady_call_duration_seconds: [0.0]",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=not_retryable: 1",
            // The response shows that the server works, so it is deposited.
            "steady_retry_budget_balance: 20.2",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_vetoed_call_counts_no_retry() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let server = Server::new(|_| respond_with(503, &[("x-should-retry", "false")]));
    let client = server.client(retry().build().unwrap());

    assert_eq!(client.get(URL).send().await.unwrap().status(), 503);

    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0]",
            "steady_call_duration_seconds: [0.0]",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=server_veto: 1",
            "steady_retry_budget_balance: 19.5",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_in_an_attempt_is_abandoned() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let server = Server::new(|_| Reply::silence());
    let client = server.client(retry().build().unwrap());

    timeout(SECOND, client.get(URL).send()).await.unwrap_err();

    assert_eq!(
        counted(&recorder),
        [
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=abandoned: 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_during_a_wait_counts_no_retry() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let server = Server::statuses([503]);
    let client = server.client(retry().build().unwrap());

    let soon = Duration::from_millis(100);
    timeout(soon, client.get(URL).send()).await.unwrap_err();

    assert_eq!(server.count(), 1);
    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0]",
            "steady_backoff_delay_seconds: [0.2]",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=abandoned: 1",
            // The last reported value. The retry was refunded later, but no event has reported it.
            "steady_retry_budget_balance: 19",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_in_a_retry_counts_the_retry() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let server = Server::new(|index| match index {
        0 => respond(503),
        _ => Reply::silence(),
    });
    let client = server.client(retry().budget(Budget::unlimited()).build().unwrap());

    timeout(SECOND, client.get(URL).send()).await.unwrap_err();

    assert_eq!(server.count(), 2);
    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0]",
            "steady_backoff_delay_seconds: [0.2]",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=abandoned: 1",
            "steady_retries_total reason=503: 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_a_throttle_refuses_does_not_count() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let server = Server::statuses([503]);
    let throttle = ThrottleMiddleware::builder().rate(0.01, 1);
    let client = throttled(&server, retry().budget(Budget::unlimited()), throttle);

    assert_eq!(call(&client, 0).await.unwrap(), 503);

    assert_eq!(server.count(), 1);
    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0]",
            "steady_backoff_delay_seconds: [0.2]",
            "steady_call_duration_seconds: [0.2]",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=throttled: 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_counts_each_refused_call() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let budget = Budget::builder().min_retries_per_sec(0.1).retry_ratio(0.1);
    let retry = retry().budget(budget.build().unwrap());
    let server = Server::statuses([503]);
    let client = server.client(retry.build().unwrap());

    for _ in 0..2 {
        assert_eq!(client.get(URL).send().await.unwrap().status(), 503);
    }

    assert_eq!(server.count(), 3);
    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0, 0.0, 0.0]",
            "steady_backoff_delay_seconds: [0.2]",
            "steady_call_duration_seconds: [0.2, 0.0]",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=budget_empty: 2",
            "steady_retries_total reason=503: 1",
            "steady_retry_budget_balance: 0",
            "steady_retry_budget_exhausted_total: 2",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn letters_are_counted_by_outcome_and_only_for_failures() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let (letters, unread) = dead_letter_channel(1);
    let retry = retry()
        .max_retries(1)
        .budget(Budget::unlimited())
        .dead_letter_sink(letters);
    let server = Server::statuses([404, 503, 200, 503]);
    let client = server.client(retry.build().unwrap());

    for expected in [404, 200, 503, 503] {
        assert_eq!(client.get(URL).send().await.unwrap().status(), expected);
    }
    drop(unread);
    assert_eq!(client.get(URL).send().await.unwrap().status(), 503);

    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]",
            "steady_backoff_delay_seconds: [0.2, 0.2, 0.8, 3.2]",
            "steady_call_duration_seconds: [0.0, 0.2, 0.2, 0.8, 3.2]",
            // The channel has capacity for one letter, and its receiver is dropped later.
            "steady_dead_letters_total outcome=delivered: 1",
            "steady_dead_letters_total outcome=failed: 1",
            "steady_dead_letters_total outcome=timed_out: 1",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=not_retryable: 1",
            "steady_requests_total outcome=retries_exhausted: 3",
            "steady_requests_total outcome=succeeded: 1",
            "steady_retries_total reason=503: 4",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_throttle_shows_its_queue_waits_and_refusals() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let server = Server::new(|_| late(SECOND, respond(200)));
    let metrics = Arc::new(Metrics::new());
    let client = throttled(
        &server,
        RetryMiddleware::builder().observer(Arc::clone(&metrics)),
        ThrottleMiddleware::builder()
            .max_in_flight(1)
            .max_queue(2)
            .adaptive(false)
            .observer(metrics),
    );

    // One is sent, two wait, and the last one is refused.
    let (first, second, third, refused) = tokio::join!(
        call(&client, 1),
        call(&client, 2),
        call(&client, 3),
        call(&client, 4)
    );

    assert_eq!(
        (first.unwrap(), second.unwrap(), third.unwrap()),
        (200, 200, 200)
    );
    assert!(refused.is_err());
    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [1.0, 1.0, 1.0]",
            "steady_call_duration_seconds: [0.0, 1.0, 2.0, 3.0]",
            "steady_inflight_requests: 0",
            "steady_queue_age_seconds: 0",
            "steady_queue_depth: 0",
            "steady_rate_limiter_wait_seconds: [1.0, 2.0]",
            "steady_requests_total outcome=succeeded: 3",
            "steady_requests_total outcome=throttled: 1",
            "steady_retry_budget_balance: 20.6",
            "steady_throttle_pause_seconds: 0",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn queued_attempts_are_not_in_flight_and_leave_when_dropped() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let scrape = recorder.handle();
    let _local = set_default_local_recorder(&recorder);
    let gauges = || {
        let text = scrape.render();
        ["inflight_requests", "queue_depth", "queue_age_seconds"].map(|name| {
            let start = format!("steady_{name}{{host=\"api.example.com\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&start));
            line.map(|value| value.parse::<f64>().unwrap())
        })
    };
    let server = Server::new(|_| Reply::silence());
    let metrics = Arc::new(Metrics::new());
    let client = throttled(
        &server,
        RetryMiddleware::builder().observer(Arc::clone(&metrics)),
        ThrottleMiddleware::builder()
            .max_in_flight(1)
            .max_queue_wait(3 * SECOND)
            .adaptive(false)
            .observer(metrics),
    );

    let sent = timeout(10 * SECOND, call(&client, 1));
    let dropped = timeout(2 * SECOND, call(&client, 2));
    let refused = call(&client, 3);
    let look = async {
        tokio::time::sleep(SECOND).await;
        assert_eq!(gauges(), [Some(1.0), Some(2.0), Some(0.0)]);
        tokio::time::sleep(SECOND + SECOND / 2).await;
        // The drop after 2 s updates the age of the oldest attempt.
        assert_eq!(gauges(), [Some(1.0), Some(1.0), Some(2.0)]);
        tokio::time::sleep(SECOND).await;
        assert_eq!(gauges(), [Some(1.0), Some(0.0), Some(0.0)]);
    };
    let (sent, dropped, refused, ()) = tokio::join!(sent, dropped, refused, look);

    assert!(sent.is_err() && dropped.is_err() && refused.is_err());
    assert_eq!(gauges(), [Some(0.0); 3]);
    let text = scrape.render();
    // The refusal after 3 s counts as a wait. The dropped attempt does not.
    for line in [
        r#"steady_rate_limiter_wait_seconds_count{host="api.example.com"} 1"#,
        r#"steady_rate_limiter_wait_seconds_sum{host="api.example.com"} 3"#,
        r#"steady_requests_total{host="api.example.com",outcome="abandoned"} 2"#,
        r#"steady_requests_total{host="api.example.com",outcome="throttled"} 1"#,
    ] {
        assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn rate_limit_headers_are_counted_for_each_response() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let server = Server::new(|index| match index {
        0 => respond_with(429, &[("retry-after", "2"), ("x-ratelimit-remaining", "0")]),
        _ => respond_with(
            200,
            &[("x-ratelimit-limit", "9"), ("x-ratelimit-remaining", "8")],
        ),
    });
    let client = server.client(retry().budget(Budget::unlimited()).build().unwrap());

    let response = client.get(URL).send().await.unwrap();

    let report = RetryReport::of(&response).unwrap();
    let (waited, took) = (report.waited().as_secs_f64(), report.took().as_secs_f64());
    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0, 0.0]",
            &*format!("steady_backoff_delay_seconds: [{waited:?}]"),
            &*format!("steady_call_duration_seconds: [{took:?}]"),
            "steady_inflight_requests: 0",
            "steady_rate_limit_header_present_total kind=retry_after: 1",
            "steady_rate_limit_header_present_total kind=x_ratelimit: 2",
            "steady_requests_total outcome=succeeded: 1",
            "steady_retries_total reason=429: 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_without_retries_is_counted_too() {
    let recorder = DebuggingRecorder::new();
    let _local = set_default_local_recorder(&recorder);
    let client = Server::statuses([503]).client(retry().build().unwrap());

    assert_eq!(
        client.get(URL).no_retry().send().await.unwrap().status(),
        503
    );

    assert_eq!(
        counted(&recorder),
        [
            "steady_attempt_duration_seconds: [0.0]",
            "steady_call_duration_seconds: [0.0]",
            "steady_inflight_requests: 0",
            "steady_requests_total outcome=disabled: 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_thousand_hosts_make_a_hundred_and_one_labels() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let scrape = recorder.handle();
    let _local = set_default_local_recorder(&recorder);
    let client = Server::statuses([200]).client(retry().build().unwrap());

    for index in 0..1000 {
        let url = format!("http://user:secret@{index}.example.com:8080/path?query=secret");
        client.get(url).send().await.unwrap();
    }

    let text = scrape.render();
    let requests = text
        .lines()
        .filter(|line| line.starts_with("steady_requests_total{"));
    assert_eq!(requests.count(), 101);
    for line in [
        r#"steady_requests_total{host="99.example.com:8080",outcome="succeeded"} 1"#,
        r#"steady_requests_total{host="other",outcome="succeeded"} 900"#,
    ] {
        assert!(text.lines().any(|known| known == line), "{line}");
    }
    for secret in ["user", "secret", "path", "query"] {
        assert!(!text.contains(secret), "{secret}");
    }
}
