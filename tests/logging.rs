//! The whole log: every line that the library writes, as a reader sees it.
//!
//! In a separate binary, one test at a time: the level of a subscriber holds for the whole process, and calls that
//! no level asks for are not even tracked.

// Tests read tokio's paused clock themselves.
#![allow(clippy::disallowed_methods)]

#[allow(dead_code, reason = "most of it is for other tests")]
#[path = "steady/support/file_server.rs"]
mod file_server;
#[allow(dead_code, reason = "most of it is for other tests")]
#[path = "steady/support/scripted.rs"]
mod scripted;

use std::fmt::{Debug, Write};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all};
use http::Extensions;
use reqwest::{Body, Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use reqwest_steady::dead_letter::{DeadLetter, DeadLetterSink, Delivery};
use reqwest_steady::download::DownloadExt;
use reqwest_steady::fleet::{FleetLimits, FleetStore, MemoryStore};
use reqwest_steady::observe::{EventKind, LogLevels};
use reqwest_steady::{
    Backoff, BodyVerdict, Budget, CoalesceMiddleware, Inspect, Jitter, KeyBy, RequestBuilderExt,
    RetryMiddleware, RetryMiddlewareBuilder, Scope, ThrottleMiddleware, ThrottleMiddlewareBuilder,
};
use tokio::time::{sleep, timeout};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

use file_server::{Hosted, Then, serve};
use scripted::{Reply, Server, URL, late, respond, respond_with, throttled};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// One line of the log.
#[derive(Clone)]
struct Line {
    level: Level,
    text: String,
    /// In the order in which they are written.
    fields: Vec<(&'static str, String)>,
}

impl Line {
    fn of(event: &Event<'_>) -> Self {
        let mut line = Self {
            level: *event.metadata().level(),
            text: String::new(),
            fields: Vec::new(),
        };
        event.record(&mut line);
        line
    }

    /// As the default format of tracing-subscriber writes it, without time and target.
    fn shown(&self) -> String {
        let mut shown = format!("{} {}", self.level, self.text);
        for (name, value) in &self.fields {
            write!(shown, " {name}={value}").unwrap();
        }
        shown
    }
}

/// Like tracing-subscriber: strings stand in quotes, and what is displayed does not.
impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }
}

/// A subscriber that wants no more than this level.
struct UpTo(LevelFilter, Arc<Mutex<Vec<Line>>>);

impl Subscriber for UpTo {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let of_library =
            (metadata.module_path()).is_some_and(|it| it.starts_with("reqwest_steady"));
        *metadata.level() <= self.0 && of_library
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let line = Line::of(event);
        assert_eq!(
            event.metadata().target(),
            "reqwest_steady",
            "{}",
            line.shown()
        );
        for (name, value) in &line.fields {
            let value = value.trim_matches('"');
            let is_word = |word: &str| word == value;
            let mut words = line.text.split(|letter: char| !letter.is_alphanumeric());
            assert!(
                !words.any(is_word),
                "{name} is in the text: {}",
                line.shown()
            );
        }
        self.1.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Keeps the log of this thread until it is dropped.
struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    _default: DefaultGuard,
    _alone: tokio::sync::MutexGuard<'static, ()>,
}

impl Log {
    async fn up_to(level: LevelFilter) -> Self {
        static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let alone = ALONE.lock().await;
        let lines = Arc::default();
        Self {
            _default: tracing::subscriber::set_default(UpTo(level, Arc::clone(&lines))),
            lines,
            _alone: alone,
        }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().iter().map(Line::shown).collect()
    }
}

/// Whatever level a subscriber wants, it gets the lines up to that level, and no other.
async fn expect<F: Future>(expected: &[&str], run: impl Fn() -> F) {
    for level in [
        LevelFilter::TRACE,
        LevelFilter::DEBUG,
        LevelFilter::INFO,
        LevelFilter::WARN,
        LevelFilter::ERROR,
        LevelFilter::OFF,
    ] {
        let log = Log::up_to(level).await;
        run().await;
        let is_wanted = |line: &&&str| {
            let of: Level = line.split(' ').next().unwrap().parse().unwrap();
            of <= level
        };
        let expected: Vec<_> = expected.iter().filter(is_wanted).copied().collect();
        assert_eq!(log.lines(), expected, "up to {level}");
    }
}

fn exact() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder().backoff(Backoff::exponential(380 * MS).jitter(Jitter::None))
}

