//! The beginning of a body decides: which verdicts are followed, and that the caller's bytes stay the same.

mod bodies;
mod calls;
mod events;
mod shapes;
mod wire;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::{Body, Response};
use reqwest_middleware::ClientWithMiddleware;
use reqwest_steady::dead_letter::{LetterBody, dead_letter_channel};
use reqwest_steady::{
    AttemptView, BodyStart, BodyVerdict, Budget, Effect, Inspect, ReportSlot, RequestBuilderExt,
    RetryMiddlewareBuilder, RetryReport, SteadyError, StopReason, ThrottleMiddleware,
};
use tokio::time::Instant;

use crate::support::chains::link;
use crate::support::scripted::{Reply, Server, URL, respond, respond_with, throttled};
use crate::support::stacks::{MS, SEC, retry_after, saved_budget};

/// Waits 1 ms before the first retry, then twice as long each time.
fn quick() -> RetryMiddlewareBuilder {
    retry_after(MS)
}

/// Retries a body that says "again", stops at one that says "stop", and is unsure about "perhaps".
fn by_word(_: &AttemptView<'_>, start: &BodyStart<'_>) -> Option<BodyVerdict> {
    let text = start.text();
    match () {
        () if text.contains("again") => Some(BodyVerdict::retry()),
        () if text.contains("perhaps") => Some(BodyVerdict::conditional()),
        () if text.contains("stop") => Some(BodyVerdict::never()),
        () => None,
    }
}

/// The bytes that a function saw, and whether they were complete.
type Sight = (Vec<u8>, bool);

/// What functions have seen.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Sight>>>);

impl Seen {
    fn all(&self) -> Vec<Sight> {
        self.0.lock().unwrap().clone()
    }

    /// Adds a rule that notes what it sees, and then decides by [`by_word`].
    fn watch(&self, retry: RetryMiddlewareBuilder, what: Inspect) -> RetryMiddlewareBuilder {
        let seen = self.0.clone();
        retry.inspect_body(what, move |attempt, start| {
            let sight = (start.bytes().to_vec(), start.is_complete());
            seen.lock().unwrap().push(sight);
            by_word(attempt, start)
        })
    }
}

fn client(server: &Arc<Server>, retry: RetryMiddlewareBuilder) -> ClientWithMiddleware {
    server.client(retry.build().unwrap())
}

fn stop_reason(response: &Response) -> StopReason {
    RetryReport::of(response).unwrap().stop_reason()
}

/// The error of a connection that ends too early.
fn cut_off() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "cut off")
}

/// A body of these parts.
fn parts<T: Into<bytes::Bytes> + Send + 'static>(parts: Vec<T>) -> Body {
    let parts = parts
        .into_iter()
        .map(|part| Ok::<_, std::io::Error>(part.into()));
    Body::wrap_stream(futures_util::stream::iter(parts))
}

#[tokio::test(start_paused = true)]
async fn a_used_up_quota_in_a_429_is_final() {
    const QUOTA: &str = r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}"#;
    const BUSY: &str = r#"{"error":{"type":"requests","code":"rate_limit_exceeded"}}"#;
    for (body, requests) in [(QUOTA, 1), (BUSY, 2)] {
        let server = Server::new(move |index| match index {
            0 => Reply::status(429)
                .header("content-type", "application/json; charset=utf-8")
                .body(body),
            _ => respond(200),
        });
        let json = Inspect::errors().content_type("application/json");
        let retry = quick().inspect_body(json, |attempt, start| {
            assert_eq!((attempt.attempt(), attempt.url().as_str()), (1, URL));
            assert!(attempt.status()? == 429 && start.is_complete());
            let is_used_up = start.text().contains("insufficient_quota");
            is_used_up.then(BodyVerdict::never)
        });
        let response = client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!(server.count(), requests);
        if requests == 1 {
            assert_eq!(response.status(), 429);
            assert_eq!(stop_reason(&response), StopReason::NotRetryable);
            assert_eq!(response.content_length(), Some(QUOTA.len() as u64));
            assert_eq!(response.url().as_str(), URL);
            assert_eq!(
                response.headers()["content-type"],
                "application/json; charset=utf-8"
            );
            assert_eq!(response.text().await.unwrap(), QUOTA);
        } else {
            assert_eq!(server.gaps(), [MS]);
        }
    }
}

