//! What is said in the log of calls: once for each retry and each end, calmly, and as loud as asked.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::Middleware;
use reqwest_steady::{
    Attempt, Backoff, Budget, Jitter, LogLevels, RequestBuilderExt, RetryMiddleware,
    RetryMiddlewareBuilder,
};
use reqwest_tracing::{ReqwestOtelSpanBackend, TracingMiddleware, reqwest_otel_span};
use tokio::time::timeout;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

use crate::support::scripted::{Reply, Server, URL, answer, answer_with};
use crate::support::trace::{Fields, Trace};

const MS: Duration = Duration::from_millis(1);

fn exact() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder().backoff(Backoff::exponential(380 * MS).jitter(Jitter::None))
}

/// What is said of one GET.
async fn said(server: &Arc<Server>, retry: RetryMiddlewareBuilder) -> Vec<String> {
    let trace = Trace::default();
    let _guard = tracing::subscriber::set_default(trace.clone());
    let client = server.client(retry.build().unwrap());
    // What comes back is looked at elsewhere.
    let _ = client.get(URL).send().await;
    trace.messages()
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_said_with_what_happened_and_what_follows() {
    let server = Server::new(|index| match index {
        0 => answer(503),
        1 => Reply::Fail(ErrorKind::ConnectionReset),
        2 => answer_with(429, &[("retry-after-ms", "0")]),
        _ => answer(200),
    });
    assert_eq!(
        said(&server, exact()).await,
        [
            "INFO 503 from api.example.com, attempt 1 of 6, again in 380 ms",
            "INFO connection lost to api.example.com, attempt 2 of 6, again in 760 ms",
            "INFO 429 from api.example.com, attempt 3 of 6, again in 1.5 s",
            "DEBUG 200 from api.example.com, attempt 4 of 6, after a wait of 2.7 s",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_end_is_said_with_its_reason() {
    let empty = Budget::builder().min_retries_per_sec(0.1).build().unwrap();
    assert!(empty.try_withdraw());
    for (reply, retry, expected) in [
        (
            answer(200),
            exact(),
            "TRACE 200 from api.example.com, attempt 1 of 6",
        ),
        (
            answer(404),
            exact(),
            "DEBUG 404 from api.example.com, attempt 1 of 6, not again: \
             another try would end the same way",
        ),
        (
            answer_with(503, &[("x-should-retry", "false")]),
            exact(),
            "DEBUG 503 from api.example.com, attempt 1 of 6, not again: \
             the server says that it is of no use",
        ),
        (
            answer_with(503, &[("retry-after", "3600")]),
            exact(),
            "WARN 503 from api.example.com, attempt 1 of 6, not again: \
             the server asks for a longer pause than is allowed",
        ),
        (
            answer(503),
            exact().budget(empty),
            "WARN 503 from api.example.com, attempt 1 of 6, not again: the retry budget is empty",
        ),
        (
            answer(503),
            exact().max_retries(0),
            "DEBUG 503 from api.example.com, attempt 1 of 1, not again: \
             retries are turned off for it",
        ),
        (
            Reply::Fail(ErrorKind::TimedOut),
            exact().retry_window(MS),
            "WARN no answer in time from api.example.com, attempt 1 of 6, not again: \
             the retry window is over",
        ),
    ] {
        let reply = std::sync::Mutex::new(Some(reply));
        let server = Server::new(move |_| reply.lock().unwrap().take().unwrap());
        assert_eq!(said(&server, retry).await, [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_retried_is_named_as_well() {
    let trace = Trace::default();
    let _guard = tracing::subscriber::set_default(trace.clone());
    let server = Server::new(|_| Reply::Silence);
    let client = server.client(exact().attempt_timeout(MS).build().unwrap());
    client.post(URL).send().await.unwrap_err();
    let said = trace.events();
    let [(level, text, fields)] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(*level, Level::WARN);
    assert_eq!(
        text,
        "no answer in time from api.example.com, attempt 1 of 6, not again: \
         it may have had its effect, and carries no idempotency key"
    );
    assert_eq!(fields["method"], "POST");
}

#[tokio::test(start_paused = true)]
async fn the_fields_are_there_for_machines() {
    let trace = Trace::default();
    let _guard = tracing::subscriber::set_default(trace.clone());
    let server = Server::new(|_| answer_with(503, &[("retry-after-ms", "0")]));
    let client = server.client(exact().max_retries(1).build().unwrap());
    client.get(URL).send().await.unwrap();
    let fields = |pairs: &[(&str, &str)]| -> Fields {
        let pairs = pairs.iter().copied();
        pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    };
    let said: Vec<_> = trace.events().into_iter().map(|(_, _, it)| it).collect();
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
                ("reason", "retries_exhausted"),
                ("waited_ms", "380"),
                ("took_ms", "380"),
            ]),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_log_is_as_loud_as_it_is_told_to_be() {
    let server = Server::statuses(&[503]);
    let quiet = exact().max_retries(1).log_levels(LogLevels::off());
    assert_eq!(said(&server, quiet).await, [""; 0]);
    let levels = LogLevels::default()
        .retry(LevelFilter::TRACE)
        .given_up(LevelFilter::ERROR);
    let retry = exact().max_retries(1).log_levels(levels);
    assert_eq!(
        said(&server, retry).await,
        [
            "TRACE 503 from api.example.com, attempt 1 of 2, again in 380 ms",
            "ERROR 503 from api.example.com, attempt 2 of 2, not again: all retries were made",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_what_it_would_do() {
    let server = Server::statuses(&[503]);
    assert_eq!(
        said(&server, exact().dry_run(true)).await,
        [
            "INFO 503 from api.example.com, attempt 1 of 6, would go again (dry run) in 380 ms",
            "DEBUG 503 from api.example.com, attempt 1 of 6, not again: this is a dry run",
        ]
    );
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_is_said() {
    let trace = Trace::default();
    let _guard = tracing::subscriber::set_default(trace.clone());
    let server = Server::statuses(&[503]);
    let client = server.client(exact().build().unwrap());
    assert!(timeout(MS, client.get(URL).send()).await.is_err());
    let said = trace.messages();
    assert_eq!(said.len(), 2);
    assert_eq!(
        said[1],
        "DEBUG the call to api.example.com was dropped at attempt 1"
    );
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_is_not_delivered_is_said() {
    struct Full;
    impl reqwest_steady::DeadLetterSink for Full {
        fn deliver(&self, _: Arc<reqwest_steady::DeadLetter>) -> reqwest_steady::Delivery<'_> {
            Box::pin(async { Err("the disk is full".into()) })
        }
    }
    let server = Server::statuses(&[503]);
    let said = said(&server, exact().max_retries(0).dead_letter_sink(Full)).await;
    assert_eq!(
        said[1..],
        [
            "WARN a dead letter about a call to api.example.com was not delivered (failed): \
          the disk is full"
        ]
    );
}

/// What a user of reqwest-tracing writes to have the number of the attempt in each span.
struct WithResendCount;

impl ReqwestOtelSpanBackend for WithResendCount {
    fn on_request_start(request: &Request, extensions: &mut Extensions) -> Span {
        let count = Attempt::of(extensions).resend_count();
        let name = request.method().as_str();
        reqwest_otel_span!(name = name, request, http.request.resend_count = count)
    }

    fn on_request_end(
        span: &Span,
        outcome: &reqwest_middleware::Result<Response>,
        _: &mut Extensions,
    ) {
        reqwest_tracing::default_on_request_end(span, outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn reqwest_tracing_inside_has_one_span_for_each_attempt_with_its_resend_count() {
    let trace = Trace::default();
    let _guard = tracing::subscriber::set_default(trace.clone());
    let server = Server::statuses(&[503, 503, 200]);
    let spans = TracingMiddleware::<WithResendCount>::new();
    let client = server.client_behind([
        Arc::new(exact().build().unwrap()) as Arc<dyn Middleware>,
        Arc::new(spans),
    ]);
    let response = client.post(URL).idempotency_key("one").send().await;
    assert_eq!(response.unwrap().status(), 200);
    let spans = trace.spans();
    let seen: Vec<_> = spans
        .iter()
        .map(|span| {
            let field = |name: &str| span.get(name).map(String::as_str);
            (
                field("http.response.status_code"),
                field("http.request.resend_count"),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Some("503"), None),
            (Some("503"), Some("1")),
            (Some("200"), Some("2")),
        ]
    );
}
