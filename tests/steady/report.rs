//! What users and other middlewares see: reports, errors and extensions.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Extensions, StatusCode};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};
use reqwest_steady::observe::{Attempt, AttemptOutcome, FailureKind, RefusalReason};
use reqwest_steady::{
    Backoff, ReportSlot, RequestBuilderExt, RetryMiddleware, RetryReport, SteadyError, StopReason,
    ThrottleMiddleware,
};

use crate::support::scripted::{Reply, Server, URL, late, respond, respond_with, throttled};
use crate::support::stacks::{MS, SEC, middleware, retry_after};

#[tokio::test(start_paused = true)]
async fn a_report_tells_the_whole_story() {
    let server = Server::new(|index| match index {
        0 => late(30 * MS, respond(503)),
        1 => Reply::fail(ErrorKind::ConnectionReset),
        2 => respond_with(429, &[("retry-after-ms", "0")]),
        _ => respond(200),
    });
    let client = server.client(retry_after(100 * MS).build().unwrap());
    let slot = ReportSlot::new();
    let response = client.get(URL).report_to(&slot).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.retries(), 3);
    assert_eq!(report.waited(), 700 * MS);
    assert_eq!(report.stop_reason(), StopReason::Succeeded);
    let story: Vec<_> = report
        .attempts()
        .map(|it| (it.outcome(), it.sent_at(), it.waited(), it.hint()))
        .collect();
    let status = |code| AttemptOutcome::Status(StatusCode::from_u16(code).unwrap());
    let reset = AttemptOutcome::Failure(FailureKind::Reset);
    let zero = Duration::ZERO;
    assert_eq!(
        story,
        [
            (status(503), zero, zero, None),
            (reset, 130 * MS, 100 * MS, None),
            (status(429), 330 * MS, 200 * MS, Some(zero)),
            (status(200), 730 * MS, 400 * MS, None),
        ]
    );
    assert_eq!(slot.get().as_ref(), Some(report));
}

