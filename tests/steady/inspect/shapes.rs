//! Every shape of a body, over real connections of HTTP/1.1 and HTTP/2.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use reqwest::{Method, Version};
use reqwest_steady::{Inspect, StopReason};
use tokio::time::Sleep;

use super::*;
use crate::support::hyper_server::HyperServer;
use crate::support::raw::{self, direct, in_time, reported, retry};

/// What the body does after its chunks.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    End,
    /// The connection or the stream is reset.
    Break,
    Stall,
    /// It repeats its last chunk.
    Repeat,
}

/// One response, and what is expected of the first attempt.
#[derive(Clone)]
struct Shape {
    name: &'static str,
    method: &'static str,
    status: u16,
    content_type: &'static str,
    /// In the headers.
    length: Option<u64>,
    chunks: &'static [&'static [u8]],
    then: Then,
    limit: usize,
    /// What the function sees of it.
    sight: Option<(&'static [u8], bool)>,
    requests: usize,
}

const FINE: Shape = Shape {
    name: "",
    method: "GET",
    status: 200,
    content_type: "text/plain",
    length: None,
    chunks: &[b"fine"],
    then: Then::End,
    limit: 1000,
    sight: Some((b"fine", true)),
    requests: 1,
};

const STREAM: Shape = Shape {
    content_type: "text/event-stream",
    then: Then::Stall,
    ..FINE
};

