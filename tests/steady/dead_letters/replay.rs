//! Replaying letters.

use std::error::Error;
use std::io;
use std::sync::Arc;

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::dead_letter::{Credentials, Redacted, ReplayError, dead_letter_channel};
use reqwest_steady::observe::{AttemptOutcome, FailureKind};
use reqwest_steady::{AutoKey, RetryMiddleware, StopReason};

use super::stored::{LINE, letter};
use crate::support::scripted::{Reply, Server};

/// A letter with a secret redacted in every place that can hold one.
const REDACTED: &str = r#"{"version":1,"time":"2026-11-16T09:00:00Z","method":"POST","url":"http://api.example.com/orders?q=%41+b&token=REDACTED&&x=REDACTED&%74oken=REDACTED;y&z","redacted":[{"parameter":"token"}],"headers":[["x-trace","1"],["x-trace",{"base64":"/zI="}],["authorization",null],["cookie",null],["cookie",null]],"body":{"base64":"/wD+"},"key":{"header":"x-order-key","value":"\"order 1\""},"repeatable":true,"attempts":[{"outcome":"503","sent_at":"0s","waited":"0s"}],"reason":"retries_exhausted","not_before":"2026-11-16T09:00:10Z"}"#;

fn client(server: &Arc<Server>) -> ClientWithMiddleware {
    server.client(RetryMiddleware::default())
}

