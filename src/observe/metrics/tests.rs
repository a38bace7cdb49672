use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    set_default_local_recorder, with_local_recorder,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use metrics_util::registry::{AtomicStorage, Registry};

use super::*;
use crate::hashed::hash_of;
use crate::observe::{LimitHeaders, LoadChange};
use crate::outcome::{
    AttemptOutcome, FailureKind, PauseSource, RefusalReason, StopReason, WaitReason,
};

fn to(host: &str) -> CallInfo<'_> {
    CallInfo {
        method: &Method::GET,
        host,
        attempt: 1,
        host_hash: hash_of(host),
    }
}

/// Returns the recorder's metrics as lines of a scrape. Call it once, because it resets the counters.
fn seen(recorder: &DebuggingRecorder) -> Vec<String> {
    let all = recorder.snapshotter().snapshot().into_vec();
    let mut lines: Vec<String> = all
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels: Vec<_> = key
                .key()
                .labels()
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            let value = match value {
                DebugValue::Counter(value) => value.to_string(),
                DebugValue::Gauge(value) => value.to_string(),
                DebugValue::Histogram(values) => format!("{values:?}"),
            };
            format!("{}{{{}}} {value}", key.key().name(), labels.join(","))
        })
        .collect();
    lines.sort();
    lines
}

/// Returns the value of a metric that has only the label `host`.
fn value(lines: &[String], name: &str) -> Option<String> {
    let start = format!("{name}{{host=a}} ");
    let line = lines.iter().find_map(|line| line.strip_prefix(&start));
    line.map(str::to_owned)
}

fn load(change: LoadChange, waiting: usize, oldest: u64) -> ThrottleLoad {
    ThrottleLoad {
        change,
        in_flight: 0,
        waiting,
        oldest: Duration::from_secs(oldest),
    }
}

fn finished() -> AttemptFinished {
    AttemptFinished {
        outcome: AttemptOutcome::Status(StatusCode::OK),
        retry_of: None,
        took: Duration::from_millis(5),
        queued: Duration::ZERO,
        limit_headers: LimitHeaders::default(),
    }
}

fn stop(budget: Option<f64>) -> Stopped {
    Stopped {
        stop_reason: StopReason::Succeeded,
        outcome: AttemptOutcome::Status(StatusCode::OK),
        effect: crate::outcome::Effect::Unknown,
        max_attempts: 6,
        waited: Duration::ZERO,
        took: Duration::from_millis(5),
        hint: None,
        budget,
    }
}

#[test]
fn a_thousand_hosts_make_a_hundred_and_one_labels() {
    let recorder = DebuggingRecorder::new();
    with_local_recorder(&recorder, || {
        let metrics = Metrics::new();
        for index in 0..1000 {
            metrics.stopped(&to(&format!("{index}.example.com")), &stop(None));
        }
        // Later hosts do not change the label of an earlier one.
        metrics.stopped(&to("7.example.com"), &stop(None));
        assert_eq!(
            format!("{metrics:?}"),
            "Metrics { hosts: 100, max_hosts: 100 }"
        );
    });
    let lines = seen(&recorder);
    let hosts: BTreeSet<_> = lines
        .iter()
        .map(|line| line.split(['=', ',', '}']).nth(1).unwrap())
        .collect();
    assert_eq!(hosts.len(), 101);
    for expected in [
        "steady_requests_total{host=7.example.com,outcome=succeeded} 2",
        "steady_requests_total{host=99.example.com,outcome=succeeded} 1",
        "steady_requests_total{host=other,outcome=succeeded} 900",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}");
    }
}

/// Returns where the metrics of a host are.
fn place(metrics: &Metrics, host: &str) -> usize {
    let mut place = 0;
    metrics.count(&to(host), |host| place = std::ptr::from_ref(host).addr());
    place
}

fn hosts(metrics: &Metrics) -> usize {
    metrics.0.named.read().unwrap().len()
}