#[rustfmt::skip]
const SHAPES: &[Shape] = &[
    Shape { name: "empty", chunks: &[], sight: Some((b"", true)), ..FINE },
    Shape { name: "empty, length 0", chunks: &[], length: Some(0), sight: Some((b"", true)), ..FINE },
    Shape { name: "empty, limit 0", chunks: &[], length: Some(0), limit: 0, sight: Some((b"", true)), ..FINE },
    Shape { name: "chunked", chunks: &[b"f", b"in", b"e"], ..FINE },
    Shape { name: "with a length", length: Some(4), ..FINE },
    Shape { name: "a verdict", chunks: &[b"ag", b"ain"], requests: 2, sight: Some((b"again", true)), ..FINE },
    Shape { name: "final", status: 503, chunks: &[b"stop"], sight: Some((b"stop", true)), ..FINE },
    Shape { name: "invalid UTF-8", chunks: &[b"\xFF\xC3"], sight: Some((b"\xFF\xC3", true)), ..FINE },
    Shape { name: "limit 0", chunks: &[b"again"], limit: 0, sight: Some((b"", false)), ..FINE },
    Shape { name: "limit 0 of an error", status: 404, chunks: &[b"again"], limit: 0, sight: Some((b"", false)), ..FINE },
    Shape { name: "over the limit", limit: 3, sight: Some((b"fin", false)), ..FINE },
    Shape { name: "exactly the limit", limit: 4, sight: Some((b"fine", false)), ..FINE },
    Shape { name: "exactly the limit, with a length", limit: 4, length: Some(4), ..FINE },
    Shape { name: "endless", then: Then::Repeat, limit: 9, sight: Some((b"finefinef", false)), ..FINE },
    Shape { name: "stalling", then: Then::Stall, sight: Some((b"fine", false)), ..FINE },
    Shape { name: "stalling error", status: 503, chunks: &[b"stop"], then: Then::Stall, sight: Some((b"stop", false)), ..FINE },
    Shape { name: "stalling at once", chunks: &[], then: Then::Stall, sight: Some((b"", false)), ..FINE },
    Shape { name: "broken at once", chunks: &[], then: Then::Break, sight: None, requests: 2, ..FINE },
    Shape { name: "broken", chunks: &[b"stop"], then: Then::Break, sight: None, requests: 2, ..FINE },
    Shape { name: "broken POST", method: "POST", chunks: &[b"again"], then: Then::Break, sight: None, ..FINE },
    Shape { name: "broken error", status: 503, chunks: &[b"stop"], then: Then::Break, sight: Some((b"stop", false)), ..FINE },
    Shape { name: "broken after the limit", chunks: &[b"again", b"more"], limit: 3, then: Then::Break, sight: Some((b"aga", false)), ..FINE },
    Shape { name: "shorter than its length", length: Some(100), sight: None, requests: 2, ..FINE },
    Shape { name: "shorter error", status: 503, chunks: &[b"stop"], length: Some(100), sight: Some((b"stop", false)), ..FINE },
    Shape { name: "HEAD", method: "HEAD", chunks: &[b"again"], length: Some(5), sight: None, ..FINE },
    Shape { name: "no content", status: 204, chunks: &[], sight: None, ..FINE },
    Shape { name: "not modified", status: 304, chunks: &[], sight: None, ..FINE },
    Shape { name: "reset content", status: 205, chunks: &[], length: Some(0), sight: Some((b"", true)), ..FINE },
    Shape { name: "a POST", method: "POST", chunks: &[b"again"], sight: Some((b"again", true)), ..FINE },
    Shape { name: "LF", chunks: &[b"data: x\n\n"], sight: Some((b"data: x\n\n", false)), ..STREAM },
    Shape { name: "CR LF in parts", chunks: &[b"data: x\r", b"\n\r\n"], sight: Some((b"data: x\r\n\r\n", false)), ..STREAM },
    Shape { name: "CR", chunks: &[b"data: x\r\r"], sight: Some((b"data: x\r\r", false)), ..STREAM },
    Shape { name: "BOM, comment, retry", chunks: &[b"\xEF\xBB", b"\xBF: hi\nretry: 10\n\nda", b"ta\n\n"],
        sight: Some((b"\xEF\xBB\xBF: hi\nretry: 10\n\ndata\n\n", false)), ..STREAM },
    Shape { name: "an event that asks for a retry", chunks: &[b"data: again\n\n"], requests: 2,
        sight: Some((b"data: again\n\n", false)), ..STREAM },
    Shape { name: "a stream that breaks early", chunks: &[b": ping\n\ndata: x\n"], then: Then::Break, sight: None,
        requests: 2, ..STREAM },
    Shape { name: "a stream that breaks later", chunks: &[b"data: x\n\n", b"data: y"], then: Then::Break,
        sight: Some((b"data: x\n\n", false)), ..STREAM },
    Shape { name: "a stream that ends early", chunks: &[b"data: x"], then: Then::End, sight: Some((b"data: x", true)), ..STREAM },
    Shape { name: "an event over the limit", chunks: &[b"data: again"], limit: 6, sight: Some((b"data: ", false)), ..STREAM },
    Shape { name: "a stream of pings", chunks: &[b": ping\n\n"], then: Then::Repeat, limit: 16,
        sight: Some((b": ping\n\n: ping\n\n", false)), ..STREAM },
];

/// The body of a [`Shape`]. It pauses after each chunk, so that they arrive one after the other.
struct ShapedBody {
    shape: Shape,
    pause: Pin<Box<Sleep>>,
}

fn pause() -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep(20 * MS))
}

