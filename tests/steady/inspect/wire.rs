//! Inspected bodies over real connections.

use reqwest_steady::{BodyVerdict, Inspect, RetryMiddlewareBuilder, StopReason};

use super::by_word;
use crate::support::raw::{
    Server, Then, client, direct, outcomes, reply, reported, respond, retry,
};

fn inspecting() -> RetryMiddlewareBuilder {
    retry().inspect_body(Inspect::all(), by_word)
}

#[tokio::test]
async fn a_final_verdict_returns_the_response_as_it_came() {
    let server = Server::start(|_| respond(429, "stop: no money")).await;
    let client = client(direct(), inspecting());
    for _ in 0..2 {
        let (response, report) = reported(client.get(server.url())).await;
        let response = response.unwrap();
        assert_eq!(report.stop_reason(), StopReason::NotRetryable);
        assert_eq!(response.content_length(), Some(14));
        assert_eq!(response.text().await.unwrap(), "stop: no money");
    }
    // The body was read to its end, so the connection was used again.
    assert_eq!((server.count(), server.connections()), (2, 1));
}

#[tokio::test]
async fn an_error_in_a_chunked_200_is_retried() {
    let server = Server::start(|index| match index {
        0 => {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            reply(
                format!("{head}3\r\nag-\r\n5\r\nagain\r\n0\r\n\r\n"),
                Then::KeepOpen,
            )
        }
        _ => respond(200, "fine"),
    })
    .await;
    let client = client(direct(), inspecting());
    let (response, report) = reported(client.get(server.url())).await;
    assert_eq!(response.unwrap().text().await.unwrap(), "fine");
    assert_eq!((server.count(), server.connections()), (2, 1));
    assert_eq!(outcomes(&report), ["200", "200"]);
}

#[tokio::test]
async fn a_stream_cut_before_its_first_event_is_retried() {
    const HEAD: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let server = Server::start(|index| match index {
        0 => reply(format!("{HEAD}8\r\n: ping\n\n\r\n"), Then::Reset),
        // It stays open, and the caller reads what comes.
        _ => reply(format!("{HEAD}9\r\ndata: x\n\n\r\n"), Then::Silence),
    })
    .await;
    let client = client(direct(), inspecting());
    let (response, report) = reported(client.get(server.url())).await;
    let mut response = response.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "data: x\n\n");
    assert_eq!((server.count(), report.retries()), (2, 1));
}

#[tokio::test]
async fn a_body_shorter_than_announced_is_a_failed_attempt() {
    let server = Server::start(|index| match index {
        0 => reply(
            "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
            Then::Close,
        ),
        _ => respond(200, "whole"),
    })
    .await;
    let only_errors = retry().inspect_body(Inspect::errors(), |_, _| Some(BodyVerdict::never()));
    let client = client(direct(), only_errors.inspect_body(Inspect::all(), by_word));
    let (response, report) = reported(client.get(server.url())).await;
    assert_eq!(response.unwrap().text().await.unwrap(), "whole");
    assert_eq!((server.count(), report.retries()), (2, 1));
}

#[tokio::test]
async fn a_verdict_on_a_redirected_response_repeats_no_post() {
    // The server accepted the POST. What the second URL says is no refusal of the first request.
    let server = Server::start(|index| match index {
        0 => {
            let head = "HTTP/1.1 303 See Other\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n";
            reply(head, Then::KeepOpen)
        }
        _ => respond(200, "again"),
    })
    .await;
    let follows = reqwest::Client::builder().no_proxy();
    let client = client(follows, inspecting().retry_without_key(true));
    let (response, report) = reported(client.post(server.url())).await;
    assert_eq!(response.unwrap().text().await.unwrap(), "again");
    assert_eq!(report.stop_reason(), StopReason::NotIdempotent);
    assert_eq!(server.count(), 2);
}
