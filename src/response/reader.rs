//! Reads a body into memory, up to a limit.

use std::io;

use bytes::Bytes;
use http::StatusCode;
use http::response::Parts;
use reqwest::{Body, Response, ResponseBuilderExt};
use reqwest_middleware::{Error, Result};

use super::chunks::Chunks;
use super::prefixed::{BodyRest, PrefixedBody};

/// Reads the body into memory.
///
/// A body over the limit becomes a stream that starts with what was read.
pub(crate) async fn buffer(response: Response, limit: usize) -> Result<Response> {
    let expected = expected_length(&response);
    let mut reader = BodyReader::new(response, expected);
    Ok(match reader.read(limit).await? {
        Extent::Whole => reader.into_buffered().into_response(),
        Extent::Part => reader.into_stream(),
    })
}

/// Returns the length that the body should have, if its headers say so.
///
/// The response to a `HEAD` has a length but no body. Callers must not ask for such a response: only the request shows
/// what it is.
pub(crate) fn expected_length(response: &Response) -> Option<u64> {
    match response.status() {
        // Its length is that of the body that it does not send (RFC 9110 §15.4.5).
        StatusCode::NOT_MODIFIED => None,
        _ => response.content_length(),
    }
}

/// How much of a body was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    /// Reading stopped before the end of the body.
    Part,
}

/// A response whose body is being read into memory.
pub(crate) struct BodyReader {
    pub(super) response: Response,
    /// The length of the whole body, as far as it is known.
    announced: Option<u64>,
    /// A body that ends before this length is an error.
    expected: Option<u64>,
    chunks: Chunks,
}

impl BodyReader {
    pub(crate) fn new(response: Response, expected: Option<u64>) -> Self {
        Self {
            announced: response.content_length(),
            response,
            expected,
            chunks: Chunks::default(),
        }
    }

    /// Reads on, up to the limit. If the future is dropped, the bytes that were read stay here.
    pub(crate) async fn read(&mut self, limit: usize) -> Result<Extent> {
        self.read_until(|length, _| length > limit).await
    }

    /// Reads on until `is_enough`. If the future is dropped, the bytes that were read stay here.
    ///
    /// `is_enough` gets the length so far and each new chunk. Before the first chunk, it gets an empty one.
    pub(crate) async fn read_until(
        &mut self,
        mut is_enough: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<Extent> {
        let mut stops = is_enough(self.chunks.len(), &[]);
        while !stops {
            let chunk = self.response.chunk().await;
            match chunk.map_err(|error| error.with_url(self.response.url().clone()))? {
                Some(chunk) => {
                    stops = is_enough(self.chunks.len() + chunk.len(), &chunk);
                    self.chunks.push(chunk);
                }
                None if self.is_cut_short() => {
                    let kind = io::ErrorKind::UnexpectedEof;
                    let cut_short = "the body of the response is shorter than announced";
                    return Err(Error::middleware(io::Error::new(kind, cut_short)));
                }
                None => return Ok(Extent::Whole),
            }
        }
        Ok(Extent::Part)
    }

    /// Returns the beginning of the body in one piece, as far as it was read, and at most this many bytes.
    pub(crate) fn start(&mut self, limit: usize) -> Bytes {
        self.chunks.start(limit)
    }

    /// Returns how many bytes were read.
    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Returns whether nothing of the body is left to read. `false` if its length is not known.
    pub(crate) fn is_at_end(&self) -> bool {
        // While a body is read, `content_length` is what is left of it.
        self.response.content_length() == Some(0)
    }

    /// Returns whether a body that has ended is too short. An HTTP/2 stream that is reset without an error looks like
    /// one that has ended.
    fn is_cut_short(&self) -> bool {
        self.expected
            .is_some_and(|expected| expected > self.chunks.len() as u64)
    }

    /// Returns the response with a body that was read to its end.
    pub(crate) fn into_buffered(self) -> BufferedResponse {
        let (parts, _) = split(self.response);
        let body = self.chunks.into_bytes();
        BufferedResponse { parts, body }
    }

    /// Returns the response with a body that starts with what was read.
    pub(crate) fn into_stream(self) -> Response {
        if self.chunks.len() == 0 {
            return self.response;
        }
        self.followed_by(BodyRest::Unread)
    }

    /// Returns the response with a body that yields what was read and then this error.
    pub(crate) fn into_broken(self, error: Error) -> Response {
        let error = match error {
            Error::Reqwest(error) => error.into(),
            Error::Middleware(error) => error.into(),
        };
        let read = self.chunks.len() as u64;
        let missing = (self.announced).map(|announced| announced.saturating_sub(read));
        let error = Some(error);
        self.followed_by(|_| BodyRest::Failed { error, missing })
    }

    fn followed_by(self, rest: impl FnOnce(Body) -> BodyRest) -> Response {
        let (parts, unread) = split(self.response);
        let body = PrefixedBody {
            chunks: self.chunks.into_deque(),
            rest: rest(unread),
        };
        http::Response::from_parts(parts, Body::wrap(body)).into()
    }
}

/// A response whose whole body is in memory.
pub(crate) struct BufferedResponse {
    parts: Parts,
    body: Bytes,
}

impl BufferedResponse {
    pub(crate) fn into_response(self) -> Response {
        http::Response::from_parts(self.parts, self.body).into()
    }

    /// Returns a copy that shares the bytes of the body.
    pub(crate) fn to_response(&self) -> Response {
        http::Response::from_parts(self.parts.clone(), self.body.clone()).into()
    }
}

/// Splits a response so that it can be put together again with another body.
fn split(response: Response) -> (Parts, Body) {
    // reqwest keeps the URL beside the response, and accepts it only from the builder's extensions.
    let mut url = http::Response::builder().url(response.url().clone());
    let (mut parts, rest) = http::Response::<Body>::from(response).into_parts();
    if let Some(url) = url.extensions_mut() {
        parts.extensions.extend(std::mem::take(url));
    }
    (parts, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_limit_counts_bytes_and_nothing_is_lost_or_moved() {
        let text: String = (0..3000).map(|number| format!("{number},")).collect();
        let parts: Vec<_> = text.split_inclusive(',').map(str::to_owned).collect();
        for (limit, extent) in [
            (text.len(), Extent::Whole),
            (text.len() - 1, Extent::Part),
            (0, Extent::Part),
        ] {
            let parts = parts.clone().into_iter().map(Ok::<_, io::Error>);
            let body = Body::wrap_stream(futures_util::stream::iter(parts));
            let mut reader = BodyReader::new(http::Response::new(body).into(), None);
            assert_eq!(reader.read(limit).await.unwrap(), extent);
            let response = match extent {
                Extent::Whole => reader.into_buffered().to_response(),
                Extent::Part => reader.into_stream(),
            };
            assert_eq!(response.text().await.unwrap(), text);
        }
    }
}
