//! Whether a request took effect, by response, error or dropped call.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Result};
use reqwest_steady::observe::{AttemptOutcome, AttemptReport, FailureKind};
use reqwest_steady::{
    CoalesceMiddleware, Effect, ReportSlot, RequestBuilderExt, RetryMiddleware,
    RetryMiddlewareBuilder, RetryReport, Scope, StatusClass, SteadyError, ThrottleMiddleware,
};
use tokio::net::TcpListener;
use tokio::time::timeout;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::raw;
use crate::support::scripted::{Reply, Server, URL, late, respond, throttled};
use crate::support::stacks::{MS, SEC, middleware, plain_client, retry_after};

fn retry() -> RetryMiddlewareBuilder {
    retry_after(100 * MS)
}

/// Posts an order with a key, and returns the effect by the slot.
async fn post(client: &ClientWithMiddleware) -> Effect {
    let slot = ReportSlot::new();
    let order = client.post(URL).idempotency_key("order-1").body("order");
    if let Ok(response) = order.report_to(&slot).send().await {
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.effect(), slot.effect());
    }
    slot.effect()
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_an_effect_and_the_call_has_one() {
    use Effect::{DidNotHappen, Happened, Unknown};

    for (statuses, effects, all) in [
        (vec![201], vec![Happened], Happened),
        (vec![404], vec![DidNotHappen], DidNotHappen),
        (
            vec![429, 422],
            vec![DidNotHappen, DidNotHappen],
            DidNotHappen,
        ),
        (vec![503, 200], vec![Unknown, Happened], Happened),
        (vec![503, 404], vec![Unknown, DidNotHappen], Unknown),
        (vec![409], vec![Unknown], Unknown),
    ] {
        let count = statuses.len();
        let server = Server::statuses(statuses.clone());
        let client = server.client(retry().build().unwrap());
        let slot = ReportSlot::new();
        let order = client.post(URL).idempotency_key("order-1");
        let response = order.report_to(&slot).send().await.unwrap();
        let report = RetryReport::of(&response).unwrap();
        let each: Vec<_> = report.attempts().map(AttemptReport::effect).collect();
        assert_eq!(each, effects, "{statuses:?}");
        assert_eq!((report.effect(), slot.effect()), (all, all), "{statuses:?}");
        assert_eq!(server.count(), count);
        assert!(server.gaps().iter().all(|gap| *gap == 100 * MS));
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_404_to_a_post_says_that_nothing_happened() {
    let server = Server::statuses([404, 409]);
    let client = server.client(RetryMiddleware::default());
    let order = client.post(format!("{URL}#part")).body("order");
    let response = order.send().await.unwrap();
    assert_eq!(
        RetryReport::of(&response).unwrap().effect(),
        Effect::DidNotHappen
    );
    // Without a key, a conflict is not with the original.
    let response = client.post(URL).send().await.unwrap();
    assert_eq!(
        RetryReport::of(&response).unwrap().effect(),
        Effect::DidNotHappen
    );
}

#[tokio::test(start_paused = true)]
async fn a_success_that_the_user_retries_is_no_proof() {
    let server = Server::statuses([202, 404]);
    let status = reqwest::StatusCode::ACCEPTED;
    let retry = retry().status(status, StatusClass::Conditional);
    assert_eq!(
        post(&server.client(retry.build().unwrap())).await,
        Effect::Unknown
    );
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_without_proof_leaves_the_effect_unknown() {
    for reply in [
        (|| Reply::fail(ErrorKind::ConnectionReset)) as fn() -> Reply,
        || Reply::fail(ErrorKind::ConnectionRefused),
        Reply::silence,
    ] {
        let server = Server::new(move |_| reply());
        let retry = retry().max_retries(1).attempt_timeout(SEC);
        let client = server.client(retry.build().unwrap());
        assert_eq!(post(&client).await, Effect::Unknown);
        assert_eq!(server.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_leaves_the_effect_of_its_status() {
    let broken = |status: u16| {
        let lines = [
            Ok("half"),
            Err(std::io::Error::from(ErrorKind::ConnectionReset)),
        ];
        let body = reqwest::Body::wrap_stream(futures_util::stream::iter(lines));
        let response = http::Response::builder().status(status);
        Reply::response(response.body(body).unwrap())
    };
    for (status, effect) in [(200, Effect::Happened), (404, Effect::DidNotHappen)] {
        let server = Server::new(move |_| broken(status));
        let client = server.client(retry().max_retries(0).build().unwrap());
        let slot = ReportSlot::new();
        let order = client.post(URL).buffer_response(100).report_to(&slot);
        order.send().await.unwrap_err();
        assert_eq!(slot.effect(), effect);
    }
    // It happened, whatever follows.
    let server = Server::new(move |index| match index {
        0 => broken(200),
        _ => respond(503),
    });
    let client = server.client(retry().max_retries(1).build().unwrap());
    let slot = ReportSlot::new();
    let order = client.post(URL).idempotency_key("order-1");
    let order = order.buffer_response(100).report_to(&slot);
    assert_eq!(order.send().await.unwrap().status(), 503);
    assert_eq!(slot.effect(), Effect::Happened);
    assert_eq!(server.gaps(), [100 * MS]);
}

// The slot.

#[tokio::test(start_paused = true)]
async fn a_slot_that_no_retry_has_seen_knows_nothing() {
    let slot = ReportSlot::new();
    assert_eq!(slot.effect(), Effect::Unknown);
    let server = Server::statuses([200]);
    // No retry in the chain.
    let bare = server.client_behind([]);
    bare.post(URL).report_to(&slot).send().await.unwrap();
    assert_eq!((slot.get(), slot.effect()), (None, Effect::Unknown));
    // `build` drops the slot.
    let client = server.client(RetryMiddleware::default());
    let request = client.post(URL).report_to(&slot).build().unwrap();
    client.execute(request).await.unwrap();
    assert_eq!((slot.get(), slot.effect()), (None, Effect::Unknown));
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_key_means_that_nothing_happened() {
    let server = Server::statuses([200]);
    let client = server.client(RetryMiddleware::default());
    let (before, after) = (ReportSlot::new(), ReportSlot::new());
    for (slot, request) in [
        (
            &before,
            client
                .post(URL)
                .report_to(&before)
                .idempotency_key("two words"),
        ),
        (
            &after,
            client
                .post(URL)
                .idempotency_key("two words")
                .report_to(&after),
        ),
    ] {
        let error = request.send().await.unwrap_err();
        assert_eq!(FailureKind::of(&error), FailureKind::Builder);
        assert!(FailureKind::of(&error).is_unsent());
        assert_eq!((slot.get(), slot.effect()), (None, Effect::DidNotHappen));
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_is_over_sends_nothing_and_says_so() {
    let server = Server::statuses([200]);
    let client = server.client(RetryMiddleware::default());
    let slot = ReportSlot::new();
    let late = async {
        tokio::time::sleep(80 * MS).await;
        client.post(URL).report_to(&slot).send().await
    };
    let error = Scope::new().deadline(50 * MS).run(late).await.unwrap_err();
    let own = SteadyError::of(&error).unwrap();
    assert!(own.is_deadline() && own.attempts() == 0);
    let said = "not sent to api.example.com: the deadline is over (0 ms in all)";
    assert_eq!(own.to_string(), said);
    assert_eq!(slot.effect(), Effect::DidNotHappen);
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_refused_at_its_start_did_not_happen() {
    let server = Server::statuses([200]);
    let client = server.client(RetryMiddleware::default());
    for invalid in [
        client.post(URL).header("idempotency-key", ""),
        client.post(URL).attempt_timeout(Duration::ZERO),
        client.post(URL).body_with(|| "one").body("two"),
    ] {
        let slot = ReportSlot::new();
        let error = invalid.report_to(&slot).send().await.unwrap_err();
        let own = SteadyError::of(&error).unwrap();
        assert!(own.is_config() && own.invalid().is_some(), "{own}");
        assert_eq!((own.host(), own.attempts()), ("api.example.com", 0));
        assert_eq!(FailureKind::of(&error), FailureKind::Builder);
        assert_eq!((slot.get(), slot.effect()), (None, Effect::DidNotHappen));
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_progress_or_dropped_is_unknown() {
    let server = Server::new(|_| late(SEC, respond(200)));
    let client = server.client(RetryMiddleware::default());
    let slot = ReportSlot::new();
    let call = client.post(URL).report_to(&slot).send();
    let dropped = timeout(500 * MS, async {
        tokio::join!(call, async {
            tokio::time::sleep(100 * MS).await;
            assert_eq!((slot.get(), slot.effect()), (None, Effect::Unknown));
        })
    });
    assert!(dropped.await.is_err());
    assert_eq!((slot.get(), slot.effect()), (None, Effect::Unknown));
    // The slot is used again.
    let response = client.post(URL).report_to(&slot).send().await;
    response.unwrap();
    assert_eq!(slot.effect(), Effect::Happened);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_first_attempt_did_nothing() {
    let server = Server::statuses([200]);
    let retry = retry().launch_spread(60 * SEC).seed(1).build().unwrap();
    let client = server.client(retry);
    let slot = ReportSlot::new();
    let call = timeout(MS, client.post(URL).report_to(&slot).send());
    assert!(call.await.is_err());
    assert_eq!(slot.effect(), Effect::DidNotHappen);
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_over_sends_nothing_and_says_so() {
    let server = Server::statuses([200]);
    let client = server.client(RetryMiddleware::default());
    let slot = ReportSlot::new();
    let order = client.post(URL).deadline(Duration::ZERO).report_to(&slot);
    let error = order.send().await.unwrap_err();
    let own = SteadyError::of(&error).unwrap();
    assert!(own.is_timeout() && own.is_deadline());
    assert_eq!(own.attempts(), 0);
    assert_eq!(
        own.to_string(),
        "not sent to api.example.com: the deadline is over (0 ms in all)"
    );
    assert_eq!(slot.effect(), Effect::DidNotHappen);
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_throttle_refuses_did_not_happen() {
    let server = Server::new(|_| late(SEC, respond(200)));
    let throttle = ThrottleMiddleware::builder().max_in_flight(1).max_queue(0);
    let client = throttled(&server, retry(), throttle);
    let (sent, refused) = tokio::join!(post(&client), post(&client));
    assert_eq!((sent, refused), (Effect::Happened, Effect::DidNotHappen));
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_retry_leaves_the_effect_of_what_was_sent() {
    // The first attempt fails, and the throttle is busy when the second one is due.
    let server = Server::new(|index| match index {
        0 => respond(503),
        _ => late(60 * SEC, respond(200)),
    });
    let throttle = ThrottleMiddleware::builder().adaptive(false);
    let throttle = throttle.max_in_flight(1).max_queue(0);
    let client = throttled(&server, retry(), throttle);
    let other = async {
        tokio::time::sleep(50 * MS).await;
        client.get(URL).send().await.unwrap();
    };
    let (effect, ()) = tokio::join!(post(&client), other);
    assert_eq!(effect, Effect::Unknown);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_follower_gets_the_effect_of_the_shared_call() {
    let server = Server::new(|_| late(SEC, respond(404)));
    let coalesce = CoalesceMiddleware::default();
    let retry = Arc::new(RetryMiddleware::default());
    let client = server.client_behind([Arc::new(coalesce) as Arc<dyn Middleware>, retry]);
    let call = async || {
        let slot = ReportSlot::new();
        client.get(URL).report_to(&slot).send().await.unwrap();
        slot.effect()
    };
    let (first, second) = tokio::join!(call(), call());
    assert_eq!([first, second], [Effect::DidNotHappen; 2]);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_retries_in_one_chain_agree_on_the_effect() {
    for (statuses, effect) in [
        (vec![404], Effect::DidNotHappen),
        (vec![503, 404], Effect::Unknown),
        (vec![503, 503, 503, 200], Effect::Happened),
    ] {
        let server = Server::statuses(statuses);
        let links = [retry(), retry().max_retries(1)]
            .map(|retry| Arc::new(retry.build().unwrap()) as Arc<dyn Middleware>);
        let client = server.client_behind(links);
        assert_eq!(post(&client).await, effect);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_the_effect_of_its_one_attempt() {
    let server = Server::statuses([503]);
    let client = server.client(retry().dry_run(true).build().unwrap());
    assert_eq!(post(&client).await, Effect::Unknown);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_sent_twice_keeps_its_first_effect() {
    // A middleware outside the retry renews its token and sends the request again.
    let server = Server::new(|index| match index {
        0 => Reply::fail(ErrorKind::ConnectionReset),
        1 => respond(401),
        _ => respond(404),
    });
    let renews_token = middleware(|request, extensions, next| {
        Box::pin(async move {
            let again = request.try_clone().unwrap();
            let response = next.clone().run(request, extensions).await?;
            match response.status().as_u16() {
                401 => next.run(again, extensions).await,
                _ => Ok(response),
            }
        })
    });
    let retry = Arc::new(retry().build().unwrap());
    let client = server.client_behind([Arc::new(renews_token) as Arc<dyn Middleware>, retry]);
    let slot = ReportSlot::new();
    let order = client.post(URL).idempotency_key("order-1");
    let response = order.report_to(&slot).send().await.unwrap();
    assert_eq!(response.status(), 404);
    assert_eq!(slot.get().unwrap().effect(), Effect::DidNotHappen);
    // The attempt that was reset may have had an effect.
    assert_eq!(slot.effect(), Effect::Unknown);
    assert_eq!(server.count(), 3);
}

// Over a wire: redirects, and connections that fail.

/// Responds to a `POST /orders` with this redirect, and to everything else with 404.
async fn redirects(status: u16, location: &str) -> MockServer {
    let server = MockServer::start().await;
    let redirect = ResponseTemplate::new(status).insert_header("location", location);
    let orders = Mock::given(wiremock::matchers::method("POST")).and(path("/orders"));
    orders.respond_with(redirect).mount(&server).await;
    server
}

fn over_wire(retry: RetryMiddlewareBuilder, inner: reqwest::Client) -> ClientWithMiddleware {
    let retry = retry.max_retries(0).build().unwrap();
    ClientBuilder::new(inner).with(retry).build()
}

/// Posts an order without a key, and returns the status or kind of failure and the effect.
async fn order(client: &ClientWithMiddleware, url: &str) -> (AttemptOutcome, Effect) {
    let slot = ReportSlot::new();
    let order = client.post(url).body("order").report_to(&slot);
    let _: Result<_> = raw::in_time(order.send()).await;
    let report = slot.get().unwrap();
    let last = report.attempts().next_back().unwrap();
    (last.outcome(), slot.effect())
}

fn status(code: u16) -> AttemptOutcome {
    AttemptOutcome::Status(reqwest::StatusCode::from_u16(code).unwrap())
}

#[tokio::test]
async fn a_404_after_a_redirect_says_nothing_about_the_post() {
    let client = over_wire(retry(), plain_client());
    for code in [301, 302, 303, 307, 308] {
        let server = redirects(code, "/done").await;
        let url = format!("{}/orders", server.uri());
        let ended = order(&client, &url).await;
        assert_eq!(ended, (status(404), Effect::Unknown), "{code}");
        assert_eq!(server.received_requests().await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_redirect_that_is_not_followed_counts_by_its_status() {
    let policy = reqwest::redirect::Policy::none();
    let inner = reqwest::Client::builder().no_proxy().redirect(policy);
    let retry = retry().client_follows_redirects(false);
    let client = over_wire(retry, inner.build().unwrap());
    for (code, effect) in [
        (302, Effect::Unknown),
        (303, Effect::Happened),
        (307, Effect::DidNotHappen),
    ] {
        let server = redirects(code, "/done").await;
        let url = format!("{}/orders", server.uri());
        assert_eq!(order(&client, &url).await, (status(code), effect));
        assert_eq!(server.received_requests().await.unwrap().len(), 1);
    }
}

/// A URL at which nothing listens.
async fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/orders", listener.local_addr().unwrap())
}

#[tokio::test]
async fn a_refused_connection_is_proof_only_without_redirects() {
    let refused = AttemptOutcome::Failure(FailureKind::Connect);
    let closed = closed_port().await;
    // The server accepts the order, and sends the client to where nothing listens.
    let server = redirects(303, &closed).await;
    let client = over_wire(retry(), plain_client());
    let accepted = format!("{}/orders", server.uri());
    for url in [&accepted, &closed] {
        assert_eq!(order(&client, url).await, (refused, Effect::Unknown));
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 1);

    let policy = reqwest::redirect::Policy::none();
    let inner = reqwest::Client::builder().no_proxy().redirect(policy);
    let retry = retry().client_follows_redirects(false);
    let client = over_wire(retry, inner.build().unwrap());
    let ended = order(&client, &closed).await;
    assert_eq!(ended, (refused, Effect::DidNotHappen));
}

#[tokio::test]
async fn a_get_that_cannot_connect_did_not_happen() {
    let client = over_wire(retry(), plain_client());
    let closed = closed_port().await;
    for (method, effect) in [
        (Method::GET, Effect::DidNotHappen),
        (Method::PUT, Effect::Unknown),
    ] {
        let slot = ReportSlot::new();
        let request = client.request(method, &closed).report_to(&slot);
        let error = request.send().await.unwrap_err();
        assert!(error.is_connect() && SteadyError::of(&error).is_none());
        assert_eq!(FailureKind::of(&error), FailureKind::Connect);
        assert_eq!(slot.effect(), effect);
    }
}