fn fresh(host: &str) -> Credentials {
    Credentials::for_host(host)
        .header("Authorization", "Bearer fresh")
        .header("cookie", "a=fresh")
        .parameter("token", "fr&sh=é")
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_sent_unchanged_with_fresh_credentials() {
    let server = Server::statuses([503, 200]);
    let letter = letter(&REDACTED.replace("REDACTED;y", "REDACTED"));
    let client = client(&server);
    let credentials = fresh("api.example.com")
        .parameter("x", "of no use")
        .header("x-new", "of no use");
    let response = letter
        .replay(&client)
        .credentials(&credentials)
        .await
        .unwrap();
    assert_eq!(response.status(), 200);

    let arrivals = server.received();
    assert_eq!(arrivals.len(), 2, "the client retries it like any call");
    for arrival in arrivals {
        assert_eq!(arrival.method, "POST");
        assert_eq!(
            arrival.url.as_str(),
            "http://api.example.com/orders?q=%41+b&token=fr%26sh%3D%C3%A9&&x=REDACTED\
             &%74oken=fr%26sh%3D%C3%A9&z"
        );
        let lines = |name: &str| -> Vec<_> {
            let lines = arrival.headers.get_all(name).into_iter();
            lines.map(|value| value.as_bytes().to_vec()).collect()
        };
        assert_eq!(lines("x-trace"), [b"1".to_vec(), b"\xff2".to_vec()]);
        assert_eq!(lines("authorization"), [b"Bearer fresh".to_vec()]);
        assert_eq!(lines("cookie"), [b"a=fresh".to_vec()]);
        assert_eq!(lines("x-order-key"), [b"\"order 1\"".to_vec()]);
        assert_eq!(arrival.headers.len(), 5);
        assert!(arrival.headers["authorization"].is_sensitive());
        assert!(arrival.headers["x-order-key"].is_sensitive());
        assert_eq!(arrival.body.as_deref(), Some(&b"\xff\0\xfe"[..]));
    }
}

#[tokio::test(start_paused = true)]
async fn fresh_lines_of_a_header_come_where_the_redacted_ones_were() {
    let headers = r#"[["x-note",null],["accept","a"],["x-note","2"],["x-note",null]]"#;
    let letter = letter(&LINE.replace(r#"[["x-trace","1"]]"#, headers));
    let server = Server::statuses([200]);
    let fresh = Credentials::for_host("api.example.com")
        .header("x-note", "0")
        .header("x-note", "1");
    let client = client(&server);
    letter.replay(&client).credentials(&fresh).await.unwrap();
    let arrival = &server.received()[0];
    let lines = arrival.headers.iter().map(|(name, value)| {
        let value = value.to_str().unwrap();
        format!("{name}: {value}")
    });
    let lines: Vec<_> = lines.filter(|line| !line.contains("-key")).collect();
    assert_eq!(lines, ["x-note: 0", "x-note: 1", "x-note: 2", "accept: a"]);
}

#[tokio::test(start_paused = true)]
async fn a_letter_keeps_its_key_header_whatever_the_client_uses() {
    // The server knows the key from this header, and may ignore it in another.
    let line = LINE.replace("x-order-key", "idempotency-key");
    for line in [
        &line,
        &line.replace("\"repeatable\":true", "\"repeatable\":false"),
    ] {
        let server = Server::statuses([200]);
        let renamed = RetryMiddleware::builder().idempotency_header("PayPal-Request-Id");
        let client = server.client(renamed.build().unwrap());
        let letter = letter(line);
        letter.replay(&client).even_without_key().await.unwrap();
        let arrival = &server.received()[0];
        assert!(arrival.headers.contains_key("idempotency-key"));
        assert!(!arrival.headers.contains_key("paypal-request-id"));
        assert_eq!(server.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_letter_of_a_replay_keeps_the_key_in_its_header() {
    let not_repeatable = LINE.replace("\"repeatable\":true", "\"repeatable\":false");
    for line in [LINE, &not_repeatable] {
        let server = Server::statuses([503]);
        let (sink, mut letters) = dead_letter_channel(1);
        let renamed = RetryMiddleware::builder()
            .idempotency_header("PayPal-Request-Id")
            .auto_key(AutoKey::Random)
            .max_retries(1)
            .dead_letter_sink(sink);
        let client = server.client(renamed.build().unwrap());
        let first = letter(line);
        let response = first.replay(&client).even_without_key().await.unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(server.count(), 2, "its key makes it repeatable");

        let second = letters.try_recv().unwrap();
        assert_eq!(second.key(), Some("order-1"));
        assert_eq!(second.key(), first.key());
        assert_eq!(second.redacted(), first.redacted());
        assert!(second.is_repeatable());
        let server = Server::statuses([200]);
        second.replay(&self::client(&server)).await.unwrap();
        let arrival = &server.received()[0];
        assert_eq!(arrival.headers["idempotency-key"], "order-1");
        assert!(!arrival.headers.contains_key("paypal-request-id"));
        assert_eq!(server.count(), 1);
    }
}

/// Replays a letter that is refused, and returns the error.
async fn refusal(line: &str, credentials: &[Credentials]) -> ReplayError {
    let server = Server::statuses([200]);
    let (letter, client) = (letter(line), client(&server));
    let replay = credentials
        .iter()
        .fold(letter.replay(&client), |replay, each| {
            replay.credentials(each)
        });
    let error = replay.await.unwrap_err();
    assert_eq!(server.count(), 0);
    error
}

#[tokio::test(start_paused = true)]
async fn missing_credentials_are_named_and_nothing_is_sent() {
    let error = refusal(REDACTED, &[]).await;
    assert_eq!(
        error.to_string(),
        "not sent: missing credentials for parameter token, header authorization, header cookie"
    );
    let half = Credentials::for_host("api.example.com")
        .header("authorization", "hidden")
        .added_by_client("Cookie");
    let ReplayError::Missing(places) = refusal(REDACTED, &[half]).await else {
        panic!()
    };
    assert_eq!(places, [Redacted::Parameter("token".into())]);
}

#[tokio::test(start_paused = true)]
async fn credentials_of_another_host_are_not_sent() {
    for host in ["api.example.org", "example.com", "api.example.com:8080"] {
        let error = refusal(REDACTED, &[fresh(host)]).await;
        assert!(
            matches!(&error, ReplayError::Missing(places) if places.len() == 3),
            "{error}"
        );
    }
    // Beside the right credentials they do no harm.
    let server = Server::statuses([200]);
    let (letter, client) = (letter(REDACTED), client(&server));
    let other = Credentials::for_host("api.example.org").header("authorization", "hidden");
    let own = fresh("api.example.com");
    let replay = letter.replay(&client).credentials(&other).credentials(&own);
    assert_eq!(replay.missing(), []);
    replay.await.unwrap();
    assert_eq!(
        server.received()[0].headers["authorization"],
        "Bearer fresh"
    );
}

#[tokio::test(start_paused = true)]
async fn values_that_the_client_adds_need_not_be_given() {
    let server = Server::statuses([200]);
    let (letter, client) = (letter(REDACTED), client(&server));
    let credentials = Credentials::for_host("api.example.com")
        .parameter("token", "fresh")
        .added_by_client("authorization")
        .added_by_client("cookie");
    letter
        .replay(&client)
        .credentials(&credentials)
        .await
        .unwrap();
    let headers = &server.received()[0].headers;
    assert!(!headers.contains_key("authorization") && !headers.contains_key("cookie"));

    let credentials = credentials.added_by_client("x-other");
    let by_client = Credentials::for_host("api.example.com")
        .added_by_client("token")
        .added_by_client("authorization")
        .added_by_client("cookie");
    let line = REDACTED.replace("REDACTED;y", "REDACTED");
    let letter = super::stored::letter(&line);
    let replay = letter.replay(&client).credentials(&by_client);
    replay.await.unwrap();
    assert_eq!(
        server.received()[1].url.as_str(),
        "http://api.example.com/orders?q=%41+b&&x=REDACTED&z"
    );
    // A value that is given takes precedence.
    let replay = letter.replay(&client).credentials(&credentials);
    replay.credentials(&by_client).await.unwrap();
    let url = server.received()[2].url.to_string();
    assert!(url.contains("&token=fresh&"), "{url}");
}

#[tokio::test(start_paused = true)]
async fn user_info_becomes_the_authorization_that_reqwest_makes_of_it() {
    let in_url = LINE.replace("\"redacted\":[]", "\"redacted\":[\"user_info\"]");
    let in_header = LINE.replace("[[\"x-trace\",\"1\"]]", "[[\"authorization\",null]]");
    let credentials = Credentials::for_host("api.example.com").user_info("me", "p:w@é");
    for line in [in_url, in_header] {
        assert!(matches!(refusal(&line, &[]).await, ReplayError::Missing(_)));
        let server = Server::statuses([200]);
        let (letter, client) = (letter(&line), client(&server));
        letter
            .replay(&client)
            .credentials(&credentials)
            .await
            .unwrap();
        let arrival = &server.received()[0];
        assert_eq!(arrival.url.as_str(), "http://api.example.com/orders?page=7");
        assert_eq!(arrival.headers["authorization"], "Basic bWU6cDp3QMOp");
    }
}

#[tokio::test(start_paused = true)]
async fn letters_that_are_incomplete_or_unrepeatable_are_refused() {
    for body in ["{\"too_large\":5000}", "\"not_replayable\""] {
        let error = refusal(&LINE.replace("{\"text\":\"order\"}", body), &[]).await;
        assert!(matches!(error, ReplayError::BodyNotKept), "{error}");
    }
    let broken = fresh("api.example.com").header("cookie", "hid\nden");
    let error = refusal(REDACTED, &[broken]).await;
    assert_eq!(
        error.to_string(),
        "not sent: invalid value for header cookie"
    );

    let without_key = LINE
        .replace(r#"{"header":"idempotency-key","value":"order-1"}"#, "null")
        .replace("\"repeatable\":true", "\"repeatable\":false");
    let error = refusal(&without_key, &[]).await;
    assert!(matches!(error, ReplayError::NotRepeatable), "{error}");
    // The caller may send it at its own risk, but only once.
    let server = Server::statuses([503, 200]);
    let (letter, client) = (letter(&without_key), client(&server));
    let response = letter.replay(&client).even_without_key().await.unwrap();
    assert_eq!((response.status().as_u16(), server.count()), (503, 1));
}

#[tokio::test(start_paused = true)]
async fn a_letter_marked_as_idempotent_stays_idempotent() {
    let line = LINE.replace(r#"{"header":"idempotency-key","value":"order-1"}"#, "null");
    let server = Server::statuses([503, 200]);
    let (letter, client) = (letter(&line), client(&server));
    let response = letter.replay(&client).await.unwrap();
    assert_eq!((response.status().as_u16(), server.count()), (200, 2));
}

#[tokio::test(start_paused = true)]
async fn the_clients_error_is_passed_on_and_shows_no_secret() {
    let server = Server::new(|_| Reply::fail(io::ErrorKind::ConnectionReset));
    let (letter, client) = (letter(REDACTED), client(&server));
    let credentials = Credentials::for_host("api.example.com")
        .header("authorization", "hidden")
        .header("cookie", "hidden")
        .parameter("token", "hidden");
    let replay = letter.replay(&client).credentials(&credentials);
    assert!(!format!("{replay:?} {credentials:?}").contains("hidden"));
    let error = replay.await.unwrap_err();
    assert_eq!(error.to_string(), "the request failed: reset");
    assert!(!format!("{error:?} {error}").contains("hidden"));
    assert!(
        error
            .source()
            .is_some_and(|source| source.is::<reqwest_middleware::Error>())
    );
    assert_eq!(server.count(), 6, "the client retries it like any call");
}

#[tokio::test]
async fn not_even_the_whole_chain_of_an_error_shows_a_fresh_secret() {
    // No server listens on this port.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let letter = letter(&REDACTED.replace("api.example.com", &address.to_string()));
    let client = ClientBuilder::new(reqwest::Client::new()).build();
    let credentials = Credentials::for_host(address.to_string())
        .header("authorization", "hidden")
        .header("cookie", "hidden")
        .parameter("token", "hidden");
    let error = letter.replay(&client).credentials(&credentials).await;
    let error = anyhow::Error::from(error.unwrap_err());
    let shown = format!("{error:#} {error:?}");
    assert!(shown.contains(&address.to_string()), "{shown}");
    assert!(!shown.contains("hidden"), "{shown}");
}

#[test]
fn a_letter_tells_what_happened() {
    let letter = letter(LINE);
    assert_eq!(
        letter.to_string(),
        "POST api.example.com/orders, given up after 1 attempt: retries_exhausted"
    );
    assert_eq!(letter.stop_reason(), Some(StopReason::RetriesExhausted));
    assert!(letter.not_before() > letter.time());
    let outcome = letter.attempts()[0].outcome();
    assert_ne!(outcome, AttemptOutcome::Failure(FailureKind::Other));
    assert_eq!(letter.redacted(), []);
}
