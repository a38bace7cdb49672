//! A body whose beginning has already been read.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use reqwest::Body;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Yields the chunks that were read, and then what comes after them.
pub(super) struct PrefixedBody {
    pub(super) chunks: VecDeque<Bytes>,
    pub(super) rest: BodyRest,
}

/// What follows the chunks that were read.
pub(super) enum BodyRest {
    Unread(Body),
    Failed {
        /// The error at which reading stopped, until it is yielded.
        error: Option<BoxError>,
        /// How many bytes the response has announced besides those that were read.
        missing: Option<u64>,
    },
}

impl http_body::Body for PrefixedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(chunk) = self.chunks.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        match &mut self.rest {
            BodyRest::Unread(rest) => Pin::new(rest).poll_frame(context).map_err(Into::into),
            BodyRest::Failed { error, .. } => Poll::Ready(error.take().map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
            && match &self.rest {
                BodyRest::Unread(rest) => rest.is_end_stream(),
                BodyRest::Failed { error, .. } => error.is_none(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        let read: u64 = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let rest = match &self.rest {
            BodyRest::Unread(rest) => rest.size_hint(),
            // As a body from the network, which keeps the length of its headers when it breaks off.
            BodyRest::Failed { missing, .. } => {
                missing.map_or_else(SizeHint::new, SizeHint::with_exact)
            }
        };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}