#[test]
fn every_host_is_found_again_and_the_limit_holds() {
    let recorder = DebuggingRecorder::new();
    let name = |number: u32| format!("host-{number}.example.com");
    with_local_recorder(&recorder, || {
        let metrics = Metrics::with_max_hosts(2000);
        for _ in 0..2 {
            for number in 0..2000 {
                metrics.count(&to(&name(number)), HostMetrics::abandoned);
            }
        }
        metrics.count(&to(&name(2000)), HostMetrics::abandoned);
        assert_eq!(hosts(&metrics), 2000);
    });
    let counts: Vec<String> = (seen(&recorder).into_iter())
        .filter(|line| line.starts_with("steady_requests_total"))
        .collect();
    assert_eq!(counts.len(), 2001);
    for line in counts {
        let expected = if line.contains("host=other") {
            " 1"
        } else {
            " 2"
        };
        assert!(line.ends_with(expected), "{line}");
    }
}

#[test]
fn threads_that_add_the_same_host_share_it() {
    let metrics = Metrics::with_max_hosts(1);
    let found = std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(|| place(&metrics, "a")));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(found.iter().all(|host| *host == found[0]));
    assert_eq!(hosts(&metrics), 1);
}

#[test]
fn a_host_that_is_called_other_shares_its_label_with_the_rest() {
    let recorder = DebuggingRecorder::new();
    with_local_recorder(&recorder, || {
        let metrics = Metrics::with_max_hosts(1);
        for host in ["other", "a", "b"] {
            metrics.clone().attempt_started(&to(host));
        }
    });
    let lines = seen(&recorder);
    for expected in [
        "steady_inflight_requests{host=a} 1",
        "steady_inflight_requests{host=other} 2",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}");
    }
}

#[test]
fn counters_with_few_labels_start_with_zero_and_the_balance_only_with_a_budget() {
    let recorder = DebuggingRecorder::new();
    with_local_recorder(&recorder, || {
        Metrics::new().stopped(&to("a"), &stop(Some(f64::INFINITY)));
    });
    assert_eq!(
        seen(&recorder),
        [
            "steady_attempt_duration_seconds{host=a} []",
            "steady_backoff_delay_seconds{host=a} []",
            "steady_call_duration_seconds{host=a} [0.005]",
            "steady_dead_letters_total{host=a,outcome=delivered} 0",
            "steady_dead_letters_total{host=a,outcome=failed} 0",
            "steady_dead_letters_total{host=a,outcome=panicked} 0",
            "steady_dead_letters_total{host=a,outcome=timed_out} 0",
            "steady_inflight_requests{host=a} 0",
            "steady_rate_limit_header_present_total{host=a,kind=anthropic_ratelimit} 0",
            "steady_rate_limit_header_present_total{host=a,kind=ratelimit} 0",
            "steady_rate_limit_header_present_total{host=a,kind=retry_after} 0",
            "steady_rate_limit_header_present_total{host=a,kind=x_ratelimit} 0",
            "steady_requests_total{host=a,outcome=succeeded} 1",
            "steady_retry_budget_exhausted_total{host=a} 0",
        ]
    );
}

#[test]
fn a_retry_counts_when_it_was_sent_and_its_wait_when_it_begins() {
    let recorder = DebuggingRecorder::new();
    with_local_recorder(&recorder, || {
        let metrics = Metrics::new();
        let mut retry = RetryScheduled {
            cause: AttemptOutcome::Failure(FailureKind::Timeout),
            wait: Duration::from_millis(250),
            hint: None,
            reason: WaitReason::Backoff,
            in_line: false,
            max_attempts: 6,
            budget: 4.5,
            dry_run: true,
        };
        metrics.retry_scheduled(&to("dry"), &retry);
        retry.dry_run = false;
        metrics.retry_scheduled(&to("a"), &retry);
        metrics.retry_scheduled(&to("a"), &retry);
        let throttled = AttemptOutcome::Failure(FailureKind::Throttled);
        for (retry_of, outcome) in [
            (None, finished().outcome),
            (Some(retry.cause), finished().outcome),
            (Some(retry.cause), throttled),
        ] {
            metrics.attempt_started(&to("a"));
            let attempt = AttemptFinished {
                outcome,
                retry_of,
                ..finished()
            };
            metrics.attempt_finished(&to("a"), &attempt);
        }
    });
    let lines = seen(&recorder);
    let retries: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("steady_retries_total"))
        .collect();
    assert_eq!(retries, ["steady_retries_total{host=a,reason=timeout} 1"]);
    assert_eq!(
        value(&lines, "steady_backoff_delay_seconds").as_deref(),
        Some("[0.25, 0.25]")
    );
    assert!(lines.contains(&"steady_retry_budget_balance{host=dry} 4.5".to_owned()));
}