fn client(retry: RetryMiddlewareBuilder, script: fn(usize) -> Reply) -> ClientWithMiddleware {
    Server::new(script).client(retry.build().unwrap())
}

/// Other tests look at the result.
async fn get(retry: RetryMiddlewareBuilder, script: fn(usize) -> Reply) {
    let _ = client(retry, script).get(URL).send().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_logged_with_its_cause_and_its_wait() {
    let script = |index| match index {
        0 => respond(503),
        1 => Reply::fail(ErrorKind::ConnectionReset),
        2 => respond_with(429, &[("retry-after-ms", "0")]),
        _ => respond(200),
    };
    let lines = [
        "INFO retrying host=api.example.com method=GET outcome=503 attempt=1 max_attempts=6 wait_ms=380",
        "INFO retrying host=api.example.com method=GET outcome=reset attempt=2 max_attempts=6 wait_ms=760",
        "INFO retrying host=api.example.com method=GET outcome=429 attempt=3 max_attempts=6 \
         wait_ms=1520 hint_ms=0",
        "DEBUG call recovered host=api.example.com method=GET outcome=200 attempt=4 max_attempts=6 \
         waited_ms=2660 took_ms=2660",
    ];
    expect(&lines, || get(exact(), script)).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_of_an_inspected_body_is_logged() {
    let script = |index| match index {
        0 => Reply::status(200).body("again hunter2"),
        _ => Reply::status(200).body("stop hunter2"),
    };
    let lines = [
        "INFO retrying host=api.example.com method=GET outcome=200 attempt=1 max_attempts=6 \
         wait_ms=380 hint_ms=0",
        "DEBUG not retrying host=api.example.com method=GET outcome=200 stop_reason=not_retryable \
         effect=unknown attempt=2 max_attempts=6 waited_ms=380 took_ms=380",
    ];
    let retry = || {
        exact().inspect_body(Inspect::all(), |_, start| {
            Some(match start.text().contains("again") {
                true => BodyVerdict::retry().after(Duration::ZERO),
                false => BodyVerdict::never(),
            })
        })
    };
    expect(&lines, || get(retry(), script)).await;
}

#[tokio::test(start_paused = true)]
async fn a_longer_wait_is_logged_with_its_reason() {
    let lines = [
        "INFO retrying host=api.example.com method=GET outcome=503 attempt=1 max_attempts=2 wait_ms=380",
        "WARN giving up host=api.example.com method=GET outcome=503 stop_reason=retries_exhausted effect=unknown \
         attempt=2 max_attempts=2 waited_ms=380 took_ms=382",
        "INFO retrying host=api.example.com method=GET outcome=503 attempt=1 max_attempts=2 wait_ms=1520 \
         wait_reason=host_failures",
        "DEBUG call recovered host=api.example.com method=GET outcome=200 attempt=2 max_attempts=2 \
         waited_ms=1520 took_ms=1522",
    ];
    let script = |index| late(MS, respond(if index < 3 { 503 } else { 200 }));
    expect(&lines, || async {
        let client = client(exact().max_retries(1), script);
        send(&client, 2).await;
    })
    .await;
    let lines = [
        "INFO retrying host=api.example.com method=GET outcome=503 attempt=1 max_attempts=6 wait_ms=1811 \
         wait_reason=server_hint hint_ms=1000",
        "DEBUG call recovered host=api.example.com method=GET outcome=200 attempt=2 max_attempts=6 \
         waited_ms=1811 took_ms=1812",
    ];
    let script = |index| match index {
        0 => respond_with(503, &[("retry-after", "1")]),
        _ => respond(200),
    };
    expect(&lines, || get(exact().seed(1), script)).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_in_line_is_logged() {
    let empty = || {
        let budget = Budget::builder().min_retries_per_sec(0.1).retry_ratio(0.0);
        let budget = budget.build().unwrap();
        assert!(budget.try_withdraw());
        exact().budget(budget)
    };
    let waiting = "INFO waiting in line to retry host=api.example.com method=GET outcome=429 attempt=1 max_attempts=6 \
                   wait_ms=380 wait_reason=budget";
    let lines = [
        waiting,
        "DEBUG call recovered host=api.example.com method=GET outcome=200 attempt=2 max_attempts=6 \
         waited_ms=10380 took_ms=10380",
    ];
    let script = |index| respond(if index == 0 { 429 } else { 200 });
    expect(&lines, || get(empty(), script)).await;
    let lines = [
        waiting,
        "WARN giving up host=api.example.com method=GET outcome=429 stop_reason=deadline_too_close effect=did_not_happen \
         attempt=1 max_attempts=6 waited_ms=998 took_ms=998 advice=\"raise the deadline to retry longer\"",
    ];
    expect(&lines, || get(empty().deadline(SEC), |_| respond(429))).await;
}

/// A server, a retry, and the line at the end of the call.
type EndOfCall = (
    fn(usize) -> Reply,
    fn() -> RetryMiddlewareBuilder,
    &'static str,
);

#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_is_logged_with_its_reason() {
    let cases: [EndOfCall; 7] = [
        (
            |_| respond(200),
            exact,
            "TRACE call succeeded host=api.example.com method=GET outcome=200 attempt=1 max_attempts=6 \
             waited_ms=0 took_ms=0",
        ),
        (
            |_| respond(404),
            exact,
            "DEBUG not retrying host=api.example.com method=GET outcome=404 stop_reason=not_retryable effect=did_not_happen \
             attempt=1 max_attempts=6 waited_ms=0 took_ms=0",
        ),
        (
            |_| respond_with(503, &[("x-should-retry", "false")]),
            exact,
            "DEBUG not retrying host=api.example.com method=GET outcome=503 stop_reason=server_veto effect=unknown \
             attempt=1 max_attempts=6 waited_ms=0 took_ms=0",
        ),
        (
            |_| respond_with(503, &[("retry-after", "3600")]),
            exact,
            "WARN giving up host=api.example.com method=GET outcome=503 stop_reason=server_delay_too_long effect=unknown \
             attempt=1 max_attempts=6 waited_ms=0 took_ms=0 hint_ms=3600000 \
             advice=\"raise max_server_delay to wait longer\"",
        ),
        (
            |_| respond(503),
            || {
                let empty = Budget::builder().min_retries_per_sec(0.1).build().unwrap();
                assert!(empty.try_withdraw());
                exact().budget(empty)
            },
            "WARN giving up host=api.example.com method=GET outcome=503 stop_reason=budget_empty effect=unknown \
             attempt=1 max_attempts=6 waited_ms=0 took_ms=0 \
             advice=\"check the server before you raise the budget\"",
        ),
        (
            |_| respond(503),
            || exact().max_retries(0),
            "DEBUG not retrying host=api.example.com method=GET outcome=503 stop_reason=disabled effect=unknown \
             attempt=1 max_attempts=1 waited_ms=0 took_ms=0",
        ),
        (
            |_| Reply::fail(ErrorKind::TimedOut),
            || exact().retry_window(MS),
            "WARN giving up host=api.example.com method=GET outcome=timeout stop_reason=window_closed effect=unknown \
             attempt=1 max_attempts=6 waited_ms=0 took_ms=0 advice=\"raise retry_window to retry longer\"",
        ),
    ];
    for (script, retry, line) in cases {
        expect(&[line], || get(retry(), script)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn advice_says_what_allows_more_retries() {
    let line = "WARN giving up host=api.example.com method=GET outcome=503 stop_reason=deadline_too_close effect=unknown \
                attempt=1 max_attempts=6 waited_ms=0 took_ms=0 advice=\"raise the deadline to retry longer\"";
    let script = |_| respond(503);
    expect(&[line], || get(exact().deadline(100 * MS), script)).await;
    let line = "WARN giving up host=api.example.com method=GET outcome=503 stop_reason=allowance_spent effect=unknown \
                attempt=1 max_attempts=6 waited_ms=0 took_ms=0 \
                advice=\"raise max_retries of the enclosing call or scope\"";
    expect(&[line], || async {
        let scope = Scope::new().max_retries(0);
        scope.run(get(exact(), script)).await;
    })
    .await;
    let line = "WARN giving up host=api.example.com method=POST outcome=timeout stop_reason=not_idempotent effect=unknown \
                attempt=1 max_attempts=6 waited_ms=0 took_ms=1 \
                advice=\"set an idempotency key to allow retries\"";
    expect(&[line], || async {
        let client = client(exact().attempt_timeout(MS), |_| Reply::silence());
        client.post(URL).send().await.unwrap_err();
    })
    .await;
    let line = "WARN giving up host=api.example.com method=PUT outcome=503 stop_reason=body_not_replayable effect=unknown \
                attempt=1 max_attempts=6 waited_ms=0 took_ms=0 \
                advice=\"send the stream with body_with to allow retries\"";
    expect(&[line], || async {
        let body = Body::wrap_stream(futures_util::stream::iter(
            ["x"].map(Ok::<_, std::io::Error>),
        ));
        let client = client(exact(), |_| respond(503));
        client.put(URL).body(body).send().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_not_said_to_have_been_sent() {
    let line = "WARN giving up host=api.example.com method=POST outcome=connect stop_reason=not_idempotent effect=unknown \
                attempt=1 max_attempts=6 waited_ms=0 took_ms=0 \
                advice=\"set an idempotency key to allow retries\"";
    expect(&[line], || async {
        let client = client(exact(), |_| Reply::fail(ErrorKind::ConnectionRefused));
        client.post(URL).send().await.unwrap_err();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_response_of_zero_bytes_is_incomplete_and_no_more() {
    let line = "WARN giving up host=api.example.com method=POST outcome=incomplete stop_reason=not_idempotent effect=unknown \
                attempt=1 max_attempts=6 waited_ms=0 took_ms=0 \
                advice=\"set an idempotency key to allow retries\"";
    expect(&[line], || async {
        let client = client(exact(), |_| Reply::fail(ErrorKind::UnexpectedEof));
        client.post(URL).send().await.unwrap_err();
    })
    .await;
}

const EXHAUSTED: [&str; 2] = [
    "INFO retrying host=api.example.com method=GET outcome=503 attempt=1 max_attempts=2 wait_ms=380",
    "WARN giving up host=api.example.com method=GET outcome=503 stop_reason=retries_exhausted effect=unknown \
     attempt=2 max_attempts=2 waited_ms=380 took_ms=380",
];

#[tokio::test(start_paused = true)]
async fn the_end_is_logged_even_if_the_retries_are_not() {
    let retry = || exact().max_retries(1);
    expect(&EXHAUSTED, || get(retry(), |_| respond(503))).await;
    let silent = || retry().log_levels(LogLevels::default().retry(LevelFilter::OFF));
    expect(&EXHAUSTED[1..], || get(silent(), |_| respond(503))).await;
    let last = |index| respond(if index == 0 { 503 } else { 200 });
    let recovered = [
        "DEBUG call recovered host=api.example.com method=GET outcome=200 attempt=2 max_attempts=2 \
         waited_ms=380 took_ms=380",
    ];
    expect(&recovered, || get(silent(), last)).await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_logs_what_it_would_do() {
    let lines = [
        "INFO would retry (dry run) host=api.example.com method=GET outcome=503 attempt=1 max_attempts=6 \
         wait_ms=380",
        "DEBUG not retrying host=api.example.com method=GET outcome=503 stop_reason=dry_run effect=unknown \
         attempt=1 max_attempts=6 waited_ms=0 took_ms=0",
    ];
    expect(&lines, || get(exact().dry_run(true), |_| respond(503))).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_is_logged() {
    let drop_it = |levels: LogLevels| async move {
        let client = client(exact().log_levels(levels), |_| respond(503));
        assert!(timeout(MS, client.get(URL).send()).await.is_err());
    };
    let dropped = "call dropped host=api.example.com method=GET attempt=1 took_ms=1";
    let lines = [
        "INFO retrying host=api.example.com method=GET outcome=503 attempt=1 max_attempts=6 wait_ms=380",
        &format!("DEBUG {dropped}"),
    ];
    expect(&lines, || drop_it(LogLevels::default())).await;
    let levels = LogLevels::off().abandoned(LevelFilter::ERROR);
    expect(&[&format!("ERROR {dropped}")], || drop_it(levels)).await;
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_call_has_its_level() {
    type Case = (LogLevels, fn(usize) -> Reply, &'static [&'static str]);
    let quiet = LogLevels::off;
    let error = LevelFilter::ERROR;
    let then_well = |index| respond(if index == 0 { 503 } else { 200 });
    let cases: [Case; 6] = [
        (quiet(), |_| respond(503), &[]),
        (quiet().retry(error), then_well, &["ERROR retrying"]),
        (
            quiet().recovery(error),
            then_well,
            &["ERROR call recovered"],
        ),
        (
            quiet().success(error),
            |_| respond(200),
            &["ERROR call succeeded"],
        ),
        (
            quiet().rejection(error),
            |_| respond(404),
            &["ERROR not retrying"],
        ),
        (
            quiet().given_up(error),
            |_| respond(503),
            &["ERROR giving up"],
        ),
    ];
    for (levels, script, expected) in cases {
        let log = Log::up_to(LevelFilter::TRACE).await;
        get(exact().max_retries(1).log_levels(levels), script).await;
        let lines = log.lines();
        let texts = lines
            .iter()
            .map(|line| line.split(" host=").next().unwrap());
        assert_eq!(texts.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn every_level_can_be_read_back() {
    let levels = LogLevels::default();
    assert_eq!(levels.get_retry(), LevelFilter::INFO);
    assert_eq!(levels.get_success(), LevelFilter::TRACE);
    assert_eq!(levels.get_recovery(), LevelFilter::DEBUG);
    assert_eq!(levels.get_rejection(), LevelFilter::DEBUG);
    assert_eq!(levels.get_given_up(), LevelFilter::WARN);
    assert_eq!(levels.get_abandoned(), LevelFilter::DEBUG);
    assert_eq!(levels.get_pause(), LevelFilter::INFO);
    assert_eq!(levels.get_pace(), LevelFilter::INFO);
    assert_eq!(levels.get_refusal(), LevelFilter::WARN);
    let error = LevelFilter::ERROR;
    let levels = LogLevels::off().pause(error).pace(error).refusal(error);
    let set = [levels.get_pause(), levels.get_pace(), levels.get_refusal()];
    assert_eq!(set, [error; 3]);
    assert_eq!(levels.get_retry(), LevelFilter::OFF);
}

/// A throttle alone. Its jitter is drawn from a seed.
fn throttle() -> ThrottleMiddlewareBuilder {
    ThrottleMiddleware::builder().seed(1)
}

fn behind(server: &Arc<Server>, throttle: ThrottleMiddlewareBuilder) -> ClientWithMiddleware {
    server.client_behind([Arc::new(throttle.build().unwrap()) as Arc<dyn Middleware>])
}

/// Sends GETs, one after the other.
async fn send(client: &ClientWithMiddleware, requests: usize) {
    for _ in 0..requests {
        let _ = client.get(URL).send().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_logs_its_pause_and_its_pace() {
    let lines = [
        "INFO throttle paused host=api.example.com asked_by=server pause_ms=30811",
        "INFO throttle reopened host=api.example.com",
        "INFO throttle lowered the pace host=api.example.com per_second=20.0",
    ];
    expect(&lines, || async {
        let server = Server::new(|index| match index {
            0 => respond_with(429, &[("retry-after", "30")]),
            _ => respond(200),
        });
        let client = behind(&server, throttle().max_queue_wait(60 * SEC));
        // All of them meet the same pause.
        let _ = client.get(URL).send().await;
        join_all((0..5).map(|_| client.get(URL).send())).await;
        assert_eq!(server.count(), 6);
    })
    .await;
}

/// A request at a closed gate: it makes the throttle look at its state.
async fn touch(client: &ClientWithMiddleware) {
    let _ = timeout(MS, client.get(URL).send()).await;
}

type Script = fn(usize) -> Reply;

/// Why a throttle pauses, with a server that does just that.
const PAUSES: [(Script, &str); 4] = [
    (
        |_| respond_with(503, &[("retry-after", "5")]),
        "asked_by=server pause_ms=5811",
    ),
    (|_| respond(429), "asked_by=refusal pause_ms=120"),
    (|_| respond(503), "asked_by=failures pause_ms=104"),
    (
        |_| {
            respond_with(
                200,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "20")],
            )
        },
        "asked_by=quota pause_ms=20000",
    ),
];

#[tokio::test(start_paused = true)]
async fn a_pause_names_who_asked_for_it() {
    for (script, fields) in PAUSES {
        let line = format!("INFO throttle paused host=api.example.com {fields}");
        expect(&[&line], || async {
            let server = Server::new(script);
            let client = behind(&server, throttle());
            for _ in 0..5 {
                touch(&client).await;
            }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_another_worker_is_logged() {
    let lines = [
        "INFO throttle paused host=api.example.com asked_by=fleet pause_ms=4990",
        "INFO throttle reopened host=api.example.com",
    ];
    expect(&lines, || async {
        let store = Arc::new(MemoryStore::new());
        let fleet = FleetLimits::with_store(store.clone());
        let server = Server::statuses([200]);
        let client = behind(&server, throttle().fleet(fleet));
        send(&client, 1).await;
        sleep(SEC).await;
        store.pause("gate:api.example.com", 5 * SEC).await.unwrap();
        sleep(10 * MS).await;
        send(&client, 1).await;
        assert_eq!(server.count(), 2);
    })
    .await;
}

/// Refuses three of a hundred requests, and gets none for a minute.
async fn lower_and_free_the_pace() {
    let server = Server::new(|index| match index {
        0 | 30 | 60 => respond(429),
        _ => respond(200),
    });
    let client = behind(&server, throttle());
    join_all((0..100).map(|_| client.get(URL).send())).await;
    sleep(70 * SEC).await;
    send(&client, 1).await;
    assert_eq!(server.count(), 101);
}

#[tokio::test(start_paused = true)]
async fn a_throttle_logs_each_lower_pace_and_its_end() {
    let lines = [
        "INFO throttle paused host=api.example.com asked_by=refusal pause_ms=120",
        "INFO throttle reopened host=api.example.com",
        "INFO throttle lowered the pace host=api.example.com per_second=20.0",
        // The cut at the 30th request came within a second.
        "INFO throttle lowered the pace host=api.example.com per_second=47.279 before=80.0",
        "INFO throttle freed the pace host=api.example.com before=58.007",
    ];
    expect(&lines, lower_and_free_the_pace).await;
}

/// Refuses 1000 requests in two seconds.
async fn overload() {
    let server = Server::new(|_| late(10 * SEC, respond(200)));
    let throttle = throttle().max_in_flight(1).max_queue(1);
    overload_of(&server, behind(&server, throttle)).await;
}

async fn overload_of(server: &Server, client: ClientWithMiddleware) {
    let refuse = async {
        for _ in 0..1000 {
            assert!(client.get(URL).send().await.is_err());
            sleep(2 * MS).await;
        }
    };
    let two = join(client.get(URL).send(), client.get(URL).send());
    let _ = join(two, refuse).await;
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_refusals_make_one_line_a_second() {
    let lines = [
        "WARN throttle refused a request host=api.example.com method=GET reason=queue_full depth=1 \
         waited_ms=0 retry_after_ms=0 refusals=1 advice=\"raise max_queue to queue more\"",
        "WARN throttle refused a request host=api.example.com method=GET reason=queue_full depth=1 \
         waited_ms=0 retry_after_ms=0 refusals=501 advice=\"raise max_queue to queue more\"",
    ];
    expect(&lines, overload).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_around_a_throttle_does_not_flood_the_log() {
    let log = Log::up_to(LevelFilter::INFO).await;
    let server = Server::new(|_| late(10 * SEC, respond(200)));
    let throttle = throttle().max_in_flight(1).max_queue(1);
    overload_of(&server, throttled(&server, exact(), throttle)).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "one refusal per second: {lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_retry_names_the_response_that_the_caller_gets() {
    let lines = [
        "INFO retrying host=api.example.com method=GET outcome=503 attempt=1 max_attempts=6 wait_ms=380",
        "WARN throttle refused a request host=api.example.com method=GET reason=wait_too_long depth=0 \
         waited_ms=0 retry_after_ms=99620 refusals=1 advice=\"raise max_queue_wait to wait longer\"",
        "WARN giving up host=api.example.com method=GET outcome=503 stop_reason=throttled effect=unknown \
         attempt=1 max_attempts=6 waited_ms=380 took_ms=380",
    ];
    expect(&lines, || async {
        let server = Server::statuses([503]);
        let throttle = throttle().rate(0.01, 1).max_queue_wait(MS);
        let client = throttled(&server, exact(), throttle);
        assert_eq!(client.get(URL).send().await.unwrap().status(), 503);
        assert_eq!(server.count(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_its_deadline_says_so() {
    let lines = [
        "WARN throttle refused a request host=api.example.com method=GET reason=deadline_too_close depth=0 \
         waited_ms=0 retry_after_ms=100000 refusals=1 advice=\"raise the deadline to wait longer\"",
        // The throttle has logged it, so the end of the call is only for those who want to see all.
        "DEBUG giving up host=api.example.com method=GET outcome=throttled stop_reason=throttled effect=did_not_happen \
         attempt=1 max_attempts=6 waited_ms=0 took_ms=0",
    ];
    expect(&lines, || async {
        let server = Server::statuses([200]);
        let levels = LogLevels::default().success(LevelFilter::OFF);
        let client = throttled(
            &server,
            exact().log_levels(levels),
            throttle().rate(0.01, 1),
        );
        send(&client, 1).await;
        let refused = client.get(URL).deadline(SEC).send().await;
        assert!(refused.is_err());
        assert_eq!(server.count(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_from_a_function_is_never_logged() {
    let log = Log::up_to(LevelFilter::TRACE).await;
    let server = Server::new(|_| respond_with(429, &[("retry-after", "30")]));
    let key = KeyBy::from_fn(|_| "api-key-of-a-tenant".into());
    let throttle = throttle().key_by(key).max_queue_wait(SEC);
    let client = throttled(&server, exact().seed(1), throttle);
    send(&client, 2).await;
    let lines = log.lines();
    let texts: Vec<_> = lines.iter().filter(|it| it.contains("throttle")).collect();
    assert_eq!(texts.len(), 8, "{lines:?}");
    for line in &lines {
        assert!(line.contains(" host=api.example.com"), "{line}");
        assert!(!line.contains("tenant"), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_a_throttles_lines_has_its_level() {
    let error = LevelFilter::ERROR;
    let off = LogLevels::off;
    for (levels, expected) in [
        (off(), &[][..]),
        (
            off().pause(error),
            &["ERROR throttle paused", "ERROR throttle reopened"],
        ),
        (off().pace(error), &["ERROR throttle lowered the pace"]),
        (off().refusal(error), &["ERROR throttle refused a request"]),
    ] {
        let log = Log::up_to(LevelFilter::TRACE).await;
        let server = Server::statuses([429, 200]);
        let client = behind(&server, throttle().max_queue(1).log_levels(levels));
        send(&client, 1).await;
        join_all((0..3).map(|_| client.get(URL).send())).await;
        let lines = log.lines();
        let texts = lines
            .iter()
            .map(|line| line.split(" host=").next().unwrap());
        assert_eq!(texts.collect::<Vec<_>>(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_in_trouble_for_an_hour_makes_few_lines() {
    let log = Log::up_to(LevelFilter::TRACE).await;
    let server = Server::new(|_| respond(503));
    let client = behind(&server, throttle());
    for _ in 0..36_000 {
        touch(&client).await;
        sleep(99 * MS).await;
    }
    let lines = log.lines();
    let pauses = lines.iter().filter(|it| it.contains("throttle paused"));
    assert!(pauses.count() < 150, "{lines:#?}");
    // One for each second in which calls were refused.
    assert!(lines.len() < 600, "{lines:#?}");
}

/// Adds an extension that the library does not know.
struct Stranger;

#[async_trait::async_trait]
impl Middleware for Stranger {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        extensions.insert(Unknown);
        next.run(request, extensions).await
    }
}

#[derive(Clone)]
struct Unknown;

async fn get_through(chain: impl IntoIterator<Item = Arc<dyn Middleware>>) {
    let server = Server::statuses([503, 200]);
    let _ = server.client_behind(chain).get(URL).send().await;
}

#[tokio::test(start_paused = true)]
async fn a_download_that_goes_on_is_logged() {
    let expected = [
        "TRACE call succeeded host=api.example.com method=GET outcome=200 attempt=1 max_attempts=6 \
         waited_ms=0 took_ms=0",
        "INFO download broke off, asking for the rest host=api.example.com received=4 resumes=1 \
         cause=reset",
        "TRACE call succeeded host=api.example.com method=GET outcome=206 attempt=1 max_attempts=6 \
         waited_ms=0 took_ms=0",
    ];
    expect(&expected, || async {
        let file = Hosted::new(*b"halfhalf");
        let server = serve(move |before, request| match before {
            0 => file.reply(request, 4, Then::Fail),
            _ => file.reply(request, 8, Then::End),
        });
        let client = server.client(exact().build().unwrap());
        let mut download = client.get(URL).download().await.unwrap();
        while download.chunk().await.unwrap().is_some() {}
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn misuse_is_logged_with_advice() {
    let retry = || Arc::new(exact().log_levels(LogLevels::off()).build().unwrap());
    let line =
        "WARN two RetryMiddlewares in one chain share their retries advice=\"remove one of them\"";
    expect(&[line], || async {
        let server = Server::statuses([503, 200]);
        let client = server.client_behind([retry() as Arc<dyn Middleware>, retry()]);
        send(&client, 2).await;
    })
    .await;
    let line = "WARN ThrottleMiddleware is outside RetryMiddleware and does not see each attempt \
                advice=\"add it to the ClientBuilder after the retry\"";
    expect(&[line], || {
        get_through([
            Arc::new(ThrottleMiddleware::default()) as Arc<dyn Middleware>,
            retry(),
        ])
    })
    .await;
    let line = "WARN CoalesceMiddleware is inside RetryMiddleware and shares attempts instead of calls \
                advice=\"add it to the ClientBuilder before the retry\"";
    expect(&[line], || {
        get_through([
            retry() as Arc<dyn Middleware>,
            Arc::new(CoalesceMiddleware::default()),
        ])
    })
    .await;
    let line = "WARN request not coalesced because it has unknown extensions \
                advice=\"call ignore_extensions(true) if no inner middleware responds differently because of them\"";
    expect(&[line], || {
        get_through([
            Arc::new(Stranger) as Arc<dyn Middleware>,
            Arc::new(CoalesceMiddleware::default()),
        ])
    })
    .await;
    let line = "WARN request will not be sent error=the idempotency key is empty";
    expect(&[line], || async {
        let client = ClientBuilder::new(reqwest::Client::new()).build();
        client
            .post(URL)
            .idempotency_key("")
            .send()
            .await
            .unwrap_err();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_is_logged() {
    let retry = || {
        exact().observe_fn(|event| {
            assert_ne!(event.kind, EventKind::AttemptStarted);
        })
    };
    let line = "ERROR observer panicked and missed an event";
    expect(&[line], || {
        get(retry().log_levels(LogLevels::off()), |_| respond(200))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_may_be_lost_is_logged() {
    type Deliver = fn() -> Delivery<'static>;
    struct Sink(Deliver);
    impl DeadLetterSink for Sink {
        fn deliver(&self, _: Arc<DeadLetter>) -> Delivery<'_> {
            (self.0)()
        }
    }
    let cases: [(Deliver, &str); 3] = [
        (
            || Box::pin(async { Err("the disk is full".into()) }),
            "outcome=failed error=\"the disk is full\"",
        ),
        (|| Box::pin(std::future::pending()), "outcome=timed_out"),
        (|| Box::pin(async { panic!("full") }), "outcome=panicked"),
    ];
    for (deliver, fields) in cases {
        let line = format!("WARN dead letter not confirmed host=api.example.com {fields}");
        let retry = || {
            let retry = exact().max_retries(0).dead_letter_sink(Sink(deliver));
            retry.log_levels(LogLevels::off())
        };
        expect(&[&line], || get(retry(), |_| respond(503))).await;
    }
}

/// The example lines in the docs of [`LogLevels`].
fn lines_in_docs() -> Vec<&'static str> {
    let source = include_str!("../src/observe/log_levels.rs");
    let block = source.split("/// ```text\n").nth(1).unwrap();
    let block = block.split("/// ```").next().unwrap();
    block
        .lines()
        .map(|line| line.trim_start_matches("/// "))
        .collect()
}

/// Level and text.
fn event_of(line: &str) -> &str {
    line.split(" host=").next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_docs_show_every_line_as_it_is_written() {
    let log = Log::up_to(LevelFilter::TRACE).await;
    let flaky = |index| match index {
        0 => respond_with(503, &[("retry-after-ms", "0")]),
        _ => respond(200),
    };
    get(exact(), flaky).await;
    get(exact(), |_| respond(200)).await;
    get(exact(), |_| respond(404)).await;
    get(exact(), |_| respond_with(503, &[("retry-after", "3600")])).await;
    get(exact().dry_run(true), |_| respond(503)).await;
    let failing = client(exact(), |_| late(MS, respond(503)));
    let first = failing.get(URL).max_retries(1);
    assert_eq!(first.send().await.unwrap().status(), 503);
    assert!(timeout(SEC, failing.get(URL).send()).await.is_err());
    let empty = Budget::builder().retry_ratio(0.0).min_retries_per_sec(0.0);
    let refused = exact().budget(empty.build().unwrap()).deadline(SEC);
    get(refused, |_| respond(429)).await;
    let slow = client(exact(), |_| Reply::silence());
    assert!(timeout(SEC, slow.get(URL).send()).await.is_err());
    lower_and_free_the_pace().await;
    overload().await;

    let written = log.lines();
    for line in lines_in_docs() {
        assert!(written.iter().any(|it| it == line), "{line}\n{written:#?}");
    }
    for line in &written {
        let is_same = |it: &&str| event_of(it) == event_of(line);
        assert!(
            lines_in_docs().iter().any(is_same),
            "not in the docs: {line}"
        );
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn all_macros_of_tracing_name_the_one_target() {
    let mut macros = 0;
    for file in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let source = fs::read_to_string(&file).unwrap();
        for level in ["error", "warn", "info", "debug", "trace", "event"] {
            for after in source.split(&format!("tracing::{level}!(")).skip(1) {
                macros += 1;
                let is_named = after.trim_start().starts_with("target: TARGET,");
                assert!(is_named, "{}: {after:.60}", file.display());
            }
        }
    }
    assert_eq!(macros, 12);
}
