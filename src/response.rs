//! What is done with the body of an answer: read in whole when it is wanted, out of the way when
//! it is not.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::response::Parts;
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
/// So much of an answer is kept in memory that may still be wanted. The rest stays where it is.
const KEPT_BYTES: usize = 16 * 1024;

/// Reads what is left of an answer that is discarded then, within bounds, and not after `latest`.
pub(crate) async fn drain(result: &mut Result<Response>, latest: impl Fn() -> Instant) {
    let Ok(response) = result else {
        return;
    };
    if !is_worth_reading(response) {
        return;
    }
    // Whatever comes of it, the retry goes on.
    let _ = within_drain_time(latest, async {
        let mut left = DRAIN_BYTES;
        while let Ok(Some(chunk)) = response.chunk().await {
            match left.checked_sub(chunk.len() as u64) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    })
    .await;
}

/// Reads a response that a retry may replace: not longer than such reading usually takes, and not after `latest`.
async fn within_drain_time<F: Future>(latest: impl Fn() -> Instant, read: F) -> Option<F::Output> {
    let mut fixed = None;
    let end = |now| *fixed.get_or_insert_with(|| clock::after(now, DRAIN_TIME).min(latest()));
    clock::within_moving(end, read).await
}

/// What an attempt came to, while it may still be wanted. Most are not, and so an answer is put together only
/// then.
pub(crate) struct HeldResponse {
    /// Or why there was no answer.
    reading: Result<Reading>,
    progress: Progress,
}

enum Progress {
    /// Nobody has begun to read it.
    Untouched,
    /// There was no time to read it to its end.
    Unfinished,
    Ended(Result<Extent>),
}

impl HeldResponse {
    pub(crate) fn new(result: Result<Response>) -> Self {
        Self {
            reading: result.map(|response| Reading::new(response, None)),
            progress: Progress::Untouched,
        }
    }

    /// Reads what is left of an answer, within the same bounds as if it were discarded.
    pub(crate) async fn read_ahead(&mut self, latest: impl Fn() -> Instant) {
        let Ok(reading) = &mut self.reading else {
            return;
        };
        if !is_worth_reading(&reading.response) {
            return;
        }
        // If time runs out, what was read is kept.
        let read = within_drain_time(latest, reading.read(KEPT_BYTES)).await;
        self.progress = read.map_or(Progress::Unfinished, Progress::Ended);
    }

    pub(crate) fn into_result(self) -> Result<Response> {
        let reading = self.reading?;
        Ok(match self.progress {
            Progress::Untouched => reading.response,
            Progress::Ended(Ok(Extent::Whole)) => reading.into_whole().into_response(),
            Progress::Ended(Ok(Extent::OverLimit)) | Progress::Unfinished => reading.into_stream(),
            Progress::Ended(Err(error)) => reading.into_broken(error),
        })
    }
}

/// An HTTP/2 connection is shared: dropping the answer ends its stream only, and tells the server to
/// stop sending.
fn is_worth_reading(response: &Response) -> bool {
    let length = response.content_length();
    response.version() < Version::HTTP_2
        && length.is_none_or(|length| (1..=DRAIN_BYTES).contains(&length))
}

/// Reads the body into memory. A body over the limit is given back as a stream that starts with
/// what was read.
pub(crate) async fn buffer(response: Response, limit: usize) -> Result<Response> {
    let announced = announced(&response);
    let mut reading = Reading::new(response, announced);
    Ok(match reading.read(limit).await? {
        Extent::Whole => reading.into_whole().into_response(),
        Extent::OverLimit => reading.into_stream(),
    })
}

/// The length that the body of this answer should have. The answer to a HEAD announces one, too, and
/// has no body; only the request tells.
pub(crate) fn announced(response: &Response) -> Option<u64> {
    match response.status() {
        // It has the length of the body that it does not send (RFC 9110 §15.4.5).
        StatusCode::NOT_MODIFIED => None,
        _ => response.content_length(),
    }
}

/// How much of a body was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    /// There is more than the limit allows.
    OverLimit,
}

