//! Which calls produce a letter, and what the letter contains.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use reqwest::{Body, Response};
use reqwest_middleware::{ClientWithMiddleware, Error, RequestBuilder};
use reqwest_steady::dead_letter::{
    DeadLetter, DeadLetterReceiver, LetterBody, dead_letter_channel,
};
use reqwest_steady::observe::{AttemptOutcome, AttemptReport, FailureKind};
use reqwest_steady::{
    AutoKey, Budget, Deposit, ReportSlot, RequestBuilderExt, RetryMiddleware,
    RetryMiddlewareBuilder, Scope, SteadyError, StopReason, ThrottleMiddleware,
    ThrottleMiddlewareBuilder,
};
use tokio::time::{sleep, timeout};

use crate::support::scripted::{Reply, Server, URL, call, late, respond, respond_with, throttled};
use crate::support::stacks::{MS, SEC, constant};

/// Two retries, 1 s apart, and an unlimited budget.
fn retry() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder()
        .max_retries(2)
        .backoff(constant(SEC))
        .budget(Budget::unlimited())
}

/// A client of this server, and the letters about its calls.
fn client(
    server: &Arc<Server>,
    retry: RetryMiddlewareBuilder,
) -> (ClientWithMiddleware, DeadLetterReceiver) {
    let (sink, letters) = dead_letter_channel(100);
    let retry = retry.dead_letter_sink(sink).build().unwrap();
    (server.client(retry), letters)
}

/// The only letter. It is delivered before the call returns.
fn only(letters: &mut DeadLetterReceiver) -> Arc<DeadLetter> {
    let letter = letters.try_recv().expect("a letter");
    assert!(letters.try_recv().is_none(), "one letter per call");
    letter
}

fn outcomes(letter: &DeadLetter) -> Vec<AttemptOutcome> {
    let attempts = letter.attempts().iter();
    attempts.map(AttemptReport::outcome).collect()
}

fn stream() -> Body {
    Body::wrap(String::from("order"))
}

/// A budget without any retries.
fn empty() -> Budget {
    Budget::builder()
        .retry_ratio(0.0)
        .min_retries_per_sec(0.0)
        .deposit_on(Deposit::Request)
        .build()
        .unwrap()
}

/// A server that responds with 503 and asks for this pause.
fn busy(pause: &'static str) -> Arc<Server> {
    Server::new(move |_| respond_with(503, &[("retry-after", pause)]))
}