/// Keeps gauges and nothing else. Unlike `DebuggingRecorder`, it can be read more than once.
struct Gauges(Registry<Key, AtomicStorage>);

impl Gauges {
    fn of_host_a(&self, name: &'static str) -> Option<f64> {
        let key = Key::from_parts(name, &[("host", "a")]);
        let gauge = self.0.get_gauge(&key)?;
        Some(f64::from_bits(gauge.load(Ordering::Relaxed)))
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        (self.0).get_or_create_gauge(key, |gauge| Arc::clone(gauge).into())
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn an_attempt_that_waits_in_a_throttle_is_not_in_flight() {
    use LoadChange::{Ended, Left, Queued, Sent};

    let recorder = Gauges(Registry::atomic());
    let _local = set_default_local_recorder(&recorder);
    let metrics = Metrics::new();
    let call = &to("a");
    let check = |in_flight: &str, depth: &str, age: &str| {
        let now = |name| {
            let value = recorder.of_host_a(name);
            value.map_or(String::new(), |value| value.to_string())
        };
        assert_eq!(now("steady_inflight_requests"), in_flight);
        assert_eq!(now("steady_queue_depth"), depth);
        assert_eq!(now("steady_queue_age_seconds"), age);
    };

    metrics.attempt_started(call);
    check("1", "", ""); // no throttle
    metrics.throttle_load(call, &load(Sent, 0, 0));
    metrics.attempt_started(call);
    metrics.throttle_load(call, &load(Queued, 1, 0));
    check("1", "1", "0");
    metrics.throttle_load(call, &load(Ended, 1, 3));
    metrics.attempt_finished(call, &finished());
    check("0", "1", "3");
    // Another gate of this host has an empty queue. That does not reset the age.
    metrics.throttle_load(call, &load(Sent, 0, 0));
    metrics.attempt_started(call);
    check("1", "1", "3");
    metrics.throttle_load(call, &load(Left, 0, 0));
    metrics.throttle_load(call, &load(Sent, 0, 0));
    check("2", "0", "0");
    metrics.throttle_load(call, &load(Ended, 0, 0));
    metrics.abandoned(
        call,
        &Abandoned {
            in_attempt: true,
            retry_of: None,
            took: Duration::ZERO,
        },
    );
    metrics.throttle_load(call, &load(Ended, 0, 0));
    metrics.attempt_finished(call, &finished());
    check("0", "0", "0");
}

#[test]
fn a_throttle_without_an_observed_retry_counts_what_it_has_sent() {
    use LoadChange::{Left, Queued, Sent};

    let recorder = DebuggingRecorder::new();
    with_local_recorder(&recorder, || {
        let metrics = Metrics::new();
        for change in [Sent, Queued, Queued, Left, Sent] {
            metrics.throttle_load(&to("a"), &load(change, 1, 2));
        }
    });
    let lines = seen(&recorder);
    assert_eq!(value(&lines, "steady_inflight_requests").unwrap(), "2");
    assert_eq!(value(&lines, "steady_queue_depth").unwrap(), "1");
}

#[test]
fn threads_that_come_and_go_leave_nothing_in_flight() {
    use LoadChange::{Ended, Left, Queued, Sent};

    let recorder = DebuggingRecorder::new();
    let metrics = with_local_recorder(&recorder, || {
        let metrics = Metrics::new();
        // This registers all gauges. The other threads have no recorder.
        metrics.throttle_load(&to("a"), &load(Sent, 0, 0));
        metrics
    });
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    metrics.attempt_started(&to("a"));
                    for change in [Queued, Left, Sent, Ended] {
                        metrics.throttle_load(&to("a"), &load(change, 0, 0));
                    }
                    metrics.attempt_finished(&to("a"), &finished());
                }
            });
        }
    });
    metrics.throttle_load(&to("a"), &load(Ended, 0, 0));
    let lines = seen(&recorder);
    assert_eq!(value(&lines, "steady_inflight_requests").unwrap(), "0");
    assert_eq!(value(&lines, "steady_queue_depth").unwrap(), "0");
}