/// An answer whose body is being read into memory.
pub(crate) struct Reading {
    response: Response,
    announced: Option<u64>,
    beginning: Beginning,
}

impl Reading {
    pub(crate) fn new(response: Response, announced: Option<u64>) -> Self {
        Self {
            response,
            announced,
            beginning: Beginning::default(),
        }
    }

    /// Reads on. If this is dropped, what was read so far is kept.
    pub(crate) async fn read(&mut self, limit: usize) -> Result<Extent> {
        while self.beginning.length <= limit {
            let chunk = self.response.chunk().await;
            match chunk.map_err(|error| error.with_url(self.response.url().clone()))? {
                Some(chunk) => self.beginning.push(chunk),
                // An HTTP/2 stream that is reset without an error looks like a body that has ended.
                None if self
                    .announced
                    .is_some_and(|all| all > self.beginning.length as u64) =>
                {
                    let kind = io::ErrorKind::UnexpectedEof;
                    let cut_short = "the body of the answer is shorter than announced";
                    return Err(Error::middleware(io::Error::new(kind, cut_short)));
                }
                None => return Ok(Extent::Whole),
            }
        }
        Ok(Extent::OverLimit)
    }

    /// The answer with a body that is all there, to be given out as often as wanted.
    pub(crate) fn into_whole(self) -> Whole {
        let (head, _) = split(self.response);
        let body = self.beginning.into_bytes();
        Whole { head, body }
    }

    /// The answer with a body that starts with what was read, and goes on with the rest.
    pub(crate) fn into_stream(self) -> Response {
        self.followed_by(Rest::Unread)
    }

    /// The answer with a body that ends where it could not be read any further, and as it did.
    pub(crate) fn into_broken(self, error: Error) -> Response {
        let error = match error {
            Error::Reqwest(error) => error.into(),
            Error::Middleware(error) => error.into(),
        };
        self.followed_by(|_| Rest::Failed(Some(error)))
    }

    fn followed_by(self, rest: impl FnOnce(Body) -> Rest) -> Response {
        let (head, unread) = split(self.response);
        let body = Prefixed {
            chunks: self.beginning.into_chunks(),
            rest: rest(unread),
        };
        http::Response::from_parts(head, Body::wrap(body)).into()
    }
}

/// A chunk below this size is copied to the end of the one before it.
const SMALL_CHUNK: usize = 4096;

/// What was read of a body. It takes about as much memory as it has bytes, in however small chunks
/// they came: each chunk has an owner that is a hundred times as large as its smallest content.
#[derive(Default)]
struct Beginning {
    /// Often the only one, and there is room for it.
    first: Option<Bytes>,
    /// What comes after it.
    chunks: VecDeque<Bytes>,
    /// What comes after them.
    tail: BytesMut,
    /// Of all.
    length: usize,
}

impl Beginning {
    fn push(&mut self, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        self.length = self.length.saturating_add(chunk.len());
        if self.first.is_none() {
            self.first = Some(chunk);
        } else if chunk.len() < SMALL_CHUNK {
            self.tail.extend_from_slice(&chunk);
        } else {
            self.close_tail();
            self.chunks.push_back(chunk);
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.chunks.push_back(tail.freeze());
        }
    }

    /// None of them is empty.
    fn into_chunks(mut self) -> VecDeque<Bytes> {
        self.close_tail();
        if let Some(first) = self.first {
            self.chunks.push_front(first);
        }
        self.chunks
    }

    /// All of it in one piece.
    fn into_bytes(self) -> Bytes {
        match self.first {
            Some(only) if only.len() == self.length => only,
            None => Bytes::new(),
            _ => {
                let mut all = BytesMut::with_capacity(self.length);
                all.extend(self.into_chunks());
                all.freeze()
            }
        }
    }
}

/// An answer that is in memory as a whole.
pub(crate) struct Whole {
    head: Parts,
    body: Bytes,
}

impl Whole {
    pub(crate) fn into_response(self) -> Response {
        http::Response::from_parts(self.head, self.body).into()
    }