fn pause(letter: &DeadLetter) -> Duration {
    letter.not_before().duration_since(letter.time()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_written_for_every_reason_to_give_up() {
    type Change = fn(RequestBuilder) -> RequestBuilder;
    let as_it_is: Change = |request| request;
    let window = || retry().retry_window(500 * MS);
    let patient = || retry().max_server_delay(SEC);
    for (reason, retry, method, change, sent) in [
        (StopReason::RetriesExhausted, retry(), "PUT", as_it_is, 3),
        (StopReason::WindowClosed, window(), "PUT", as_it_is, 1),
        (
            StopReason::DeadlineTooClose,
            retry(),
            "PUT",
            |request| request.deadline(1500 * MS),
            2,
        ),
        (
            StopReason::BudgetEmpty,
            retry().budget(empty()),
            "PUT",
            as_it_is,
            1,
        ),
        (
            StopReason::ServerDelayTooLong,
            patient(),
            "PUT",
            as_it_is,
            1,
        ),
        (StopReason::NotIdempotent, retry(), "POST", as_it_is, 1),
        (
            StopReason::BodyNotReplayable,
            retry(),
            "PUT",
            |request| request.body(stream()),
            1,
        ),
        (
            StopReason::Disabled,
            retry(),
            "PUT",
            |request| request.no_retry(),
            1,
        ),
    ] {
        assert!(reason.is_given_up());
        let server = match reason {
            StopReason::ServerDelayTooLong => busy("2"),
            _ => Server::statuses([503]),
        };
        let (client, mut letters) = client(&server, retry);
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = client.request(method.clone(), URL).body("order");
        let response = change(request.header("x-trace", "1")).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "body of 503", "{reason}");
        assert_eq!(server.count(), sent, "{reason}");

        let letter = only(&mut letters);
        assert_eq!(letter.stop_reason(), Some(reason));
        assert_eq!(letter.stop_reason_label(), reason.as_str());
        assert_eq!((letter.method(), letter.url().as_str()), (&method, URL));
        let headers: Vec<_> = letter.headers().collect();
        assert_eq!(headers.len(), 1, "{reason}");
        assert_eq!(headers[0].1.unwrap(), "1");
        let status = AttemptOutcome::Status(reqwest::StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(outcomes(&letter), vec![status; sent], "{reason}");
        assert_eq!(letter.is_repeatable(), method == Method::PUT);
        let body = match reason {
            StopReason::BodyNotReplayable => LetterBody::NotReplayable,
            _ => LetterBody::Bytes("order".into()),
        };
        assert_eq!(*letter.body(), body, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_written_when_the_scope_has_no_retries_left() {
    let server = Server::statuses([503]);
    let (client, mut letters) = client(&server, retry());
    let scope = Scope::new().max_retries(1);
    let call = scope.run(client.put(URL).send()).await;
    assert_eq!((call.unwrap().status().as_u16(), server.count()), (503, 2));
    let letter = only(&mut letters);
    assert_eq!(letter.stop_reason(), Some(StopReason::AllowanceSpent));
    assert_eq!(letter.attempts().len(), 2);
}

/// One request at a time, and no queue.
fn one_slot() -> ThrottleMiddlewareBuilder {
    let throttle = ThrottleMiddleware::builder().seed(1).adaptive(false);
    throttle.max_in_flight(1).max_queue(0)
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_written_when_the_first_attempt_is_refused() {
    let server = Server::new(|_| late(60 * SEC, respond(200)));
    let (sink, mut letters) = dead_letter_channel(100);
    let throttle = one_slot().rate(0.1, 1);
    let client = throttled(&server, retry().dead_letter_sink(sink), throttle);
    let (first, refused) = tokio::join!(call(&client, 0), async {
        sleep(SEC).await;
        client.put(URL).body("order").send().await
    });
    assert_eq!(first.unwrap(), 200);
    assert_eq!(server.count(), 1);
    let letter = only(&mut letters);
    assert_eq!(letter.stop_reason(), Some(StopReason::Throttled));
    let error = refused.unwrap_err();
    let refusal = SteadyError::of(&error).expect("the refusal itself comes back");
    assert!(refusal.retry_after().unwrap() > Duration::ZERO);
    assert_eq!(pause(&letter), refusal.retry_after().unwrap());
    assert_eq!(*letter.body(), LetterBody::Bytes("order".into()));
}

#[tokio::test(start_paused = true)]
async fn an_unsent_request_can_be_replayed_without_a_key() {
    let server = Server::new(|_| late(SEC, respond(503)));
    let (sink, mut letters) = dead_letter_channel(100);
    let client = throttled(&server, retry().dead_letter_sink(sink), one_slot());
    let (sent, refused) = tokio::join!(client.post(URL).send(), client.post(URL).send());
    assert!(SteadyError::of(&refused.unwrap_err()).is_some_and(SteadyError::is_throttled));
    assert_eq!(sent.unwrap().status(), 503);
    let (first, second) = (letters.recv().await.unwrap(), letters.recv().await.unwrap());
    assert_eq!(first.stop_reason(), Some(StopReason::Throttled));
    assert!(first.is_repeatable());
    assert_eq!(second.stop_reason(), Some(StopReason::NotIdempotent));
    assert!(!second.is_repeatable());
}

#[tokio::test(start_paused = true)]
async fn a_letter_about_a_refused_retry_lists_the_sent_attempts() {
    let server = Server::new(|index| match index {
        0 => respond(503),
        _ => late(60 * SEC, respond(200)),
    });
    let (sink, mut letters) = dead_letter_channel(100);
    let client = throttled(&server, retry().dead_letter_sink(sink), one_slot());
    let (response, other) = tokio::join!(client.put(URL).send(), async {
        sleep(500 * MS).await;
        call(&client, 1).await
    });
    assert_eq!(other.unwrap(), 200);
    assert_eq!(response.unwrap().text().await.unwrap(), "body of 503");
    assert_eq!(server.count(), 2);
    let letter = only(&mut letters);
    assert_eq!(letter.stop_reason(), Some(StopReason::Throttled));
    let status = reqwest::StatusCode::SERVICE_UNAVAILABLE;
    assert_eq!(outcomes(&letter), [AttemptOutcome::Status(status)]);
}

#[tokio::test(start_paused = true)]
async fn without_a_response_a_letter_is_written_and_the_error_kept() {
    let server = Server::new(|index| match index {
        0 => Reply::silence(),
        1 => respond(503),
        _ => Reply::fail(ErrorKind::ConnectionReset),
    });
    let (client, mut letters) = client(&server, retry().attempt_timeout(SEC));
    let slot = ReportSlot::new();
    let error = client.get(URL).report_to(&slot).send().await.unwrap_err();
    let Error::Middleware(inner) = &error else {
        panic!("{error}")
    };
    let inner: &std::io::Error = inner.downcast_ref().unwrap();
    assert_eq!(inner.kind(), ErrorKind::ConnectionReset);
    let letter = only(&mut letters);
    let report = slot.get().unwrap();
    assert!(letter.attempts().iter().eq(report.attempts()));
    assert_eq!(letter.attempts().len(), 3);
    let silence = AttemptOutcome::Failure(FailureKind::Timeout);
    assert_eq!(letter.attempts()[0].outcome(), silence);
    let reset = AttemptOutcome::Failure(FailureKind::Reset);
    assert_eq!(letter.attempts()[2].outcome(), reset);
    assert_eq!(*letter.body(), LetterBody::Empty);

    // A call that its deadline ends does not wait for its letter.
    let server = Server::new(|_| Reply::silence());
    let (client, mut letters) = self::client(&server, retry());
    let error = client.get(URL).deadline(SEC).send().await.unwrap_err();
    assert!(
        SteadyError::of(&error).is_some_and(SteadyError::is_timeout),
        "{error}"
    );
    let letter = timeout(SEC, letters.recv()).await.unwrap().unwrap();
    assert_eq!(letter.stop_reason(), Some(StopReason::DeadlineTooClose));
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_letter_is_written_if_a_later_retry_cannot_succeed() {
    let veto = || Server::new(|_| respond_with(503, &[("x-should-retry", "false")]));
    for (reason, server, retry, sent) in [
        (StopReason::Succeeded, Server::statuses([200]), retry(), 1),
        (
            StopReason::Succeeded,
            Server::statuses([503, 503, 200]),
            retry(),
            3,
        ),
        (
            StopReason::NotRetryable,
            Server::statuses([404]),
            retry(),
            1,
        ),
        (
            StopReason::NotRetryable,
            Server::statuses([503, 404]),
            retry(),
            2,
        ),
        (StopReason::ServerVeto, veto(), retry(), 1),
        (
            StopReason::DryRun,
            Server::statuses([503]),
            retry().dry_run(true),
            1,
        ),
    ] {
        assert!(!reason.is_given_up());
        let (client, mut letters) = client(&server, retry);
        let slot = ReportSlot::new();
        let request = client.put(URL).body("order").report_to(&slot);
        request.send().await.unwrap();
        assert_eq!(slot.get().unwrap().stop_reason(), reason);
        assert_eq!(server.count(), sent, "{reason}");
        sleep(60 * SEC).await;
        assert!(letters.try_recv().is_none(), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_letter_is_written_about_a_call_that_its_caller_dropped() {
    // During an attempt, and between two.
    for (server, sent) in [
        (Server::new(|_| Reply::silence()), 1),
        (Server::statuses([503]), 1),
        (
            Server::new(|index| match index {
                0 => respond(503),
                _ => Reply::silence(),
            }),
            1,
        ),
    ] {
        let (client, mut letters) = client(&server, retry());
        let call = timeout(500 * MS, client.put(URL).send()).await;
        assert!(call.is_err());
        sleep(60 * SEC).await;
        assert_eq!(server.count(), sent);
        assert!(letters.try_recv().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn no_letter_is_written_about_a_request_with_an_invalid_key() {
    let server = Server::statuses([503]);
    let (client, mut letters) = client(&server, retry());
    let request = client.post(URL).header("idempotency-key", "a\tb");
    assert!(request.send().await.is_err());
    assert_eq!(server.count(), 0);
    assert!(letters.try_recv().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_last_response_sets_the_earliest_next_try() {
    async fn pause_after(
        server: Arc<Server>,
        retry: RetryMiddlewareBuilder,
        method: Method,
    ) -> Duration {
        let (client, mut letters) = client(&server, retry);
        client.request(method, URL).send().await.unwrap();
        pause(&only(&mut letters))
    }
    let put = || Method::PUT;
    // Also if the call ends without a retry decision.
    assert_eq!(pause_after(busy("7"), retry(), put()).await, 7 * SEC);
    assert_eq!(pause_after(busy("7"), retry(), Method::POST).await, 7 * SEC);
    let disabled = retry().max_retries(0);
    assert_eq!(pause_after(busy("7"), disabled, put()).await, 7 * SEC);
    let too_long = busy("86400");
    assert_eq!(pause_after(too_long, retry(), put()).await, 86400 * SEC);
    let far = busy("18446744073709551615");
    assert!(pause_after(far, retry(), put()).await > 86400 * 365 * SEC);

    // An earlier response does not count because its pause is over.
    let earlier = Server::new(|index| match index {
        0 => respond_with(503, &[("retry-after", "7")]),
        _ => respond(503),
    });
    assert_eq!(pause_after(earlier, retry(), put()).await, Duration::ZERO);
    let later = Server::new(|index| match index {
        2 => respond_with(429, &[("retry-after-ms", "1500")]),
        _ => respond_with(503, &[("retry-after", "7")]),
    });
    assert_eq!(pause_after(later, retry(), put()).await, 1500 * MS);

    // A quota that is not used up asks for no pause.
    for (left, pause) in [("0", 900 * SEC), ("98", Duration::ZERO)] {
        let field = format!("\"100-in-15min\";r={left};t=900");
        let server = Server::new(move |_| respond_with(503, &[("ratelimit", &field)]));
        assert_eq!(pause_after(server, retry(), put()).await, pause, "{left}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_in_the_letter_is_the_one_that_was_sent() {
    let server = Server::statuses([503]);
    let retry = retry()
        .idempotency_header("x-order-key")
        .auto_key(AutoKey::Random);
    let (client, mut letters) = client(&server, retry);
    client.post(URL).body("order").send().await.unwrap();
    let letter = only(&mut letters);
    let arrivals = server.received();
    assert_eq!(arrivals.len(), 3);
    for arrival in &arrivals {
        let sent = arrival.headers["x-order-key"].to_str().unwrap();
        assert_eq!(letter.key(), Some(sent));
    }
    assert_eq!(letter.key_header().unwrap(), "x-order-key");
    assert!(letter.is_repeatable());
    // And again when the letter is replayed.
    letter.replay(&client).await.unwrap();
    let arrivals = server.received();
    assert_eq!(arrivals.len(), 6, "a replay is retried like any call");
    let key = |index: usize| &arrivals[index].headers["x-order-key"];
    assert!((0..6).all(|index| key(index) == key(0)));
    assert_eq!(arrivals[5].body.as_deref(), Some(&b"order"[..]));
    assert_eq!(only(&mut letters).key(), letter.key());
}

#[tokio::test(start_paused = true)]
async fn a_body_up_to_the_limit_is_kept_and_a_larger_one_is_left_out() {
    async fn kept(change: impl FnOnce(RequestBuilder) -> RequestBuilder) -> LetterBody {
        let server = Server::statuses([503]);
        let (client, mut letters) = client(&server, retry().dead_letter_max_body(5));
        let response: Response = change(client.put(URL)).send().await.unwrap();
        assert_eq!((response.status().as_u16(), server.count()), (503, 3));
        only(&mut letters).body().clone()
    }
    let order = LetterBody::Bytes("order".into());
    assert_eq!(kept(|request| request).await, LetterBody::Empty);
    assert_eq!(kept(|request| request.body("order")).await, order);
    let orders = kept(|request| request.body("orders")).await;
    assert_eq!(orders, LetterBody::TooLarge(6));
    // A body that is built for each attempt is also built for the letter.
    assert_eq!(kept(|request| request.body_with(|| "order")).await, order);
    let orders = kept(|request| request.body_with(|| "orders")).await;
    assert_eq!(orders, LetterBody::TooLarge(6));
    let streamed = kept(|request| request.body_with(stream)).await;
    assert_eq!(streamed, LetterBody::NotReplayable);
}