#[test]
fn waits_that_ended_with_a_refusal_are_waits() {
    let recorder = DebuggingRecorder::new();
    with_local_recorder(&recorder, || {
        let metrics = Metrics::new();
        let wait = Duration::from_secs(1);
        metrics.throttle_waited(&to("a"), &ThrottleWaited { wait });
        for waited in [Duration::ZERO, Duration::from_secs(30)] {
            let refused = ThrottleRefused {
                reason: RefusalReason::WaitTooLong,
                waited,
                depth: 3,
                retry_after: Duration::from_secs(5),
                refusals: 1,
            };
            metrics.throttle_refused(&to("a"), &refused);
        }
    });
    let waits = value(&seen(&recorder), "steady_rate_limiter_wait_seconds");
    assert_eq!(waits.as_deref(), Some("[1.0, 30.0]"));
}

#[test]
fn an_attempt_counts_without_its_time_in_the_queue() {
    let recorder = DebuggingRecorder::new();
    with_local_recorder(&recorder, || {
        let metrics = Metrics::new();
        let throttled = AttemptOutcome::Failure(FailureKind::Throttled);
        for (outcome, took, queued) in [
            (finished().outcome, 5, 0),
            (AttemptOutcome::Failure(FailureKind::Timeout), 30, 20),
            (throttled, 40, 40), // it was never sent
        ] {
            let attempt = AttemptFinished {
                outcome,
                took: Duration::from_secs(took),
                queued: Duration::from_secs(queued),
                ..finished()
            };
            metrics.attempt_finished(&to("a"), &attempt);
        }
        let took = Duration::from_secs(90);
        metrics.stopped(&to("a"), &Stopped { took, ..stop(None) });
    });
    let lines = seen(&recorder);
    let value = |name| value(&lines, name).unwrap();
    assert_eq!(value("steady_attempt_duration_seconds"), "[5.0, 10.0]");
    assert_eq!(value("steady_call_duration_seconds"), "[90.0]");
}

#[test]
fn the_pace_is_missing_at_first_and_not_a_number_when_free() {
    let recorder = Gauges(Registry::atomic());
    let _local = set_default_local_recorder(&recorder);
    let metrics = Metrics::new();
    let pace = || recorder.of_host_a("steady_throttle_pace_requests_per_second");
    metrics.throttle_load(&to("a"), &load(LoadChange::Sent, 0, 0));
    assert_eq!(pace(), None);
    let paced = |per_second| ThrottlePaced {
        per_second,
        before: None,
    };
    metrics.throttle_paced(&to("a"), &paced(Some(17.5)));
    assert_eq!(pace(), Some(17.5));
    metrics.throttle_paced(&to("a"), &paced(None));
    assert!(pace().unwrap().is_nan());
}

