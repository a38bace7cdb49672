//! Bodies that can be sent again, and bodies that cannot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Body;
use reqwest_middleware::{ClientBuilder, Middleware};
use reqwest_steady::{RequestBuilderExt, RetryMiddleware, RetryReport, StopReason};

use crate::support::scripted::{Reply, Server, URL, dripping, late, respond};
use crate::support::stacks::{MS, middleware, retry_after};

fn quick() -> RetryMiddleware {
    with_retries(5)
}

fn with_retries(retries: u32) -> RetryMiddleware {
    let retry = retry_after(MS);
    retry.max_retries(retries).build().unwrap()
}

fn stream(text: &'static str) -> Body {
    let chunks = text.split_inclusive(' ').map(Ok::<_, std::io::Error>);
    Body::wrap_stream(futures_util::stream::iter(chunks))
}

#[tokio::test(start_paused = true)]
async fn bytes_are_sent_again() {
    let server = Server::statuses([503, 503, 200]);
    let client = server.client(quick());
    client.put(URL).body("content").send().await.unwrap();
    let bodies: Vec<_> = server.received().into_iter().map(|it| it.body).collect();
    assert_eq!(bodies, vec![Some("content".into()); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_sent_once_and_its_response_returned() {
    let server = Server::statuses([503, 200]);
    let client = server.client(quick());
    let response = client.put(URL).body(stream("a b c")).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(server.count(), 1);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::BodyNotReplayable);
    assert_eq!(response.text().await.unwrap(), "body of 503");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_succeeds_is_an_ordinary_request() {
    let server = Server::statuses([200]);
    let client = server.client(quick());
    let response = client.put(URL).body(stream("a b c")).send().await.unwrap();
    assert_eq!(
        RetryReport::of(&response).unwrap().stop_reason(),
        StopReason::Succeeded
    );
}

#[tokio::test(start_paused = true)]
async fn body_with_builds_one_body_for_each_attempt() {
    let built = Arc::new(AtomicUsize::new(0));
    let count = built.clone();
    let server = Server::statuses([503, 503, 200]);
    let client = server.client(quick());
    let request = client.put(URL).body_with(move || {
        count.fetch_add(1, Ordering::Relaxed);
        stream("a b c")
    });
    assert_eq!(request.send().await.unwrap().status(), 200);
    assert_eq!(server.count(), 3);
    assert_eq!(built.load(Ordering::Relaxed), 3);
    // The body is a stream each time, so the scripted server sees no bytes.
    assert!(
        server
            .received()
            .iter()
            .all(|arrival| arrival.body.is_none())
    );
}

#[tokio::test(start_paused = true)]
async fn body_with_works_for_bytes_and_keeps_everything_else() {
    let server = Server::statuses([503, 200]);
    let client = server.client(quick());
    let request = client.put(URL).header("x-kind", "text");
    request.body_with(|| "bytes").send().await.unwrap();
    for arrival in server.received() {
        assert_eq!(arrival.body.as_deref(), Some(&b"bytes"[..]));
        assert_eq!(arrival.headers["x-kind"], "text");
        assert_eq!(arrival.method, http::Method::PUT);
        assert_eq!(arrival.url.as_str(), URL);
    }
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn body_with_works_under_two_retries() {
    for (outer, inner) in [(3, 0), (3, 1)] {
        let server = Server::statuses([503, 503, 503, 200]);
        let client = ClientBuilder::new(reqwest::Client::new())
            .with(with_retries(outer))
            .with(with_retries(inner))
            .with_arc(server.clone())
            .build();
        let put = client.put(URL).body_with(|| "built");
        assert_eq!(put.send().await.unwrap().status(), 200);
        let received = server.received();
        assert_eq!(received.len(), 4);
        assert!(
            received
                .iter()
                .all(|it| it.body.as_deref() == Some(b"built"))
        );
    }
}

/// Sends a new body after a 401, as a middleware that signs bodies does.
fn signs_anew() -> impl Middleware {
    middleware(|request, extensions, next| {
        Box::pin(async move {
            let mut again = request.try_clone().unwrap();
            let response = next.clone().run(request, extensions).await?;
            if response.status() != 401 {
                return Ok(response);
            }
            *again.body_mut() = Some("signed anew".into());
            next.run(again, extensions).await
        })
    })
}

#[tokio::test(start_paused = true)]
async fn another_body_is_refused_after_a_retried_call_too() {
    for statuses in [&[401, 200][..], &[503, 401, 200]] {
        let server = Server::statuses(statuses.iter().copied());
        let chain: [Arc<dyn Middleware>; 2] = [Arc::new(signs_anew()), Arc::new(quick())];
        let client = server.client_behind(chain);
        let put = client.put(URL).body_with(|| "built");
        assert!(put.send().await.is_err(), "{statuses:?}");
        // Nothing arrived after the 401.
        assert_eq!(server.count(), statuses.len() - 1);
    }
}

#[tokio::test(start_paused = true)]
async fn another_body_beside_body_with_is_refused() {
    let server = Server::statuses([503, 200]);
    let client = server.client(quick());
    let put = || client.put(URL).idempotency_key("order-1");
    let cloned = put().body_with(|| "built");
    let twin = cloned.try_clone().unwrap();
    let mixed = [
        put().body_with(|| "built").body("other"),
        put().body_with(|| "built").body(""),
        put().body_with(|| "").body("other"),
        put().body_with(|| "built").body(stream("other")),
        put().body_with(|| stream("built")).body("other"),
        put().body_with(|| stream("built")).body(stream("other")),
        cloned.body("other"),
    ];
    for request in mixed {
        let error = request.send().await.unwrap_err().to_string();
        assert_eq!(
            error,
            "not sent to api.example.com: body_with (replaced by another body) should be the only body: \
             remove the later `body`, or move the middleware that replaces bodies inside the retry"
        );
    }
    assert_eq!(server.count(), 0);
    // The other request is unchanged.
    assert_eq!(twin.send().await.unwrap().status(), 200);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn body_with_replaces_an_earlier_body() {
    let server = Server::statuses([503, 503, 200]);
    let client = server.client(quick());
    let request = client.put(URL).body("earlier").body_with(|| "other");
    request.body_with(|| "built").send().await.unwrap();
    let bodies: Vec<_> = server.received().into_iter().map(|it| it.body).collect();
    assert_eq!(bodies, vec![Some("built".into()); 3]);
}

/// Replaces bodies.
fn replaces_bodies() -> impl Middleware {
    middleware(|mut request, extensions, next| {
        Box::pin(async move {
            *request.body_mut() = Some("replaced".into());
            next.run(request, extensions).await
        })
    })
}

#[tokio::test(start_paused = true)]
async fn middleware_that_replaces_bodies_belongs_inside_the_retry() {
    let (retry, replacing): (Arc<dyn Middleware>, Arc<dyn Middleware>) =
        (Arc::new(quick()), Arc::new(replaces_bodies()));
    let server = Server::statuses([503, 200]);
    let outside = server.client_behind([replacing.clone(), retry.clone()]);
    let request = outside.put(URL).body_with(|| "built");
    request.send().await.unwrap_err();
    assert_eq!(server.count(), 0);

    let inside = server.client_behind([retry, replacing]);
    let request = inside.put(URL).body_with(|| "built");
    request.send().await.unwrap();
    let bodies: Vec<_> = server.received().into_iter().map(|it| it.body).collect();
    assert_eq!(bodies, vec![Some("replaced".into()); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_buffered_response_reads_like_any_other() {
    for limit in [0, 5, 11, 1_000_000] {
        let server = Server::statuses([503, 200]);
        let client = server.client(quick());
        let response = client.get(URL).buffer_response(limit).send().await.unwrap();
        assert_eq!(server.count(), 2);
        assert_eq!(response.status(), 200);
        assert_eq!(response.url().as_str(), URL);
        assert_eq!(RetryReport::of(&response).unwrap().retries(), 1);
        assert_eq!(response.content_length(), Some(11));
        assert_eq!(
            response.text().await.unwrap(),
            "body of 200",
            "limit {limit}"
        );
    }
}

fn cut_body() -> Body {
    let chunks = [
        Ok("the beginning"),
        Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
    ];
    Body::wrap_stream(futures_util::stream::iter(chunks))
}

fn cut_short() -> Reply {
    Reply::status(200).body(cut_body())
}

#[tokio::test(start_paused = true)]
async fn a_response_cut_short_is_retried_only_when_buffered() {
    let script = |index| match index {
        0 => cut_short(),
        _ => respond(200),
    };
    let server = Server::new(script);
    let client = server.client(quick());
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(server.count(), 1);
    response.text().await.unwrap_err();

    let server = Server::new(script);
    let client = server.client(quick());
    let response = client.get(URL).buffer_response(100).send().await.unwrap();
    assert_eq!(server.count(), 2);
    assert_eq!(response.text().await.unwrap(), "body of 200");

    let server = Server::new(script);
    let client = server.client(quick());
    let error = client.post(URL).buffer_response(100).send().await;
    assert!(error.unwrap_err().is_decode());
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_a_stream_that_may_still_break() {
    let server = Server::new(|_| cut_short());
    let client = server.client(quick());
    let limit = "the beginning".len() - 1;
    let mut response = client.get(URL).buffer_response(limit).send().await.unwrap();
    assert_eq!(server.count(), 1);
    assert_eq!(response.chunk().await.unwrap().unwrap(), "the beginning");
    response.chunk().await.unwrap_err();

    // A body that just fits is read completely.
    let server = Server::new(|_| cut_short());
    let client = server.client(quick());
    let request = client.get(URL).max_retries(1).buffer_response(limit + 1);
    request.send().await.unwrap_err();
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn when_a_call_gives_up_its_response_comes_back_unchanged() {
    let server = Server::new(|_| Reply::status(503).body(cut_body()));
    let client = server.client(quick());
    let request = client.get(URL).max_retries(1).buffer_response(1000);
    let response = request.send().await.unwrap();
    assert_eq!(server.count(), 2);
    assert_eq!(response.status(), 503);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
}

/// A body that announces more bytes than it has, like a body with a length that is not sent.
struct Announced;

impl http_body::Body for Announced {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, std::io::Error>>> {
        std::task::Poll::Ready(None)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(100)
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_shorter_than_announced_has_failed_unless_none_is_sent() {
    for (method, status, count) in [
        (http::Method::GET, 200, 2),
        (http::Method::GET, 304, 1),
        (http::Method::HEAD, 200, 1),
    ] {
        let server = Server::new(move |_| {
            let response = http::Response::builder().status(status);
            Reply::response(response.body(Body::wrap(Announced)).unwrap())
        });
        let client = server.client(quick());
        let request = client.request(method.clone(), URL).max_retries(1);
        let result = request.buffer_response(1000).send().await;
        assert_eq!(server.count(), count, "{method} {status}");
        match result {
            Ok(response) => assert_eq!((response.status().as_u16(), count), (status, 1)),
            Err(error) => assert_eq!(
                error.to_string(),
                "the body of the response is shorter than announced"
            ),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_body_that_never_ends_does_not_hold_up_the_retry() {
    // Also when responses are buffered. This one is not returned, because the server asks for a retry.
    for status in [503, 400] {
        for limit in [None, Some(usize::MAX)] {
            let server = Server::new(move |index| match index {
                0 => dripping(status, usize::MAX),
                _ => respond(200),
            });
            let client = server.client(quick());
            let mut request = client.get(URL);
            if let Some(limit) = limit {
                request = request.buffer_response(limit);
            }
            assert_eq!(request.send().await.unwrap().status(), 200);
            let gap = server.gaps()[0];
            assert!(gap <= Duration::from_millis(101), "{gap:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn draining_a_response_leaves_time_for_the_retry() {
    let server = Server::new(|index| match index {
        0 => dripping(503, usize::MAX),
        _ => late(Duration::from_millis(20), respond(200)),
    });
    let client = server.client(quick());
    let request = client.get(URL).deadline(Duration::from_millis(50));
    assert_eq!(request.send().await.unwrap().status(), 200);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn near_the_deadline_the_last_response_is_kept() {
    // The retry would start 100 µs before the deadline, and timers round up.
    let server = Server::statuses([503, 200]);
    let retry = retry_after(Duration::from_micros(9500)).build().unwrap();
    let client = server.client(retry);
    let request = client.get(URL).deadline(Duration::from_micros(9600));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 503);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::DeadlineTooClose);
    assert_eq!(server.count(), 1);
}