impl hyper::body::Body for ShapedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        ready!(self.pause.as_mut().poll(context));
        let chunks = self.shape.chunks;
        if let [chunk, rest @ ..] = chunks {
            if !(rest.is_empty() && self.shape.then == Then::Repeat) {
                self.shape.chunks = rest;
            }
            self.pause = pause();
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(chunk)))));
        }
        match self.shape.then {
            Then::End => Poll::Ready(None),
            Then::Break => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            Then::Stall | Then::Repeat => Poll::Pending,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.shape.length;
        length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// Responds with a shape, and then with [`FINE`]. Returns the number of requests as well.
async fn serve(shape: Shape, version: Version) -> (HyperServer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    let respond = move |request: Request<Incoming>| {
        let mut shape = match seen.fetch_add(1, Ordering::SeqCst) {
            0 => shape.clone(),
            _ => FINE,
        };
        let response = http::Response::builder().status(shape.status);
        let mut response = response.header("content-type", shape.content_type);
        if request.method() == Method::HEAD {
            // hyper would send the body over HTTP/2.
            response = response.header("content-length", shape.length.unwrap());
            (shape.chunks, shape.length) = (&[], None);
        }
        let body = ShapedBody {
            shape,
            pause: pause(),
        };
        async { response.body(body).unwrap() }
    };
    (HyperServer::start(version, respond).await, count)
}

/// Reads at most this many bytes. Returns them, and whether the body broke off.
async fn read(mut response: Response, most: usize) -> (Vec<u8>, bool) {
    let mut read = Vec::new();
    while read.len() < most {
        match response.chunk().await {
            Ok(Some(chunk)) => read.extend_from_slice(&chunk),
            Ok(None) => return (read, false),
            Err(_) => return (read, true),
        }
    }
    (read, false)
}

async fn check(shape: &Shape, version: Version) {
    let place = format!("{} over {version:?}", shape.name);
    let (server, count) = serve(shape.clone(), version).await;
    let seen = Seen::default();
    let what = Inspect::all().limit(shape.limit).timeout(500 * MS);
    let inner = match version {
        Version::HTTP_2 => direct().http2_prior_knowledge(),
        _ => direct(),
    };
    let client = raw::client(inner, seen.watch(retry(), what));
    let method = shape.method.parse().unwrap();
    let (result, report) = reported(client.request(method, &server.url)).await;
    assert_eq!(
        count.load(Ordering::SeqCst),
        shape.requests,
        "{place}: {report:?}"
    );
    assert_eq!(report.attempts().count(), shape.requests, "{place}");
    let seen = seen.all();
    match shape.sight {
        None if shape.requests == 1 => assert_eq!(seen, [], "{place}"),
        // The function saw only the second response.
        None => assert_eq!(
            seen,
            [(b"fine"[..shape.limit.min(4)].to_vec(), shape.limit > 4)],
            "{place}"
        ),
        Some((start, is_complete)) => {
            assert_eq!(
                seen[0].0.escape_ascii().to_string(),
                start.escape_ascii().to_string(),
                "{place}"
            );
            assert_eq!(seen[0].1, is_complete, "{place}");
        }
    }
    let response = match result {
        Ok(response) => response,
        Err(error) => {
            assert_eq!(shape.name, "broken POST", "{place}: {error:?}");
            assert_eq!(report.stop_reason(), StopReason::NotIdempotent);
            return;
        }
    };
    assert_eq!(response.version(), version, "{place}");
    assert!(response.remote_addr().is_some(), "{place}");
    assert_eq!(response.url().as_str(), server.url, "{place}");
    let shape = if shape.requests == 2 { &FINE } else { shape };
    assert_eq!(response.status(), shape.status, "{place}");
    if shape.then != Then::Break
        && shape.length.is_none_or(|length| length < 100)
        && shape.method != "HEAD"
    {
        // A body without a length may have got one, because it is in memory.
        let length = response.content_length().filter(|_| shape.length.is_some());
        assert_eq!(length, shape.length, "{place}");
    }
    let body = match (shape.method, shape.then) {
        ("HEAD", _) => Vec::new(),
        (_, Then::Repeat) => shape.chunks.concat().repeat(40),
        _ => shape.chunks.concat(),
    };
    let most = match shape.then {
        Then::Stall | Then::Repeat => body.len(),
        Then::End | Then::Break => usize::MAX,
    };
    let (bytes, is_broken) = in_time(read(response, most)).await;
    assert_eq!(&bytes[..body.len()], body, "{place}");
    let breaks = shape.then == Then::Break || shape.length == Some(100);
    assert_eq!(is_broken, breaks, "{place}");
}

#[tokio::test]
async fn every_shape_is_seen_and_passed_on_by_http_1() {
    join_all(SHAPES.iter().map(|shape| check(shape, Version::HTTP_11))).await;
}

#[tokio::test]
async fn every_shape_is_seen_and_passed_on_by_http_2() {
    join_all(SHAPES.iter().map(|shape| check(shape, Version::HTTP_2))).await;
}