fn paused(seconds: u64) -> ThrottlePaused {
    ThrottlePaused {
        pause: Duration::from_secs(seconds),
        asked_by: PauseSource::Server,
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_returns_to_zero_without_a_request() {
    let recorder = Gauges(Registry::atomic());
    let _local = set_default_local_recorder(&recorder);
    let metrics = Metrics::new();
    let call = &to("a");
    let pause = || recorder.of_host_a("steady_throttle_pause_seconds");
    let sleep = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
    metrics.throttle_load(call, &load(LoadChange::Sent, 0, 0));
    assert_eq!(pause(), Some(0.0));
    metrics.throttle_paused(call, &paused(30));
    // Another gate of this host is closed for a shorter time.
    metrics.throttle_paused(call, &paused(5));
    sleep(10).await;
    metrics.throttle_released(call);
    assert_eq!(pause(), Some(30.0));
    // A longer pause takes its place, and the end of the first does not hide it.
    metrics.throttle_paused(call, &paused(60));
    sleep(59).await;
    assert_eq!(pause(), Some(60.0));
    sleep(2).await;
    assert_eq!(pause(), Some(0.0));
}

#[test]
fn a_pause_outside_a_runtime_ends_with_the_release() {
    let recorder = Gauges(Registry::atomic());
    let _local = set_default_local_recorder(&recorder);
    let metrics = Metrics::new();
    let pause = || recorder.of_host_a("steady_throttle_pause_seconds");
    let now = ThrottlePaused {
        pause: Duration::from_nanos(1),
        ..paused(0)
    };
    metrics.throttle_paused(&to("a"), &now);
    assert_eq!(pause(), Some(1e-9));
    std::thread::sleep(Duration::from_millis(1));
    metrics.throttle_released(&to("a"));
    assert_eq!(pause(), Some(0.0));
}

#[test]
fn limit_headers_refused_budgets_and_dead_letters_are_counted_by_their_labels() {
    let recorder = DebuggingRecorder::new();
    with_local_recorder(&recorder, || {
        let metrics = Metrics::new();
        let mut headers = HeaderMap::new();
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "retry-after"] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        let mut attempt = finished();
        metrics.attempt_started(&to("a"));
        attempt.limit_headers = LimitHeaders::in_response(&headers);
        metrics.attempt_finished(&to("a"), &attempt);
        let refused = BudgetRefused {
            cause: AttemptOutcome::Status(StatusCode::SERVICE_UNAVAILABLE),
            budget: 0.5,
        };
        metrics.budget_refused(&to("a"), &refused);
        for outcome in [
            DeadLetterOutcome::Delivered,
            DeadLetterOutcome::Failed,
            DeadLetterOutcome::TimedOut,
            DeadLetterOutcome::Panicked,
            DeadLetterOutcome::Failed,
        ] {
            metrics.dead_lettered(&to("a"), outcome);
        }
    });
    let lines = seen(&recorder);
    for expected in [
        "steady_dead_letters_total{host=a,outcome=delivered} 1",
        "steady_dead_letters_total{host=a,outcome=failed} 2",
        "steady_dead_letters_total{host=a,outcome=panicked} 1",
        "steady_dead_letters_total{host=a,outcome=timed_out} 1",
        "steady_inflight_requests{host=a} 0",
        "steady_rate_limit_header_present_total{host=a,kind=retry_after} 1",
        "steady_rate_limit_header_present_total{host=a,kind=x_ratelimit} 1",
        "steady_rate_limit_header_present_total{host=a,kind=ratelimit} 0",
        "steady_retry_budget_balance{host=a} 0.5",
        "steady_retry_budget_exhausted_total{host=a} 1",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}");
    }
}

/// A recorder whose waits are sent somewhere by a client with the same metrics.
struct Sending(Arc<OnceLock<Metrics>>);

impl HistogramFn for Sending {
    fn record(&self, _: f64) {
        if let Some(metrics) = self.0.get() {
            metrics.attempt_started(&to("collector"));
        }
    }
}

impl Recorder for Sending {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Arc::new(Self(Arc::clone(&self.0))).into()
    }
}

#[test]
fn a_recorder_may_send_what_it_counts_with_the_same_metrics() {
    let shared = Arc::new(OnceLock::new());
    let recorder = Sending(Arc::clone(&shared));
    let _local = set_default_local_recorder(&recorder);
    let metrics = shared.get_or_init(Metrics::new);
    let wait = Duration::from_secs(1);
    metrics.throttle_waited(&to("a"), &ThrottleWaited { wait });
    assert_eq!(
        format!("{metrics:?}"),
        "Metrics { hosts: 2, max_hosts: 100 }"
    );
}
