//! What is said in the log of calls: once for each retry and each end, calmly, and as loud as asked.
//!
//! In a binary of its own, one test at a time: how much a subscriber wants to hear holds for the whole
//! process, and calls that nobody hears of are not even followed.

// Tests read tokio's paused clock themselves.
#![allow(clippy::disallowed_methods)]

#[allow(dead_code, reason = "most of it is for other tests")]
#[path = "steady/support/scripted.rs"]
mod scripted;
#[allow(dead_code, reason = "it listens in another way here")]
#[path = "steady/support/trace.rs"]
mod trace;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Body;
use reqwest_middleware::ClientWithMiddleware;
use reqwest_steady::dead_letter::{DeadLetter, DeadLetterSink, Delivery};
use reqwest_steady::observe::LogLevels;
use reqwest_steady::{
    Backoff, Budget, Jitter, RetryMiddleware, RetryMiddlewareBuilder, ThrottleMiddleware,
};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

use scripted::{Reply, Server, URL, answer, answer_with, throttled};
use trace::{Fields, Trace};

const MS: Duration = Duration::from_millis(1);

/// A subscriber that wants to hear no more than this.
struct UpTo(LevelFilter, Trace);

impl Subscriber for UpTo {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let of_calls = metadata.target() == "reqwest_steady" || metadata.is_span();
        *metadata.level() <= self.0 && of_calls
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.1.keep_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.1.keep_record(span, values);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.1.keep_event(event);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Ear {
    trace: Trace,
    _default: DefaultGuard,
    _alone: MutexGuard<'static, ()>,
}

impl Ear {
    async fn up_to(level: LevelFilter) -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        let trace = Trace::default();
        Self {
            _default: tracing::subscriber::set_default(UpTo(level, trace.clone())),
            trace,
            _alone: alone,
        }
    }

    fn lines(&self) -> Vec<String> {
        let events = self.trace.events().into_iter();
        events
            .map(|(level, message, _)| format!("{level} {message}"))
            .collect()
    }
}

/// Whatever somebody wants to hear, it is said; and nothing else.
async fn expect<F: Future>(expected: &[&str], run: impl Fn() -> F) {
    for level in [
        LevelFilter::TRACE,
        LevelFilter::DEBUG,
        LevelFilter::INFO,
        LevelFilter::WARN,
        LevelFilter::ERROR,
        LevelFilter::OFF,
    ] {
        let ear = Ear::up_to(level).await;
        run().await;
        let heard = |line: &&&str| {
            let of: Level = line.split(' ').next().unwrap().parse().unwrap();
            of <= level
        };
        let expected: Vec<_> = expected.iter().filter(heard).copied().collect();
        assert_eq!(ear.lines(), expected, "up to {level}");
    }
}

fn exact() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder().backoff(Backoff::exponential(380 * MS).jitter(Jitter::None))
}

fn client(retry: RetryMiddlewareBuilder, script: fn(usize) -> Reply) -> ClientWithMiddleware {
    Server::new(script).client(retry.build().unwrap())
}

