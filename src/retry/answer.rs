//! What is done with the body of an answer: read in whole when it is wanted, out of the way when
//! it is not.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{StatusCode, Version};
use http_body::{Frame, SizeHint};
use reqwest::{Body, Response, ResponseBuilderExt};
use reqwest_middleware::{Error, Result};
use tokio::time::Instant;

use crate::clock;

/// A discarded answer is read so far, that its connection can be used again. Reading more would
/// cost more than a new connection.
const DRAIN_BYTES: u64 = 256 * 1024;
const DRAIN_TIME: Duration = Duration::from_millis(100);

/// Reads what is left of a discarded answer, within bounds, and not after `latest`.
pub(crate) async fn drain(mut response: Response, latest: Instant) {
    if !is_worth_reading(&response) {
        return;
    }
    let read = async {
        let mut left = DRAIN_BYTES;
        while let Ok(Some(chunk)) = response.chunk().await {
            match left.checked_sub(chunk.len() as u64) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    // Whatever comes of it, the retry goes on.
    let _ = tokio::time::timeout_at(drain_end(latest), read).await;
}

/// Reads what is left of an answer, within the same bounds, but keeps it: it may still be wanted.
pub(crate) async fn read_ahead(mut response: Response, latest: Instant) -> Response {
    if !is_worth_reading(&response) {
        return response;
    }
    let end = drain_end(latest);
    let mut chunks = VecDeque::new();
    let mut length = 0;
    while length <= DRAIN_BYTES {
        match tokio::time::timeout_at(end, response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                length += chunk.len() as u64;
                chunks.push_back(chunk);
            }
            Ok(Ok(None)) => return with_body(response, |_| joined(chunks).into()),
            // Whoever reads it will see how it ends.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    with_body(response, |rest| Body::wrap(Prefixed { chunks, rest }))
}

/// An HTTP/2 connection is shared: dropping the answer ends its stream only, and tells the server to
/// stop sending.
fn is_worth_reading(response: &Response) -> bool {
    let length = response.content_length();
    response.version() < Version::HTTP_2 && length.is_none_or(|length| length <= DRAIN_BYTES)
}

fn drain_end(latest: Instant) -> Instant {
    clock::after(clock::now(), DRAIN_TIME).min(latest)
}

/// Reads the body into memory. A body over the limit is given back as a stream that starts with
/// what was read.
pub(crate) async fn buffer(mut response: Response, limit: usize) -> Result<Response> {
    // An HTTP/2 stream that is reset without an error looks like a body that has ended. A 304 has
    // the length of the body that it does not send (RFC 9110 §15.4.5).
    let announced = match response.status() {
        StatusCode::NOT_MODIFIED => None,
        _ => response.content_length(),
    };
    let mut chunks = VecDeque::new();
    let mut length = 0_usize;
    while length <= limit {
        let chunk = response.chunk().await;
        match chunk.map_err(|error| error.with_url(response.url().clone()))? {
            Some(chunk) => {
                length = length.saturating_add(chunk.len());
                chunks.push_back(chunk);
            }
            None if announced.is_some_and(|announced| announced > length as u64) => {
                let kind = io::ErrorKind::UnexpectedEof;
                let cut_short = "the body of the answer is shorter than announced";
                return Err(Error::middleware(io::Error::new(kind, cut_short)));
            }
            None => return Ok(with_body(response, |_| joined(chunks).into())),
        }
    }
    Ok(with_body(response, |rest| {
        Body::wrap(Prefixed { chunks, rest })
    }))
}

fn joined(mut chunks: VecDeque<Bytes>) -> Bytes {
    match chunks.len() {
        0 | 1 => chunks.pop_front().unwrap_or_default(),
        _ => {
            let mut all = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
            all.extend(chunks);
            all.freeze()
        }
    }
}

/// The same answer around another body, made from what is left of its own.
fn with_body(response: Response, body: impl FnOnce(Body) -> Body) -> Response {
    // reqwest keeps the URL beside the response, and takes it back only by way of the builder.
    let mut url = http::Response::builder().url(response.url().clone());
    let (mut parts, rest) = http::Response::<Body>::from(response).into_parts();
    if let Some(url) = url.extensions_mut() {
        parts.extensions.extend(std::mem::take(url));
    }
    http::Response::from_parts(parts, body(rest)).into()
}

/// A body whose beginning has been read already.
struct Prefixed {
    chunks: VecDeque<Bytes>,
    rest: Body,
}

impl http_body::Body for Prefixed {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, reqwest::Error>>> {
        match self.chunks.pop_front() {
            Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read: u64 = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}
