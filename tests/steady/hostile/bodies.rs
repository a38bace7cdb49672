//! Endless bodies. Counts how many bytes the client reads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::Body;
use reqwest_steady::testing::Reply;
use reqwest_steady::{RequestBuilderExt, RetryMiddleware, RetryReport, ThrottleMiddleware};
use tokio::time::Instant;

use crate::support::scripted::{Server, URL, respond, throttled};

const CHUNK: usize = 8 * 1024;

/// A response with an endless body that is always ready. `read` counts the bytes taken from it.
fn endless(status: u16, read: &Arc<AtomicUsize>) -> Reply {
    let read = read.clone();
    let chunks = futures_util::stream::repeat_with(move || {
        read.fetch_add(CHUNK, Ordering::Relaxed);
        Ok::<_, io::Error>(Bytes::from_static(&[b'x'; CHUNK]))
    });
    let mut response = http::Response::new(Body::wrap_stream(chunks));
    *response.status_mut() = status.try_into().unwrap();
    Reply::response(response)
}

/// Two endless responses, then one that ends.
fn endless_twice(status: u16, read: &Arc<AtomicUsize>) -> Arc<Server> {
    let read = read.clone();
    Server::new(move |index| match index {
        0 | 1 => endless(status, &read),
        _ => respond(200),
    })
}

#[tokio::test(start_paused = true)]
async fn an_endless_refusal_is_read_only_up_to_the_drain_limit() {
    let read = Arc::new(AtomicUsize::new(0));
    let server = endless_twice(503, &read);
    let client = server.client(RetryMiddleware::default());
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.count(), 3);
    let read = read.load(Ordering::Relaxed);
    assert!((1..=2 * (256 * 1024 + CHUNK)).contains(&read), "{read}");
}

#[tokio::test(start_paused = true)]
async fn an_endless_refusal_is_held_only_up_to_the_throttle_limit() {
    let read = Arc::new(AtomicUsize::new(0));
    let server = endless_twice(429, &read);
    let client = throttled(
        &server,
        RetryMiddleware::builder(),
        ThrottleMiddleware::builder(),
    );
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.count(), 3);
    let read = read.load(Ordering::Relaxed);
    assert!((1..=2 * (16 * 1024 + CHUNK)).contains(&read), "{read}");
}

#[tokio::test(start_paused = true)]
async fn an_endless_response_is_returned_when_the_buffer_is_full() {
    for limit in [0, 1, 100_000] {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = read.clone();
        let server = Server::new(move |_| endless(200, &counted));
        let client = server.client(RetryMiddleware::default());
        let start = Instant::now();
        let request = client.get(URL).buffer_response(limit);
        let mut response = request.send().await.unwrap();
        assert_eq!(RetryReport::of(&response).unwrap().retries(), 0);
        assert_eq!(start.elapsed(), Duration::ZERO);
        let read_before = read.load(Ordering::Relaxed);
        assert!((1..=limit + CHUNK).contains(&read_before), "{read_before}");
        // The buffered bytes are not lost.
        let mut received = 0;
        while received < 2 * limit + CHUNK {
            received += response.chunk().await.unwrap().unwrap().len();
        }
        assert_eq!(received, read.load(Ordering::Relaxed));
        assert_eq!(server.count(), 1);
    }
}
