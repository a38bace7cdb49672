//! A server with one file, whose bodies break off and whose headers may lie.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use reqwest_steady::testing::{Reply, ScriptedServer};

/// A body that announces a length, and then fails, ends or stalls.
pub(crate) struct CutBody {
    pub(crate) chunks: Vec<Bytes>,
    /// The length that is left.
    pub(crate) announced: Option<u64>,
    pub(crate) then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Then {
    End,
    Fail,
    Stall,
}

impl Body for CutBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.chunks.is_empty() {
            let chunk = self.chunks.remove(0);
            let left = |length: u64| length.saturating_sub(chunk.len() as u64);
            self.announced = self.announced.map(left);
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        match std::mem::replace(&mut self.then, Then::End) {
            Then::End => Poll::Ready(None),
            Then::Fail => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            Then::Stall => {
                self.then = Then::Stall;
                Poll::Pending
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.announced
            .map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// One file, and how a response to a request for it is made.
#[derive(Clone)]
pub(crate) struct Hosted {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) etag: Option<&'static str>,
}

impl Hosted {
    pub(crate) fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self {
            bytes: bytes.into(),
            etag: Some("\"one\""),
        }
    }

    /// Responds like a server that keeps to the rules. The body has only `sent` bytes of what was asked for.
    pub(crate) fn reply(&self, request: &reqwest::Request, sent: usize, then: Then) -> Reply {
        let tag = request
            .headers()
            .get("if-range")
            .map(|tag| tag.to_str().unwrap());
        match asked_from(request) {
            Some(first) if tag.is_some() && tag == self.etag => self.rest(first, sent, then),
            _ => self.whole(sent, then),
        }
    }

    pub(crate) fn whole(&self, sent: usize, then: Then) -> Reply {
        let bytes = Bytes::copy_from_slice(&self.bytes[..sent.min(self.bytes.len())]);
        self.tagged(Reply::status(200))
            .body(cut(bytes, self.bytes.len(), then))
    }

    pub(crate) fn rest(&self, first: usize, sent: usize, then: Then) -> Reply {
        let rest = &self.bytes[first..];
        let bytes = Bytes::copy_from_slice(&rest[..sent.min(rest.len())]);
        let whole = self.bytes.len();
        self.tagged(Reply::status(206))
            .header(
                "content-range",
                &format!("bytes {first}-{}/{whole}", whole - 1),
            )
            .body(cut(bytes, rest.len(), then))
    }

    fn tagged(&self, reply: Reply) -> Reply {
        match self.etag {
            Some(etag) => reply.header("etag", etag),
            None => reply,
        }
    }
}

/// The offset of a request for the rest.
pub(crate) fn asked_from(request: &reqwest::Request) -> Option<usize> {
    let range = request.headers().get("range")?.to_str().unwrap();
    let first = range
        .strip_prefix("bytes=")
        .and_then(|it| it.strip_suffix('-'));
    Some(first.unwrap().parse().unwrap())
}

/// A body that announces `length` bytes.
pub(crate) fn cut(bytes: Bytes, length: usize, then: Then) -> reqwest::Body {
    cut_of(bytes, Some(length as u64), then)
}

/// A body that announces any length, or none.
pub(crate) fn cut_of(bytes: impl Into<Bytes>, announced: Option<u64>, then: Then) -> reqwest::Body {
    let bytes = bytes.into();
    let middle = bytes.len() / 2;
    let chunks = [bytes.slice(..middle), bytes.slice(middle..)];
    reqwest::Body::wrap(CutBody {
        chunks: chunks
            .into_iter()
            .filter(|chunk| !chunk.is_empty())
            .collect(),
        announced,
        then,
    })
}

/// A server whose script gets the number of earlier requests, and the request.
pub(crate) fn serve(
    script: impl Fn(usize, &reqwest::Request) -> Reply + Send + Sync + 'static,
) -> Arc<ScriptedServer> {
    let count = AtomicUsize::new(0);
    ScriptedServer::by_request(move |request| script(count.fetch_add(1, Ordering::SeqCst), request))
}