/// Gemini names the wait in the body: `"retryDelay": "30s"`.
fn by_retry_delay(_: &AttemptView<'_>, start: &BodyStart<'_>) -> Option<BodyVerdict> {
    let text = start.text();
    let (_, rest) = text.split_once("\"retryDelay\": \"")?;
    let seconds = rest.split_once("s\"")?.0.parse().ok()?;
    Some(BodyVerdict::retry().after(Duration::from_secs(seconds)))
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_the_body_counts_like_one_in_a_header() {
    for (in_body, header, wait) in [(30, None, 30), (30, Some("2"), 30), (2, Some("40"), 40)] {
        let server = Server::new(move |index| match (index, header) {
            (0, header) => {
                let body = format!(r#"{{"details": [{{"retryDelay": "{in_body}s"}}]}}"#);
                let reply = Reply::status(429).body(body);
                match header {
                    Some(header) => reply.header("retry-after", header),
                    None => reply,
                }
            }
            _ => respond(200),
        });
        let retry = quick().inspect_body(Inspect::errors(), by_retry_delay);
        let response = client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!(server.count(), 2);
        let (gap, wait) = (server.gaps()[0], wait * SEC);
        // A hint gets some jitter on top.
        assert!(gap >= wait && gap <= wait + wait / 4 + SEC, "{gap:?}");
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.attempts().next().unwrap().hint(), Some(wait));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_the_body_has_the_same_limit() {
    let server = Server::new(|_| Reply::status(429).body(r#""retryDelay": "61s""#));
    let retry = quick().inspect_body(Inspect::errors(), by_retry_delay);
    let response = client(&server, retry).get(URL).send().await.unwrap();
    assert_eq!(server.count(), 1);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::ServerDelayTooLong);
    assert_eq!(report.attempts().last().unwrap().hint(), Some(61 * SEC));
}

#[tokio::test(start_paused = true)]
async fn an_error_in_a_200_is_retried() {
    const S3: &str = "<?xml version=\"1.0\"?>\n<Error><Code>SlowDown</Code></Error>";
    const GRAPHQL: &str = r#"{"data":null,"errors":[{"extensions":{"code":"THROTTLED"}}]}"#;
    for error in [S3, GRAPHQL] {
        let server = Server::new(move |index| match index {
            0 | 1 => Reply::status(200).body(error),
            _ => Reply::status(200).body("<CopyObjectResult/>"),
        });
        let retry = quick().inspect_body(Inspect::all(), |_, start| {
            let text = start.text();
            let is_error = text.contains("<Error>") || text.contains("THROTTLED");
            is_error.then(BodyVerdict::conditional)
        });
        let response = client(&server, retry).put(URL).send().await.unwrap();
        assert_eq!(server.count(), 3);
        assert_eq!(server.gaps(), [MS, 2 * MS]);
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.stop_reason(), StopReason::Succeeded);
        let effects: Vec<_> = report.attempts().map(|attempt| attempt.effect()).collect();
        assert_eq!(
            effects,
            [Effect::Unknown, Effect::Unknown, Effect::Happened]
        );
        assert_eq!(response.text().await.unwrap(), "<CopyObjectResult/>");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_verdict_everything_is_as_before() {
    for (method, statuses) in [
        ("GET", [503, 200]),
        ("GET", [200, 200]),
        ("GET", [404, 200]),
        ("POST", [503, 200]),
        ("PUT", [409, 200]),
    ] {
        let method: http::Method = method.parse().unwrap();
        let run = async |retry: RetryMiddlewareBuilder| {
            let server = Server::statuses(statuses);
            let client = client(&server, retry);
            let response = client.request(method.clone(), URL).send().await.unwrap();
            let report = RetryReport::of(&response).unwrap().clone();
            let facts = (response.status(), report.stop_reason(), report.effect());
            let length = response.content_length();
            (
                server.count(),
                server.gaps(),
                facts,
                length,
                response.text().await.unwrap(),
            )
        };
        let plain = run(quick()).await;
        let inspected = run(quick().inspect_body(Inspect::all(), |_, _| None)).await;
        assert_eq!(inspected, plain, "{method} {statuses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_without_a_key_needs_more_than_conditional() {
    for (word, status) in [("perhaps", 200), ("again", 200), ("perhaps", 503)] {
        let script = move |index| match index {
            0 => Reply::status(status).body(word),
            _ => respond(200),
        };
        let server = Server::new(script);
        let retry = || quick().inspect_body(Inspect::all(), by_word);
        let slot = ReportSlot::new();
        let post = client(&server, retry()).post(URL).report_to(&slot);
        let response = post.send().await.unwrap();
        assert_eq!(server.count(), 1);
        assert_eq!(stop_reason(&response), StopReason::NotIdempotent);
        assert_eq!(slot.effect(), Effect::Unknown);
        assert_eq!(response.text().await.unwrap(), word);

        let server = Server::new(script);
        let keyed = client(&server, retry()).post(URL).idempotency_key("1");
        assert_eq!(keyed.send().await.unwrap().status(), 200);
        assert_eq!((server.count(), server.gaps()), (2, vec![MS]));

        // A refusal is retried without a key if the client says so, a doubt is not.
        let server = Server::new(script);
        let careless = retry()
            .client_follows_redirects(false)
            .retry_without_key(true);
        client(&server, careless).post(URL).send().await.unwrap();
        assert_eq!(
            server.count(),
            if word == "again" { 2 } else { 1 },
            "{word}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_directive_stops_a_retry_but_does_not_force_one() {
    for (word, status, directive, requests, reason) in [
        ("again", 200, "false", 1, StopReason::ServerVeto),
        ("perhaps", 503, "false", 1, StopReason::ServerVeto),
        ("stop", 503, "true", 1, StopReason::NotRetryable),
        ("stop", 429, "true", 1, StopReason::NotRetryable),
        ("stop", 200, "true", 1, StopReason::NotRetryable),
        ("stop", 200, "none", 1, StopReason::NotRetryable),
        ("nothing", 400, "true", 2, StopReason::Succeeded),
        ("nothing", 503, "false", 1, StopReason::ServerVeto),
    ] {
        let server = Server::new(move |index| match index {
            0 => respond_with(status, &[("x-should-retry", directive)]).body(word),
            _ => respond(200),
        });
        let retry = quick().inspect_body(Inspect::all(), by_word);
        let response = client(&server, retry).get(URL).send().await.unwrap();
        let place = format!("{word} {status} {directive}");
        assert_eq!(
            (server.count(), stop_reason(&response)),
            (requests, reason),
            "{place}"
        );
        assert_eq!(server.gaps(), vec![MS; requests - 1], "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_that_matches_looks_at_the_response() {
    let server = Server::new(|index| match index {
        0 => respond_with(503, &[("content-type", "text/html")]).body("stop"),
        1 => respond_with(503, &[("content-type", "TEXT/Plain;charset=utf-8")]).body("stop"),
        _ => respond(200),
    });
    let (html, plain, any) = (Seen::default(), Seen::default(), Seen::default());
    let retry = quick().inspect_body(Inspect::errors().content_type("text/html"), |_, _| None);
    let retry = html.watch(retry, Inspect::errors().content_type("text/html"));
    let text = Inspect::errors()
        .content_type("a/b")
        .content_type("text/plain");
    let retry = any.watch(plain.watch(retry, text), Inspect::errors());
    let response = client(&server, retry).get(URL).send().await.unwrap();
    assert_eq!(server.count(), 2);
    assert_eq!(stop_reason(&response), StopReason::NotRetryable);
    assert_eq!(html.all(), []);
    assert_eq!(plain.all(), [(b"stop".to_vec(), true)]);
    assert_eq!(any.all(), []);
}

#[tokio::test(start_paused = true)]
async fn responses_without_a_body_are_not_looked_at() {
    for (method, status) in [
        ("HEAD", 200),
        ("HEAD", 404),
        ("GET", 204),
        ("GET", 304),
        ("GET", 101),
    ] {
        let server = Server::statuses([status]);
        let seen = Seen::default();
        let client = client(&server, seen.watch(quick(), Inspect::all()));
        let method: http::Method = method.parse().unwrap();
        client.request(method.clone(), URL).send().await.unwrap();
        assert_eq!(
            (server.count(), seen.all()),
            (1, vec![]),
            "{method} {status}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_looks_at_bodies_too() {
    for (word, reason) in [
        ("again", StopReason::DryRun),
        ("stop", StopReason::NotRetryable),
        ("nothing", StopReason::Succeeded),
    ] {
        let server = Server::new(move |_| Reply::status(200).body(word));
        let retry = quick().dry_run(true).inspect_body(Inspect::all(), by_word);
        let response = client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!((server.count(), stop_reason(&response)), (1, reason));
        assert_eq!(response.text().await.unwrap(), word);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_body_is_shown_or_stored() {
    const SECRET: &str = "hunter2";
    let server = Server::new(|_| Reply::status(200).body(format!("again {SECRET}")));
    let events = Arc::new(Mutex::new(String::new()));
    let (sink, mut letters) = dead_letter_channel(1);
    let shown = events.clone();
    let retry = quick().max_retries(1).dead_letter_sink(sink);
    let retry = retry
        .observe_fn(move |event| *shown.lock().unwrap() += &format!("{event:?}"))
        .inspect_body(Inspect::all(), {
            let shown = events.clone();
            move |attempt, start| {
                *shown.lock().unwrap() += &format!("{attempt:?} {start:?}");
                by_word(attempt, start)
            }
        });
    let client = client(&server, retry);
    let response = client.put(URL).body("order").send().await.unwrap();
    assert_eq!((server.count(), server.gaps()), (2, vec![MS]));
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
    let letter = letters.recv().await.unwrap();
    let events = events.lock().unwrap().clone();
    assert!(events.contains("BodyStart") && events.contains("RetryScheduled"));
    for shown in [events, format!("{report:?} {letter:?} {letter}")] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
    assert_eq!(*letter.body(), LetterBody::Bytes("order".into()));
    assert_eq!(response.text().await.unwrap(), "again hunter2");
}

#[test]
fn the_settings_show_rules_and_not_functions() {
    let json = Inspect::errors().limit(7).content_type("application/json");
    let retry = quick().inspect_body(json, |_, _| None);
    for shown in [
        format!("{retry:?}"),
        format!("{:?}", retry.build().unwrap()),
    ] {
        let rule = "inspect_body: [Inspect { statuses: Errors, limit: 7, timeout: 30s, \
                    content_types: [\"application/json\"] }]";
        assert!(shown.contains(rule), "{shown}");
    }
    assert!(!format!("{:?}", quick()).contains("inspect_body"));
}

#[test]
fn a_content_type_that_matches_nothing_is_refused() {
    for value in [
        "json",
        "",
        "application/json; charset=utf-8",
        "text /plain",
        "a/b ",
    ] {
        let what = Inspect::all()
            .content_type("text/plain")
            .content_type(value);
        let error = quick().inspect_body(what, |_, _| None).build().unwrap_err();
        assert_eq!(error.setting(), "inspect_body content_type");
        assert_eq!(error.value(), format!("{value:?}"));
    }
    let what = Inspect::all().timeout(Duration::ZERO);
    let error = quick().inspect_body(what, |_, _| None).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "inspect_body timeout (0s) should be longer than zero"
    );
}

/// A throttle with one slot, which another call takes before the retry.
#[tokio::test(start_paused = true)]
async fn a_throttle_that_refuses_the_retry_leaves_all_as_it_was() {
    let server = Server::by_request(|request| match request.url().path() {
        "/other" => respond(200).after(10 * SEC),
        _ => Reply::status(200)
            .header("x-own", "1")
            .body("again, please"),
    });
    let budget = saved_budget(10);
    let retry = retry_after(SEC).budget(budget.clone());
    let retry = retry.inspect_body(Inspect::all(), by_word);
    let throttle = ThrottleMiddleware::builder().adaptive(false);
    let throttle = throttle.max_in_flight(1).max_queue(0);
    let client = throttled(&server, retry, throttle);
    let other = async {
        tokio::time::sleep(500 * MS).await;
        client
            .get("http://api.example.com/other")
            .send()
            .await
            .unwrap()
    };
    let start = Instant::now();
    let own = async {
        let response = client.get(URL).send().await.unwrap();
        // The other call has not succeeded yet, so nothing was added.
        (response, budget.balance(), start.elapsed())
    };
    let ((response, balance, took), _) = tokio::join!(own, other);
    assert_eq!(server.count(), 2);
    assert_eq!((took, balance), (SEC, 10.0));
    assert_eq!(stop_reason(&response), StopReason::Throttled);
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-own"]),
        (200, &"1".parse().unwrap())
    );
    assert_eq!(response.text().await.unwrap(), "again, please");
}

#[tokio::test(start_paused = true)]
async fn with_buffer_response_the_rest_is_read_after_the_verdict() {
    // The verdict needs the first 5 bytes, and the body breaks after them.
    let broken = || {
        let parts = [Ok("start"), Err(cut_off())];
        Body::wrap_stream(futures_util::stream::iter(parts))
    };
    for (word, requests) in [("start", 2), ("stops", 1)] {
        let server = Server::new(move |index| match index {
            0 => Reply::status(200).body(broken()),
            _ => Reply::status(200).body("whole"),
        });
        let retry = quick().inspect_body(Inspect::all().limit(5), move |_, start| {
            // `never` is final, even if the body breaks off later.
            (word == "stops" && start.bytes() == b"start").then(BodyVerdict::never)
        });
        let get = client(&server, retry).get(URL).buffer_response(100);
        let result = get.send().await;
        assert_eq!(server.count(), requests, "{word}");
        assert_eq!(server.gaps(), vec![MS; requests - 1]);
        assert_eq!(result.is_ok(), requests == 2);
    }
    let server = Server::new(|index| match index {
        0 => Reply::status(200).body(parts(vec!["again", " and the rest"])),
        _ => Reply::status(200).body(parts(vec!["first", " and the rest"])),
    });
    let retry = quick().inspect_body(Inspect::all().limit(5), by_word);
    let get = client(&server, retry).get(URL).buffer_response(100);
    let response = get.send().await.unwrap();
    assert_eq!((server.count(), server.gaps()), (2, vec![MS]));
    assert_eq!(response.content_length(), Some(18)); // it is in memory
    assert_eq!(response.text().await.unwrap(), "first and the rest");
}

#[tokio::test(start_paused = true)]
async fn a_retried_success_costs_budget_and_an_empty_one_stops_it() {
    let server = Server::new(|_| Reply::status(200).body("again"));
    let none = Budget::builder().retry_ratio(0.0).min_retries_per_sec(0.0);
    let retry = quick().budget(none.build().unwrap());
    let retry = retry.inspect_body(Inspect::all(), by_word);
    let response = client(&server, retry).get(URL).send().await.unwrap();
    assert_eq!(
        (server.count(), stop_reason(&response)),
        (1, StopReason::BudgetEmpty)
    );
    assert_eq!(response.text().await.unwrap(), "again");
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_names_its_error() {
    let server = Server::new(|_| Reply::status(200).body(bodies::stalled("")));
    let retry = quick().max_retries(1).attempt_timeout(SEC);
    let client = client(&server, retry.inspect_body(Inspect::all(), by_word));
    let error = client.get(URL).send().await.unwrap_err();
    let own = SteadyError::of(&error).unwrap();
    assert!(own.is_timeout(), "{own}");
    assert_eq!((server.count(), server.gaps()), (2, vec![SEC + MS]));
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_an_outer_retry_reaches_the_throttle_too() {
    // The inner retry does not look at bodies, and its throttle refuses the retry of the outer one.
    let server = Server::by_request(|request| match request.url().path() {
        "/other" => respond(200).after(10 * SEC),
        _ => Reply::status(200).body("again, please"),
    });
    let budget = saved_budget(10);
    let outer = retry_after(SEC).budget(budget.clone());
    let outer = link(outer.inspect_body(Inspect::all(), by_word).build().unwrap());
    let throttle = ThrottleMiddleware::builder().adaptive(false);
    let throttle = throttle.max_in_flight(1).max_queue(0).build().unwrap();
    let inner = link(quick().build().unwrap());
    let client = server.client_behind([outer, inner, link(throttle)]);
    let other = async {
        tokio::time::sleep(500 * MS).await;
        let other = client.get("http://api.example.com/other").send().await;
        other.unwrap()
    };
    let start = Instant::now();
    let own = async {
        let response = client.get(URL).send().await.unwrap();
        (response, start.elapsed())
    };
    let ((response, took), _) = tokio::join!(own, other);
    assert_eq!((server.count(), took), (2, SEC));
    assert_eq!(stop_reason(&response), StopReason::Throttled);
    assert_eq!(response.text().await.unwrap(), "again, please");
}