    /// The answer, with a body that others can read as well: each from its beginning.
    pub(crate) fn response(&self) -> Response {
        http::Response::from_parts(self.head.clone(), self.body.clone()).into()
    }
}

/// The head of an answer and what is left of its body, ready to become a response again.
fn split(response: Response) -> (Parts, Body) {
    // reqwest keeps the URL beside the response, and takes it back only by way of the builder.
    let mut url = http::Response::builder().url(response.url().clone());
    let (mut head, rest) = http::Response::<Body>::from(response).into_parts();
    if let Some(url) = url.extensions_mut() {
        head.extensions.extend(std::mem::take(url));
    }
    (head, rest)
}

type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body whose beginning has been read already.
struct Prefixed {
    chunks: VecDeque<Bytes>,
    rest: Rest,
}

/// What comes after the beginning.
enum Rest {
    Unread(Body),
    /// Nothing but this.
    Failed(Option<BodyError>),
}

impl http_body::Body for Prefixed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, BodyError>>> {
        if let Some(chunk) = self.chunks.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        match &mut self.rest {
            Rest::Unread(rest) => Pin::new(rest).poll_frame(context).map_err(Into::into),
            Rest::Failed(error) => Poll::Ready(error.take().map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
            && match &self.rest {
                Rest::Unread(rest) => rest.is_end_stream(),
                Rest::Failed(error) => error.is_none(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        let read: u64 = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let mut hint = SizeHint::new();
        match &self.rest {
            Rest::Unread(rest) => {
                let rest = rest.size_hint();
                hint.set_lower(rest.lower().saturating_add(read));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(read));
                }
            }
            // How long it should have been is not known here.
            Rest::Failed(_) => hint.set_lower(read),
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(sizes: &[usize]) -> (usize, Vec<usize>) {
        let mut beginning = Beginning::default();
        for size in sizes {
            beginning.push(vec![b'x'; *size].into());
        }
        let length = beginning.length;
        let chunks = beginning.into_chunks();
        (length, chunks.iter().map(Bytes::len).collect())
    }

    #[test]
    fn small_chunks_become_one_and_empty_ones_none() {
        for (sizes, expected) in [
            (&[][..], &[][..]),
            (&[0, 0, 0], &[]),
            (&[1], &[1]),
            (&[0, 1, 0, 1, 0, 1], &[1, 2]),
            (&[1, 4095, 4095, 4096, 1, 1], &[1, 8190, 4096, 2]),
            (&[4096, 4096], &[4096, 4096]),
        ] {
            let sum = sizes.iter().sum();
            assert_eq!(chunks(sizes), (sum, expected.to_vec()), "{sizes:?}");
        }
        assert_eq!(chunks(&[1; 100_000]), (100_000, vec![1, 99_999]));
    }

    #[test]
    fn a_body_in_one_chunk_is_not_copied() {
        let body = Bytes::from_static(b"whole");
        let mut beginning = Beginning::default();
        beginning.push(Bytes::new());
        beginning.push(body.clone());
        assert_eq!(beginning.into_bytes().as_ptr(), body.as_ptr());
    }

    #[tokio::test]
    async fn the_limit_counts_bytes_and_nothing_is_lost_or_moved() {
        let text: String = (0..3000).map(|number| format!("{number},")).collect();
        let parts: Vec<_> = text.split_inclusive(',').map(str::to_owned).collect();
        for (limit, extent) in [
            (text.len(), Extent::Whole),
            (text.len() - 1, Extent::OverLimit),
            (0, Extent::OverLimit),
        ] {
            let parts = parts.clone().into_iter().map(Ok::<_, io::Error>);
            let body = Body::wrap_stream(futures_util::stream::iter(parts));
            let mut reading = Reading::new(http::Response::new(body).into(), None);
            assert_eq!(reading.read(limit).await.unwrap(), extent);
            let response = match extent {
                Extent::Whole => reading.into_whole().response(),
                Extent::OverLimit => reading.into_stream(),
            };
            assert_eq!(response.text().await.unwrap(), text);
        }
    }
}
