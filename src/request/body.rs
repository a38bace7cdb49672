//! Bodies that are built anew for each attempt.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use reqwest::Body;

/// Builds the body of every attempt after the first.
#[derive(Clone)]
pub(crate) struct BodyFactory {
    build: Arc<dyn Fn() -> Body + Send + Sync>,
    first: BodyMark,
    /// The body of the latest retry. Another retry further inside sees it as its first.
    latest: Arc<Mutex<Option<BodyMark>>>,
}

impl BodyFactory {
    /// Also returns the body of the first attempt, marked so that the factory knows it again.
    pub(crate) fn new(
        first: Body,
        build: impl Fn() -> Body + Send + Sync + 'static,
    ) -> (Body, Self) {
        let (body, first) = BodyMark::put_on(first);
        let factory = Self {
            build: Arc::new(build),
            first,
            latest: Arc::default(),
        };
        (body, factory)
    }

    pub(crate) fn build(&self) -> Body {
        let (body, mark) = BodyMark::put_on((self.build)());
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark);
        body
    }

    /// Whether a request still has a body that this factory built.
    pub(crate) fn has_built(&self, body: Option<&Body>) -> bool {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        self.first.is_on(body) || latest.as_ref().is_some_and(|mark| mark.is_on(body))
    }
}

impl fmt::Debug for BodyFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyFactory(..)")
    }
}

/// Tells one body from all others.
#[derive(Clone)]
struct BodyMark {
    /// Upgrades while the body or a clone of it exists.
    alive: Weak<()>,
    /// Address and length of its bytes; no other bytes are there while it exists. `None` for a stream.
    place: Option<(usize, usize)>,
}

/// A body that keeps its mark alive.
struct Marked<T> {
    inner: T,
    _alive: Arc<()>,
}

impl BodyMark {
    /// Bytes stay bytes, so that they can still be looked at and sent again.
    fn put_on(mut body: Body) -> (Body, Self) {
        let _alive = Arc::new(());
        let alive = Arc::downgrade(&_alive);
        let body = match bytes_of(&mut body) {
            Some(inner) => Body::from(Bytes::from_owner(Marked { inner, _alive })),
            None => Body::wrap(Marked {
                inner: body,
                _alive,
            }),
        };
        let place = place(&body);
        (body, Self { alive, place })
    }

    fn is_on(&self, body: Option<&Body>) -> bool {
        let has_place = |body| place(body) == self.place;
        body.is_some_and(has_place) && self.alive.strong_count() > 0
    }
}

fn place(body: &Body) -> Option<(usize, usize)> {
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

/// The bytes of a body, which are not copied; `None` for a stream.
pub(crate) fn bytes_of(body: &mut Body) -> Option<Bytes> {
    body.as_bytes()?;
    // Bytes in memory are one frame, and it is there.
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
