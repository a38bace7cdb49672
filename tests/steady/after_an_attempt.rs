//! What happens to an attempt's response, and to its paid retry.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::stream;
use reqwest::{Body, Response};
use reqwest_middleware::{ClientWithMiddleware, Result};
use reqwest_steady::observe::{Attempt, AttemptOutcome, FailureKind};
use reqwest_steady::{Budget, RetryReport, StatusClass, SteadyError, ThrottleMiddlewareBuilder};
use tokio::time::sleep;

use crate::support::chains::{Link, chain, link, retry, throttle};
use crate::support::scripted::{Reply, Server, URL, call, late, respond, throttled};
use crate::support::stacks::{MS, SEC, middleware};

/// Lets one request through at a time, and refuses all others at once.
fn one_slot() -> ThrottleMiddlewareBuilder {
    throttle().max_in_flight(1).max_queue(0)
}

fn failed_with(body: Body) -> Reply {
    let response = http::Response::builder().status(500);
    Reply::response(response.body(body).unwrap())
}

/// Makes a call whose first retry finds the only slot taken. Another call holds it for a minute.
async fn call_that_is_refused(client: &ClientWithMiddleware) -> Result<Response> {
    tokio::select! {
        result = client.get(URL).send() => result,
        _ = async {
            sleep(500 * MS).await;
            call(client, 1).await
        } => panic!("the other call ended first"),
    }
}

/// Asks for a token in the third attempt.
fn asks_for_token(client: ClientWithMiddleware) -> Link {
    link(middleware(move |request, extensions, next| {
        let token = client.get("http://token.example.com/").send();
        Box::pin(async move {
            if Attempt::of(extensions).number() == 3 {
                // The result does not matter.
                let _ = token.await;
            }
            next.run(request, extensions).await
        })
    }))
}

#[tokio::test(start_paused = true)]
async fn a_refused_retry_is_refunded_to_calls_in_a_later_attempt() {
    let token = Server::statuses([503]);
    let few = || retry().budget(Budget::unlimited()).max_retries(3);
    let asks = asks_for_token(token.client(few().build().unwrap()));
    let server = Server::new(|index| match index {
        0 => respond(500),
        1 => late(1500 * MS, respond(200)),
        _ => respond(200),
    });
    let patient = few().classify_fn(|view| match view.outcome() {
        AttemptOutcome::Failure(FailureKind::Throttled) => Some(StatusClass::Conditional),
        _ => None,
    });
    let client = chain(&server, patient, [asks, link(one_slot().build().unwrap())]);
    let (result, _) = tokio::join!(client.get(URL).send(), async {
        sleep(500 * MS).await;
        call(&client, 1).await
    });
    assert_eq!(result.unwrap().status(), 200);
    // One retry was refused and one was sent, so 2 of 3 are left for the token.
    assert_eq!(token.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_success_that_waited_in_a_throttle_reports_its_wait() {
    let server = Server::new(|_| late(100 * MS, respond(200)));
    let client = throttled(&server, retry(), one_slot().max_queue(1));
    let (first, second) = tokio::join!(client.get(URL).send(), client.get(URL).send());
    let waited = |response: &Response| RetryReport::of(response).unwrap().waited();
    assert_eq!(waited(&first.unwrap()), Duration::ZERO);
    assert_eq!(waited(&second.unwrap()), 100 * MS);
}

/// Responds to the second attempt by itself.
fn gateway() -> Link {
    link(middleware(|request, extensions, next| {
        Box::pin(async move {
            if Attempt::of(extensions).number() == 2 {
                let response = http::Response::builder().status(502);
                return Ok(response.body("").unwrap().into());
            }
            next.run(request, extensions).await
        })
    }))
}

#[tokio::test(start_paused = true)]
async fn a_held_response_does_not_replace_a_later_one() {
    let server = Server::new(|index| match index {
        0 => respond(500),
        _ => late(60 * SEC, respond(200)),
    });
    let client = chain(
        &server,
        retry(),
        [gateway(), link(one_slot().build().unwrap())],
    );
    let error = call_that_is_refused(&client).await.unwrap_err();
    // The second response passed no throttle and is gone. The first is not the last, so it is not returned.
    assert!(
        SteadyError::of(&error).is_some_and(SteadyError::is_throttled),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_held_response_breaks_off_where_the_original_did() {
    let server = Server::new(|index| match index {
        0 => failed_with(Body::wrap_stream(stream::iter([
            Ok("half"),
            Err(io::Error::other("broken")),
        ]))),
        _ => late(60 * SEC, respond(200)),
    });
    let client = throttled(&server, retry(), one_slot());
    let mut response = call_that_is_refused(&client).await.unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(response.chunk().await.unwrap().unwrap(), "half");
    assert!(response.chunk().await.is_err());
}

/// Records when it is dropped.
struct Held(Arc<AtomicBool>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_dropped_before_the_wait_not_after() {
    let gone = Arc::new(AtomicBool::new(false));
    let told = gone.clone();
    let server = Server::new(move |index| match index {
        0 => {
            let held = Held(told.clone());
            let endless = stream::poll_fn(move |_| {
                let _ = &held;
                Poll::<Option<io::Result<&'static str>>>::Pending
            });
            failed_with(Body::wrap_stream(endless))
        }
        _ => respond(200),
    });
    let client = server.client(retry().build().unwrap());
    let (result, gone) = tokio::join!(client.get(URL).send(), async {
        sleep(500 * MS).await;
        gone.load(Ordering::Relaxed)
    });
    assert_eq!(result.unwrap().status(), 200);
    assert!(gone, "the response was held during the wait");
}
