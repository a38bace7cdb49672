//! Builds a new body for each attempt, and gets the bytes of a body without copying them.
//!
//! A [`BodyFactory`] must notice if a request no longer has the body that it built. `Body` has no identity, so each
//! built body carries a [`BodyMark`].

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use reqwest::Body;

use crate::lock::lock;

/// Builds the body of every attempt after the first.
#[derive(Clone)]
pub(crate) struct BodyFactory {
    build: Arc<dyn Fn() -> Body + Send + Sync>,
    first: BodyMark,
    /// The body of the latest retry. For an inner retry it is the first body.
    latest: Arc<Mutex<Option<BodyMark>>>,
}

impl BodyFactory {
    /// Returns the body of the first attempt, with a mark, and its factory.
    pub(crate) fn new(
        first: Body,
        build: impl Fn() -> Body + Send + Sync + 'static,
    ) -> (Body, Self) {
        let (body, first) = BodyMark::attach(first);
        let factory = Self {
            build: Arc::new(build),
            first,
            latest: Arc::default(),
        };
        (body, factory)
    }

    pub(crate) fn build(&self) -> Body {
        let (body, mark) = BodyMark::attach((self.build)());
        *lock(&self.latest) = Some(mark);
        body
    }

    /// Whether this factory built the body of a request.
    pub(crate) fn has_built(&self, body: Option<&Body>) -> bool {
        let latest = lock(&self.latest);
        self.first.is_of(body) || latest.as_ref().is_some_and(|mark| mark.is_of(body))
    }
}

impl fmt::Debug for BodyFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyFactory(..)")
    }
}

/// Identifies one body.
#[derive(Clone)]
struct BodyMark {
    /// Has a strong count above 0 while the body or a clone of it exists.
    alive: Weak<()>,
    /// Address and length of its bytes, which no other bytes share while the body exists. `None` for a stream.
    address: Option<(usize, usize)>,
}

/// A body that keeps its mark alive.
struct Marked<T> {
    inner: T,
    _alive: Arc<()>,
}

impl BodyMark {
    /// Returns the body with a mark. Bytes stay bytes, so that they can be read and sent again.
    fn attach(mut body: Body) -> (Body, Self) {
        let _alive = Arc::new(());
        let alive = Arc::downgrade(&_alive);
        let body = match bytes_of(&mut body) {
            Some(inner) => Body::from(Bytes::from_owner(Marked { inner, _alive })),
            None => Body::wrap(Marked {
                inner: body,
                _alive,
            }),
        };
        let address = address(&body);
        (body, Self { alive, address })
    }

    fn is_of(&self, body: Option<&Body>) -> bool {
        let is_here = |body| address(body) == self.address;
        body.is_some_and(is_here) && self.alive.strong_count() > 0
    }
}

fn address(body: &Body) -> Option<(usize, usize)> {
    let bytes = body.as_bytes()?;
    Some((bytes.as_ptr().addr(), bytes.len()))
}

impl AsRef<[u8]> for Marked<Bytes> {
    fn as_ref(&self) -> &[u8] {
        &self.inner
    }
}

impl http_body::Body for Marked<Body> {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Returns the bytes of a body without copying them, or `None` for a stream.
pub(crate) fn bytes_of(body: &mut Body) -> Option<Bytes> {
    body.as_bytes()?;
    // A body of bytes is a single frame, which is ready immediately.
    let frame = Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop()));
    let bytes = match frame {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok()?,
        _ => Bytes::new(),
    };
    *body = Body::from(bytes.clone());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factory_knows_the_first_body_from_all_others() {
        let bytes: fn() -> Body = || String::from("built").into();
        let stream: fn() -> Body = || Body::wrap(String::from("built"));
        for build in [bytes, stream] {
            let (first, factory) = BodyFactory::new(build(), build);
            let length = build().size_hint().exact();
            assert_eq!(first.size_hint().exact(), length);
            assert!(factory.has_built(Some(&first)));
            let (other, others) = BodyFactory::new(build(), build);
            assert!(others.has_built(Some(&other)) && !factory.has_built(None));
            drop(first);
            assert!(!factory.has_built(Some(&other)) && !factory.has_built(Some(&build())));
        }
    }
}