#[tokio::test(start_paused = true)]
async fn calls_that_share_a_slot_do_not_mix_their_reports() {
    let server = Server::new(|index| {
        let failure = Reply::fail(ErrorKind::ConnectionReset);
        failure.after(Duration::from_secs(index as u64))
    });
    let retry = RetryMiddleware::builder().max_retries(0).build().unwrap();
    let client = server.client(retry);
    let slot = ReportSlot::new();
    let call = || client.get(URL).report_to(&slot).send();
    let (first, second) = tokio::join!(call(), call());
    assert!(first.is_err() && second.is_err());
    // The slot has the report of the call that ended last.
    assert_eq!(slot.get().unwrap().attempts().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_keeps_the_report_of_a_call_that_failed() {
    let server = Server::new(|_| Reply::fail(ErrorKind::ConnectionReset));
    let client = server.client(retry_after(100 * MS).max_retries(2).build().unwrap());
    let slot = ReportSlot::new();
    assert_eq!(slot.get(), None);
    client.get(URL).report_to(&slot).send().await.unwrap_err();
    let report = slot.get().unwrap();
    assert_eq!(report.retries(), 2);
    assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
    assert_eq!(report.attempts().count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gives_up_returns_its_last_response_unchanged() {
    let server = Server::new(|index| {
        respond_with(
            503,
            &[("x-attempt", if index == 2 { "last" } else { "earlier" })],
        )
    });
    let client = server.client(retry_after(100 * MS).max_retries(2).build().unwrap());
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["x-attempt"], "last");
    assert_eq!(response.url().as_str(), URL);
    assert_eq!(response.text().await.unwrap(), "body of 503");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_returned_as_it_came() {
    let server = Server::new(|_| Reply::fail(ErrorKind::ConnectionReset));
    let client = server.client(retry_after(100 * MS).max_retries(1).build().unwrap());
    match client.get(URL).send().await.unwrap_err() {
        reqwest_middleware::Error::Middleware(error) => {
            let error = error.downcast_ref::<std::io::Error>().unwrap();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        reqwest_middleware::Error::Reqwest(error) => panic!("{error}"),
    }
}

#[test]
fn labels_are_stable() {
    let labels = [
        (StopReason::Succeeded, "succeeded"),
        (StopReason::NotRetryable, "not_retryable"),
        (StopReason::NotIdempotent, "not_idempotent"),
        (StopReason::BodyNotReplayable, "body_not_replayable"),
        (StopReason::RetriesExhausted, "retries_exhausted"),
        (StopReason::WindowClosed, "window_closed"),
        (StopReason::DeadlineTooClose, "deadline_too_close"),
        (StopReason::BudgetEmpty, "budget_empty"),
        (StopReason::AllowanceSpent, "allowance_spent"),
        (StopReason::ServerDelayTooLong, "server_delay_too_long"),
        (StopReason::ServerVeto, "server_veto"),
        (StopReason::Disabled, "disabled"),
    ];
    for (reason, label) in labels {
        assert_eq!(reason.as_str(), label);
        assert_eq!(reason.to_string(), label);
    }
}

#[test]
fn everything_can_be_sent_between_threads() {
    fn check<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    check::<RetryMiddleware>();
    check::<RetryReport>();
    check::<ReportSlot>();
    check::<StopReason>();
    check::<reqwest_steady::IdempotencyKey>();
    check::<reqwest_steady::InvalidKeyError>();
    check::<reqwest_steady::ConfigError>();
    check::<reqwest_steady::SteadyError>();
    check::<Backoff>();
}

/// Attempt number, the value that an inner middleware left, and the value from outside.
type Seen = (u32, Option<u32>, Option<u32>);

/// Leaves a value in the extensions, like a middleware with its own state.
#[derive(Clone, Default)]
struct Leaves(Arc<Mutex<Vec<Seen>>>);

#[derive(Clone, Copy)]
struct LeftBehind(u32);

#[derive(Clone, Copy)]
struct FromOutside(u32);

#[async_trait::async_trait]
impl Middleware for Leaves {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let attempt = Attempt::of(extensions).number();
        let left = extensions.get::<LeftBehind>().map(|left| left.0);
        let outside = extensions.get::<FromOutside>().map(|outside| outside.0);
        self.0.lock().unwrap().push((attempt, left, outside));
        extensions.insert(LeftBehind(attempt));
        extensions.insert(FromOutside(0));
        next.run(request, extensions).await
    }
}

#[tokio::test(start_paused = true)]
async fn extensions_of_a_failed_attempt_do_not_reach_the_next() {
    for outside in [None, Some(7)] {
        let server = Server::statuses([503, 503, 200]);
        let leaves = Leaves::default();
        let client = ClientBuilder::new(reqwest::Client::new())
            .with(retry_after(100 * MS).build().unwrap())
            .with(leaves.clone())
            .with_arc(server.clone())
            .build();
        let mut extensions = Extensions::new();
        if let Some(outside) = outside {
            extensions.insert(FromOutside(outside));
        }
        let request = client.get(URL).build().unwrap();
        client
            .execute_with_extensions(request, &mut extensions)
            .await
            .unwrap();
        assert_eq!(
            *leaves.0.lock().unwrap(),
            [(1, None, outside), (2, None, outside), (3, None, outside)]
        );
        // Outer middlewares see what the last attempt left.
        assert_eq!(extensions.get::<LeftBehind>().map(|left| left.0), Some(3));
    }
}

#[tokio::test(start_paused = true)]
async fn the_attempt_number_is_in_extensions_and_an_optional_header() {
    let server = Server::statuses([503, 503, 200]);
    let client = server.client(retry_after(100 * MS).build().unwrap());
    client
        .get(URL)
        .header("x-attempt", "mine")
        .send()
        .await
        .unwrap();
    let seen = |server: &Server| -> Vec<_> {
        let arrivals = server.received().into_iter();
        arrivals
            .map(|it| {
                (
                    it.attempt,
                    it.headers["x-attempt"].to_str().unwrap().to_owned(),
                )
            })
            .collect()
    };
    let mine = || "mine".to_owned();
    assert_eq!(seen(&server), [(1, mine()), (2, mine()), (3, mine())]);

    let server = Server::statuses([503, 503, 200]);
    let client = server.client(
        retry_after(100 * MS)
            .attempt_header("X-Attempt")
            .build()
            .unwrap(),
    );
    client.get(URL).send().await.unwrap();
    let numbers = ["1", "2", "3"].map(str::to_owned);
    let [one, two, three] = numbers;
    assert_eq!(seen(&server), [(1, one), (2, two), (3, three)]);
}

/// Sends a request again after a 401, as a middleware that renews tokens does.
fn sends_again_after_401() -> impl Middleware {
    middleware(|request, extensions, next| {
        Box::pin(async move {
            let again = request.try_clone().unwrap();
            let response = next.clone().run(request, extensions).await?;
            match response.status() {
                StatusCode::UNAUTHORIZED => next.run(again, extensions).await,
                _ => Ok(response),
            }
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_second_call_with_the_same_extensions_starts_anew() {
    let server = Server::statuses([503, 401, 503, 200]);
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(sends_again_after_401())
        .with(retry_after(100 * MS).build().unwrap())
        .with_arc(server.clone())
        .build();
    let request = client.post(URL).idempotency_key("order-1");
    assert_eq!(request.send().await.unwrap().status(), 200);
    let seen: Vec<_> = server.received().iter().map(|it| it.attempt).collect();
    assert_eq!(seen, [1, 2, 1, 2]);
    let keys = server.received();
    assert!(
        keys.iter()
            .all(|it| it.headers["idempotency-key"] == "order-1")
    );
}

#[tokio::test(start_paused = true)]
async fn a_slot_does_not_keep_the_report_of_another_call() {
    let server = Server::statuses([200]);
    let client = server.client(retry_after(100 * MS).build().unwrap());
    let slot = ReportSlot::new();
    for invalid in [
        // Fails while the request is built, before any middleware sees it.
        client.post(URL).idempotency_key(""),
        // Fails in the middleware.
        client.post(URL).header("idempotency-key", ""),
    ] {
        client.get(URL).report_to(&slot).send().await.unwrap();
        assert!(slot.get().is_some());
        invalid.report_to(&slot).send().await.unwrap_err();
        assert_eq!(slot.get(), None);
    }
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_sends_nothing_more() {
    let server = Server::statuses([503]);
    let client = server.client(retry_after(100 * MS).build().unwrap());
    let call = tokio::time::timeout(50 * MS, client.get(URL).send());
    assert!(call.await.is_err());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_report_has_the_time_of_each_attempt_and_of_the_call() {
    let server = Server::new(|index| match index {
        0 => late(30 * MS, respond(503)),
        1 => late(20 * MS, Reply::fail(ErrorKind::ConnectionReset)),
        _ => late(50 * MS, respond(200)),
    });
    let client = server.client(retry_after(100 * MS).build().unwrap());
    let response = client.get(URL).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    let took: Vec<_> = report.attempts().map(|it| it.took()).collect();
    assert_eq!(took, [30 * MS, 20 * MS, 50 * MS]);
    assert_eq!(report.took(), 400 * MS);
    assert_eq!(report.to_string(), "3 attempts in 400 ms: 503, reset, 200");
    assert_eq!(server.gaps(), [130 * MS, 220 * MS]);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_an_attempt_is_without_its_time_in_a_queue() {
    let server = Server::new(|_| late(SEC, respond(200)));
    let throttle = ThrottleMiddleware::builder().max_in_flight(1);
    let client = throttled(&server, retry_after(100 * MS), throttle.adaptive(false));
    let (first, second) = tokio::join!(client.get(URL).send(), client.get(URL).send());
    let second = second.unwrap();
    let report = RetryReport::of(&second).unwrap();
    let attempt = report.attempts().next().unwrap();
    assert_eq!((attempt.waited(), attempt.took()), (SEC, SEC));
    assert_eq!(report.took(), 2 * SEC);
    let first = first.unwrap();
    assert_eq!(
        RetryReport::of(&first).unwrap().to_string(),
        "1 attempt in 1 s: 200"
    );
    assert_eq!(server.gaps(), [SEC]);
}

#[tokio::test(start_paused = true)]
async fn our_errors_name_host_attempts_and_time() {
    let server = Server::new(|_| Reply::silence());
    let retry = || {
        retry_after(100 * MS)
            .max_retries(2)
            .attempt_timeout(10 * SEC)
    };
    let client = server.client(retry().build().unwrap());
    let error = client.get(URL).send().await.unwrap_err();
    let own = SteadyError::of(&error).unwrap();
    assert!(own.is_timeout() && !own.is_deadline() && !own.is_throttled());
    assert_eq!((own.host(), own.attempts()), ("api.example.com", 3));
    assert_eq!(own.elapsed(), 30_300 * MS);
    assert_eq!(own.time_limit(), Some(10 * SEC));
    assert_eq!(
        error.to_string(),
        "no response from api.example.com within 10 s (attempt 3, 30.3 s in all)"
    );
    assert_eq!(FailureKind::of(&error), FailureKind::Timeout);

    // Also if the request cannot be retried, or the limit is the deadline.
    let error = client.post(URL).send().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no response from api.example.com within 10 s (attempt 1, 10 s in all)"
    );
    let order = client.post(URL).deadline(5 * SEC).no_retry();
    assert_eq!(
        order.send().await.unwrap_err().to_string(),
        "no response from api.example.com before the deadline of 5 s (attempt 1, 5 s in all)"
    );
    assert_eq!(server.count(), 5);

    // The outer of two retries counts the attempts of both.
    let inner = Arc::new(retry().max_retries(1).build().unwrap()) as Arc<dyn Middleware>;
    let outer = Arc::new(retry_after(100 * MS).max_retries(1).build().unwrap());
    let client = server.client_behind([outer as Arc<dyn Middleware>, inner]);
    let error = client.get(URL).send().await.unwrap_err();
    let own = SteadyError::of(&error).unwrap();
    assert_eq!(own.attempts() as usize, server.count() - 5);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_host_queue_and_time() {
    let server = Server::new(|_| late(60 * SEC, respond(200)));
    let throttle = || ThrottleMiddleware::builder().max_in_flight(1);
    let client = throttled(
        &server,
        retry_after(100 * MS),
        throttle().max_queue_wait(4 * SEC),
    );
    let (first, second) = tokio::join!(client.get(URL).send(), client.post(URL).send());
    first.unwrap();
    let error = second.unwrap_err();
    let own = SteadyError::of(&error).unwrap();
    assert!(own.is_throttled() && !own.is_timeout() && !own.is_config());
    assert_eq!(own.refusal_reason(), Some(RefusalReason::WaitTooLong));
    assert_eq!(
        (own.key(), own.queue_depth()),
        (Some("api.example.com"), Some(0))
    );
    assert_eq!((own.attempts(), own.elapsed()), (0, 4 * SEC));
    assert_eq!(own.time_limit(), None);
    assert!(own.retry_after().is_some());
    assert_eq!(FailureKind::of(&error), FailureKind::Throttled);

    // The error of a throttle without a retry is complete, too.
    let alone = server.client(throttle().max_queue(0).build().unwrap());
    let (first, second) = tokio::join!(alone.get(URL).send(), alone.get(URL).send());
    first.unwrap();
    let error = second.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(
            "not sent to api.example.com: the queue is full (0 waiting, try again in "
        ),
        "{text}"
    );
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_nested_call_keeps_its_own_host() {
    let auth = Server::new(|_| Reply::silence());
    let token = auth.client(
        RetryMiddleware::builder()
            .attempt_timeout(SEC)
            .max_retries(0)
            .build()
            .unwrap(),
    );
    let fetches_token = middleware(move |request, extensions, next| {
        let token = token.get("http://auth.example.com/token");
        Box::pin(async move {
            token.send().await?;
            next.run(request, extensions).await
        })
    });
    let server = Server::statuses([200]);
    let retry = Arc::new(retry_after(100 * MS).max_retries(1).build().unwrap());
    let client = server.client_behind([retry as Arc<dyn Middleware>, Arc::new(fetches_token)]);
    let error = client.get(URL).send().await.unwrap_err();
    let own = SteadyError::of(&error).unwrap();
    assert_eq!((own.host(), own.attempts()), ("auth.example.com", 1));
    assert_eq!(own.elapsed(), SEC);
    assert_eq!((auth.count(), server.count()), (2, 0));
}