/// What comes back is looked at elsewhere.
async fn get(retry: RetryMiddlewareBuilder, script: fn(usize) -> Reply) {
    let _ = client(retry, script).get(URL).send().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_said_with_what_happened_and_what_follows() {
    let script = |index| match index {
        0 => answer(503),
        1 => Reply::fail(ErrorKind::ConnectionReset),
        2 => answer_with(429, &[("retry-after-ms", "0")]),
        _ => answer(200),
    };
    let said = [
        "INFO 503 from api.example.com, attempt 1 of 6, again in 380 ms",
        "INFO connection lost to api.example.com, attempt 2 of 6, again in 760 ms",
        "INFO 429 from api.example.com, attempt 3 of 6, again in 1.5 s",
        "DEBUG 200 from api.example.com, attempt 4 of 6, after a wait of 2.7 s",
    ];
    expect(&said, || get(exact(), script)).await;
}

#[tokio::test(start_paused = true)]
async fn an_end_is_said_with_its_reason() {
    type Case = (
        fn(usize) -> Reply,
        fn() -> RetryMiddlewareBuilder,
        &'static str,
    );
    let cases: [Case; 7] = [
        (
            |_| answer(200),
            exact,
            "TRACE 200 from api.example.com, attempt 1 of 6",
        ),
        (
            |_| answer(404),
            exact,
            "DEBUG 404 from api.example.com, attempt 1 of 6, not again: \
             another try would end the same way",
        ),
        (
            |_| answer_with(503, &[("x-should-retry", "false")]),
            exact,
            "DEBUG 503 from api.example.com, attempt 1 of 6, not again: \
             the server says that it is of no use",
        ),
        (
            |_| answer_with(503, &[("retry-after", "3600")]),
            exact,
            "WARN 503 from api.example.com, attempt 1 of 6, not again: \
             the server asks for a longer pause than is allowed",
        ),
        (
            |_| answer(503),
            || {
                let empty = Budget::builder().min_retries_per_sec(0.1).build().unwrap();
                assert!(empty.try_withdraw());
                exact().budget(empty)
            },
            "WARN 503 from api.example.com, attempt 1 of 6, not again: the retry budget is empty",
        ),
        (
            |_| answer(503),
            || exact().max_retries(0),
            "DEBUG 503 from api.example.com, attempt 1 of 1, not again: \
             retries are turned off for it",
        ),
        (
            |_| Reply::fail(ErrorKind::TimedOut),
            || exact().retry_window(MS),
            "WARN no answer in time from api.example.com, attempt 1 of 6, not again: \
             the retry window is over",
        ),
    ];
    for (script, retry, said) in cases {
        expect(&[said], || get(retry(), script)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_is_said_even_if_its_retries_are_not() {
    let exhausted = [
        "INFO 503 from api.example.com, attempt 1 of 2, again in 380 ms",
        "WARN 503 from api.example.com, attempt 2 of 2, not again: all retries were made",
    ];
    let retry = || exact().max_retries(1);
    expect(&exhausted, || get(retry(), |_| answer(503))).await;
    let silent = || retry().log_levels(LogLevels::default().retry(LevelFilter::OFF));
    expect(&exhausted[1..], || get(silent(), |_| answer(503))).await;
    let last = |index| answer(if index == 0 { 503 } else { 200 });
    let recovered = ["DEBUG 200 from api.example.com, attempt 2 of 2, after a wait of 380 ms"];
    expect(&recovered, || get(silent(), last)).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_again_is_named_as_well() {
    let no_key = [
        "WARN no answer in time from api.example.com, attempt 1 of 6, not again: \
         it may have had its effect, and carries no idempotency key",
    ];
    expect(&no_key, || async {
        let client = client(exact().attempt_timeout(MS), |_| Reply::silence());
        client.post(URL).send().await.unwrap_err();
    })
    .await;
    let stream = ["WARN 503 from api.example.com, attempt 1 of 6, not again: \
         its body was a stream, which is gone"];
    expect(&stream, || async {
        let body = Body::wrap_stream(futures_util::stream::iter(
            ["x"].map(Ok::<_, std::io::Error>),
        ));
        let client = client(exact(), |_| answer(503));
        client.put(URL).body(body).send().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_a_throttle_keeps_back_is_not_mistaken_for_an_answer() {
    let said = [
        "INFO 503 from api.example.com, attempt 1 of 6, again in 380 ms",
        "WARN 503 from api.example.com, attempt 1 of 6, not again: \
         the throttle did not let it through",
    ];
    expect(&said, || async {
        let server = Server::statuses([503]);
        let throttle = ThrottleMiddleware::builder()
            .rate(0.01, 1)
            .max_queue_wait(MS);
        let client = throttled(&server, exact(), throttle);
        assert_eq!(client.get(URL).send().await.unwrap().status(), 503);
        assert_eq!(server.count(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_fields_are_there_for_machines() {
    let ear = Ear::up_to(LevelFilter::INFO).await;
    get(exact().max_retries(1), |_| {
        answer_with(503, &[("retry-after-ms", "0")])
    })
    .await;
    let fields = |pairs: &[(&str, &str)]| -> Fields {
        let pairs = pairs.iter().copied();
        pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    };
    let said: Vec<_> = (ear.trace.events().into_iter())
        .map(|(_, _, fields)| fields)
        .collect();
    assert_eq!(
        said,
        [
            fields(&[
                ("method", "GET"),
                ("host", "api.example.com"),
                ("outcome", "503"),
                ("attempt", "1"),
                ("max_attempts", "2"),
                ("wait_ms", "380"),
                ("hint_ms", "0"),
                ("dry_run", "false"),
            ]),
            fields(&[
                ("method", "GET"),
                ("host", "api.example.com"),
                ("outcome", "503"),
                ("attempt", "2"),
                ("max_attempts", "2"),
                ("stop_reason", "retries_exhausted"),
                ("waited_ms", "380"),
                ("took_ms", "380"),
            ]),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn every_kind_is_as_loud_as_it_is_told_to_be() {
    type Case = (LogLevels, fn(usize) -> Reply, &'static [&'static str]);
    let quiet = LogLevels::off;
    let error = LevelFilter::ERROR;
    let then_well = |index| answer(if index == 0 { 503 } else { 200 });
    let cases: [Case; 6] = [
        (quiet(), |_| answer(503), &[]),
        (
            quiet().retry(error),
            then_well,
            &["ERROR 503 from api.example.com, attempt 1 of 2, again in 380 ms"],
        ),
        (
            quiet().recovery(error),
            then_well,
            &["ERROR 200 from api.example.com, attempt 2 of 2, after a wait of 380 ms"],
        ),
        (
            quiet().success(error),
            |_| answer(200),
            &["ERROR 200 from api.example.com, attempt 1 of 2"],
        ),
        (
            quiet().rejection(error),
            |_| answer(404),
            &[
                "ERROR 404 from api.example.com, attempt 1 of 2, not again: \
               another try would end the same way",
            ],
        ),
        (
            quiet().given_up(error),
            |_| answer(503),
            &["ERROR 503 from api.example.com, attempt 2 of 2, not again: all retries were made"],
        ),
    ];
    for (levels, script, said) in cases {
        expect(said, || {
            get(exact().max_retries(1).log_levels(levels), script)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_is_said() {
    let drop_it = |levels: LogLevels| async move {
        let client = client(exact().log_levels(levels), |_| answer(503));
        assert!(timeout(MS, client.get(URL).send()).await.is_err());
    };
    let said = [
        "INFO 503 from api.example.com, attempt 1 of 6, again in 380 ms",
        "DEBUG the call to api.example.com was dropped at attempt 1",
    ];
    expect(&said, || drop_it(LogLevels::default())).await;
    let levels = LogLevels::off().abandoned(LevelFilter::ERROR);
    let said = ["ERROR the call to api.example.com was dropped at attempt 1"];
    expect(&said, || drop_it(levels)).await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_what_it_would_do() {
    let said = [
        "INFO 503 from api.example.com, attempt 1 of 6, would go again (dry run) in 380 ms",
        "DEBUG 503 from api.example.com, attempt 1 of 6, not again: this is a dry run",
    ];
    expect(&said, || get(exact().dry_run(true), |_| answer(503))).await;
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_is_not_delivered_is_said() {
    struct Full;
    impl DeadLetterSink for Full {
        fn deliver(&self, _: Arc<DeadLetter>) -> Delivery<'_> {
            Box::pin(async { Err("the disk is full".into()) })
        }
    }
    let said = [
        "WARN a dead letter about a call to api.example.com was not delivered (failed): \
         the disk is full",
    ];
    let retry = || {
        let retry = exact().max_retries(0).dead_letter_sink(Full);
        retry.log_levels(LogLevels::off())
    };
    expect(&said, || get(retry(), |_| answer(503))).await;
}
