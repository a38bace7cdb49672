//! Idempotency keys: where they come from, and that retries keep them.

use reqwest::{Body, Method};
use reqwest_steady::{
    AutoKey, IdempotencyKey, InvalidKeyError, RequestBuilderExt, RetryMiddleware,
    RetryMiddlewareBuilder, SteadyError,
};

#[cfg(feature = "tracing")]
use crate::support::log::Log;
use crate::support::scripted::{Server, URL};
use crate::support::stacks::{MS, doubling};

fn quick() -> RetryMiddlewareBuilder {
    let backoff = doubling(MS);
    RetryMiddleware::builder().max_retries(2).backoff(backoff)
}

/// The key in this header of each request that arrived.
fn keys(server: &Server, header: &str) -> Vec<Option<String>> {
    let arrivals = server.received();
    let values = arrivals.iter().map(|arrival| arrival.headers.get(header));
    values
        .map(|value| value.map(|value| value.to_str().unwrap().to_owned()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_post_with_a_key_is_retried_with_the_same_key() {
    let server = Server::statuses([500, 503, 201]);
    let client = server.client(quick().build().unwrap());
    let key = IdempotencyKey::random();
    let request = client.post(URL).idempotency_key(key.clone()).body("order");
    assert_eq!(request.send().await.unwrap().status(), 201);
    let sent = Some(key.as_str().to_owned());
    assert_eq!(keys(&server, "idempotency-key"), vec![sent; 3]);
    assert!(
        server
            .received()
            .iter()
            .all(|arrival| arrival.body.as_deref() == Some(b"order"))
    );
}

#[tokio::test(start_paused = true)]
async fn the_plain_header_is_a_key_too_and_is_left_as_it_is() {
    for text in ["order-1", "\"order-1\""] {
        let server = Server::statuses([500, 201]);
        let client = server.client(quick().auto_key(AutoKey::Random).build().unwrap());
        let request = client.post(URL).header("Idempotency-Key", text);
        assert_eq!(request.send().await.unwrap().status(), 201);
        assert_eq!(
            keys(&server, "idempotency-key"),
            vec![Some(text.to_owned()); 2]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_set_by_method_takes_the_place_of_the_plain_header() {
    let server = Server::statuses([500, 201]);
    let client = server.client(quick().build().unwrap());
    let request = client.post(URL).header("Idempotency-Key", "plain");
    request.idempotency_key("set").send().await.unwrap();
    assert_eq!(
        keys(&server, "idempotency-key"),
        vec![Some("set".to_owned()); 2]
    );
}

#[tokio::test(start_paused = true)]
async fn another_header_can_carry_the_key() {
    let server = Server::statuses([500, 201]);
    let client = server.client(
        quick()
            .idempotency_header("PayPal-Request-Id")
            .build()
            .unwrap(),
    );
    client
        .post(URL)
        .idempotency_key("order-1")
        .send()
        .await
        .unwrap();
    assert_eq!(
        keys(&server, "paypal-request-id"),
        vec![Some("order-1".to_owned()); 2]
    );
    assert_eq!(keys(&server, "idempotency-key"), vec![None; 2]);

    // The default header then means nothing.
    let server = Server::statuses([500, 201]);
    let client = server.client(
        quick()
            .idempotency_header("PayPal-Request-Id")
            .build()
            .unwrap(),
    );
    client
        .post(URL)
        .header("Idempotency-Key", "order-1")
        .send()
        .await
        .unwrap();
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_survives_build_and_execute() {
    let server = Server::statuses([500, 201]);
    let client = server.client(quick().build().unwrap());
    let request = client.post(URL).idempotency_key("order-1").body("order");
    let request = request.build().unwrap();
    assert!(request.headers()["idempotency-key"].is_sensitive());
    assert_eq!(client.execute(request).await.unwrap().status(), 201);
    let sent = Some("order-1".to_owned());
    assert_eq!(keys(&server, "idempotency-key"), vec![sent; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_the_middleware_sends_the_key() {
    let server = Server::statuses([500]);
    let client = server.client_behind([]);
    for key in ["order-1", "order-2"] {
        let request = client.post(URL).idempotency_key("earlier");
        request.idempotency_key(key).send().await.unwrap();
    }
    let lines = keys(&server, "idempotency-key");
    assert_eq!(lines, ["order-1", "order-2"].map(|key| Some(key.into())));
    assert!(server.received().iter().all(|it| it.headers.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_moved_to_the_header_that_was_configured() {
    let renamed = || quick().idempotency_header("PayPal-Request-Id");
    for method in [Method::POST, Method::PUT, Method::GET] {
        for by_hand in [None, Some("paypal-request-id"), Some("x-other")] {
            for built in [false, true] {
                let server = Server::statuses([500, 201]);
                let client = server.client(renamed().build().unwrap());
                let mut request = client.request(method.clone(), URL);
                if let Some(name) = by_hand {
                    request = request.header(name, "by hand");
                }
                let request = request.idempotency_key("order-1");
                let sent = match built {
                    false => request.send().await,
                    true => client.execute(request.build().unwrap()).await,
                };
                assert_eq!(sent.unwrap().status(), 201, "{method} {by_hand:?} {built}");
                assert_eq!(server.count(), 2);
                for arrival in server.received() {
                    let lines: Vec<_> =
                        (arrival.headers.get_all("paypal-request-id").iter()).collect();
                    assert_eq!(lines, ["order-1"], "{method} {by_hand:?} {built}");
                    assert!(lines[0].is_sensitive());
                    assert_eq!(arrival.headers.get("idempotency-key"), None);
                    let other = usize::from(by_hand == Some("x-other"));
                    assert_eq!(arrival.headers.len(), 1 + other);
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_set_by_hand_is_never_moved() {
    let renamed = || quick().idempotency_header("PayPal-Request-Id");
    for built in [false, true] {
        // The header may be meant for a gateway.
        let server = Server::statuses([500, 201]);
        let client = server.client(renamed().build().unwrap());
        let request = client.post(URL).header("Idempotency-Key", "gateway");
        match built {
            false => request.send().await.unwrap(),
            true => client.execute(request.build().unwrap()).await.unwrap(),
        };
        let gateway = Some("gateway".to_owned());
        assert_eq!(
            keys(&server, "idempotency-key"),
            std::slice::from_ref(&gateway)
        );
        assert_eq!(keys(&server, "paypal-request-id"), [None]);

        // Also next to a key.
        let server = Server::statuses([500, 201]);
        let client = server.client(renamed().build().unwrap());
        let request = client.post(URL).idempotency_key("order-1");
        let request = request.header("Idempotency-Key", "gateway");
        match built {
            false => request.send().await.unwrap(),
            true => client.execute(request.build().unwrap()).await.unwrap(),
        };
        assert_eq!(keys(&server, "idempotency-key"), vec![gateway; 2]);
        let own = Some("order-1".to_owned());
        assert_eq!(keys(&server, "paypal-request-id"), vec![own; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_key_fails_in_build_and_in_send() {
    let server = Server::statuses([200]);
    let with_retry = server.client(quick().build().unwrap());
    for client in [with_retry, server.client_behind([])] {
        for key in ["", "two words", "schl\u{fc}ssel", &"k".repeat(256)] {
            let request = || client.post(URL).idempotency_key(key);
            assert!(request().build().unwrap_err().is_builder());
            assert!(request().send().await.unwrap_err().is_builder());
            // A valid key after it does not repair the request.
            let request = request().idempotency_key("order-1");
            assert!(request.send().await.unwrap_err().is_builder());
        }
    }
    assert_eq!(server.count(), 0);
}

#[cfg(feature = "tracing")]
#[tokio::test(start_paused = true)]
async fn the_log_says_what_is_wrong_with_a_key_and_not_the_key() {
    let log = Log::default();
    let _listening = log.listen();
    let client = Server::statuses([200]).client_behind([]);
    let request = client.post(URL).idempotency_key("secret 1");
    request.send().await.unwrap_err();
    assert_eq!(log.count(), 1);
    assert_eq!(
        log.last(),
        "request will not be sent: the idempotency key has the byte 0x20 \
         at position 6, only visible ASCII (0x21 to 0x7e) is allowed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_quoted_key_is_sent_in_quotes() {
    let server = Server::statuses([500, 201]);
    let client = server.client(quick().build().unwrap());
    let key = IdempotencyKey::new("order-1").unwrap().quoted();
    client.post(URL).idempotency_key(key).send().await.unwrap();
    assert_eq!(
        keys(&server, "idempotency-key"),
        vec![Some("\"order-1\"".to_owned()); 2]
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalid_key_fails_before_anything_is_sent_and_says_why() {
    let server = Server::statuses([200]);
    let client = server.client(quick().build().unwrap());
    for (request, message) in [
        (
            client.post(URL).header("idempotency-key", "two words"),
            "the idempotency key has the byte 0x20 at position 3, \
             only visible ASCII (0x21 to 0x7e) is allowed",
        ),
        (
            client.post(URL).header("idempotency-key", "k".repeat(256)),
            "the idempotency key has 256 characters, at most 255 are allowed",
        ),
        (
            client.post(URL).header("idempotency-key", ""),
            "the idempotency key is empty",
        ),
        (
            client
                .post(URL)
                .header("idempotency-key", "one")
                .header("idempotency-key", "two"),
            "the idempotency key stands in 2 lines of the header, only one is allowed",
        ),
        (
            client.post(URL).header("idempotency-key", "\"open"),
            "the idempotency key begins with a quote, but is no quoted string",
        ),
    ] {
        let error = request.send().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("not sent to api.example.com: {message}")
        );
        let own = SteadyError::of(&error).expect("an error of this crate");
        assert!(own.is_config() && own.attempts() == 0);
        let source = own.invalid().unwrap();
        assert_eq!(source.to_string(), message);
        assert!(source.is::<InvalidKeyError>());
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_key_is_generated_by_default() {
    let server = Server::statuses([503]);
    let client = server.client(quick().build().unwrap());
    client.post(URL).body("order").send().await.unwrap();
    assert_eq!(keys(&server, "idempotency-key"), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_random_automatic_key_is_new_for_each_call() {
    let server = Server::statuses([503, 500, 201, 503, 201]);
    let client = server.client(quick().auto_key(AutoKey::Random).build().unwrap());
    client.post(URL).body("order").send().await.unwrap();
    client.post(URL).body("order").send().await.unwrap();
    let keys = keys(&server, "idempotency-key");
    assert_eq!(keys.len(), 5);
    assert!(keys.iter().all(Option::is_some));
    assert!(keys[0] == keys[1] && keys[1] == keys[2]);
    assert!(keys[3] == keys[4] && keys[2] != keys[3]);
}

#[tokio::test(start_paused = true)]
async fn an_automatic_content_key_is_the_same_for_the_same_payload() {
    let server = Server::statuses([503, 201]);
    let client = server.client(quick().auto_key(AutoKey::Content).build().unwrap());
    client.post(URL).body("order").send().await.unwrap();
    client.post(URL).body("order").send().await.unwrap();
    client.post(URL).body("another").send().await.unwrap();
    client.post(URL).send().await.unwrap();
    let keys = keys(&server, "idempotency-key");
    let url = reqwest::Url::parse(URL).unwrap();
    let expected = IdempotencyKey::from_content(&http::Method::POST, &url, "order");
    assert_eq!(keys[0].as_deref(), Some(expected.as_str()));
    assert!(keys[0] == keys[1] && keys[1] == keys[2]);
    assert!(keys[3] != keys[2] && keys[4] != keys[3] && keys[4] != keys[2]);
    assert!(keys[4].is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_no_content_to_make_a_key_from() {
    let server = Server::statuses([503]);
    let client = server.client(quick().auto_key(AutoKey::Content).build().unwrap());
    let stream = || Body::wrap(String::from("order"));
    client.post(URL).body_with(stream).send().await.unwrap();
    assert_eq!(keys(&server, "idempotency-key"), [None]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_need_no_key_get_none() {
    let server = Server::statuses([200]);
    let client = server.client(quick().auto_key(AutoKey::Random).build().unwrap());
    client.get(URL).send().await.unwrap();
    client.put(URL).body("order").send().await.unwrap();
    client.post(URL).mark_idempotent().send().await.unwrap();
    assert_eq!(keys(&server, "idempotency-key"), vec![None; 3]);
    // But a key that is set is sent with any method.
    client
        .put(URL)
        .idempotency_key("put-1")
        .send()
        .await
        .unwrap();
    assert_eq!(
        keys(&server, "idempotency-key")[3].as_deref(),
        Some("put-1")
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_beside_a_header_set_by_hand_is_one_key_or_none() {
    let server = Server::statuses([200]);
    let client = server.client(RetryMiddleware::default());
    let post = || {
        let post = client.post(URL).header("Idempotency-Key", "by-hand");
        post.idempotency_key("ours")
    };
    post().send().await.unwrap();
    let headers = &server.received()[0].headers;
    let lines: Vec<_> = headers.get_all("idempotency-key").iter().collect();
    assert_eq!(lines, ["ours"]);

    // Without the settings, it is ambiguous which of the two applies.
    let built = post().build().unwrap();
    let error = client.execute(built).await.unwrap_err();
    assert!(error.to_string().contains("idempotency key"), "{error}");
    assert_eq!(server.count(), 1);

    let twice = client.post(URL).idempotency_key("first");
    let twice = twice.idempotency_key("second").build().unwrap();
    let lines: Vec<_> = twice.headers().get_all("idempotency-key").iter().collect();
    assert_eq!(lines, ["second"]);
}
