//! Builds a new body for each attempt, and returns the bytes of a body without copying them.
//!
//! A [`BodyFactory`] builds the bodies of one request from a [`BodySource`]: a function, a form or a file. It must
//! notice if a request no longer has the body that it built. reqwest's `Body` has no identity, so each built body
//! carries a [`BodyMark`].

mod boundary;
#[cfg(feature = "file")]
pub(super) mod file;
#[cfg(feature = "multipart")]
pub(super) mod multipart;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body::{Body as _, Frame, SizeHint};
use reqwest::{Body, Request};

use crate::config::ConfigError;
use crate::lock::lock;

/// Builds the bodies of one request.
pub(crate) trait BodySource: Send + Sync {
    /// Returns the method of [`RequestBuilderExt`](super::RequestBuilderExt) that made this source, for errors.
    fn method(&self) -> &'static str;

    /// Builds the body of a retry.
    fn build(&self) -> Result<BuiltBody, BodyError>;

    /// Refuses a request whose headers do not match the bodies of retries.
    fn check(&self, _request: &Request) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Refuses a first body that cannot be sent, for example because its file has changed.
    fn check_first(&self) -> Result<(), BodyError> {
        Ok(())
    }

    /// Returns the bytes of the body for a dead letter, if they are available without waiting and at most `max`.
    fn keep(&self, max: usize) -> KeptBody;
}

/// A body, and the headers that describe it.
pub(crate) struct BuiltBody {
    pub(crate) body: Body,
    /// `Content-Type` and perhaps `Content-Length`. `None` leaves both as they are.
    pub(crate) headers: Option<HeaderMap>,
}

/// What a dead letter can keep of a body.
pub(crate) enum KeptBody {
    /// All bytes, and the headers that describe them, as in [`BuiltBody`].
    Bytes(Bytes, Option<HeaderMap>),
    /// Its length in bytes.
    TooLarge(u64),
    NotReplayable,
}

impl KeptBody {
    pub(crate) fn within(max: usize, bytes: Bytes) -> Self {
        match bytes.len() > max {
            true => Self::TooLarge(bytes.len() as u64),
            false => Self::Bytes(bytes, None),
        }
    }
}

/// Says why a body cannot be built.
#[derive(Debug)]
pub(crate) struct BodyError(String);

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BodyError {}

/// Replaces `Content-Type` and `Content-Length`, if the new body has its own.
pub(crate) fn describe(headers: &mut HeaderMap, own: Option<HeaderMap>) {
    if let Some(own) = own {
        headers.remove(CONTENT_TYPE);
        headers.remove(CONTENT_LENGTH);
        headers.extend(own);
    }
}

/// The user's function of `body_with`.
struct Function<F>(F);

impl<F: Fn() -> Body + Send + Sync> BodySource for Function<F> {
    fn method(&self) -> &'static str {
        "body_with"
    }

    fn build(&self) -> Result<BuiltBody, BodyError> {
        Ok(BuiltBody {
            body: (self.0)(),
            headers: None,
        })
    }

    fn check(&self, request: &Request) -> Result<(), ConfigError> {
        boundary::check(request.headers(), &self.0)
    }

    fn keep(&self, max: usize) -> KeptBody {
        match bytes_of(&mut (self.0)()) {
            Some(bytes) => KeptBody::within(max, bytes),
            None => KeptBody::NotReplayable,
        }
    }
}

/// Builds the body of every attempt after the first.
#[derive(Clone)]
pub(crate) struct BodyFactory {
    source: Arc<dyn BodySource>,
    first: BodyMark,
    /// The body of the latest retry. A retry inside this one gets it as its first body.
    latest: Arc<Mutex<Option<BodyMark>>>,
}

impl BodyFactory {
    /// Returns the body of the first attempt, with a mark, and the factory of a function.
    pub(crate) fn new(
        first: Body,
        build: impl Fn() -> Body + Send + Sync + 'static,
    ) -> (Body, Self) {
        Self::of_source(first, Function(build))
    }

    /// Returns the body of the first attempt, with a mark, and its factory.
    pub(super) fn of_source(first: Body, source: impl BodySource + 'static) -> (Body, Self) {
        let (body, first) = BodyMark::attach(first);
        let factory = Self {
            source: Arc::new(source),
            first,
            latest: Arc::default(),
        };
        (body, factory)
    }

    /// Builds the body of a retry, with a mark.
    pub(crate) fn build(&self) -> Result<BuiltBody, BodyError> {
        let BuiltBody { body, headers } = self.source.build()?;
        let (body, mark) = BodyMark::attach(body);
        *lock(&self.latest) = Some(mark);
        Ok(BuiltBody { body, headers })
    }

    /// Refuses a request that no longer has the body that was built for it, or whose headers do not match.
    pub(super) fn check(&self, request: &Request) -> Result<(), ConfigError> {
        let Some(body) = request.body().filter(|body| self.has_built(body)) else {
            return Err(ConfigError::new(
                self.source.method(),
                "replaced by another body",
                "should be the only body: remove the later `body`, or move the middleware that replaces \
                 bodies inside the retry",
            ));
        };
        self.check_length(request.headers(), body)?;
        self.source.check(request)
    }

    /// Refuses the `Content-Length` of another body. With it, the server would get only a part, or wait for more.
    fn check_length(&self, headers: &HeaderMap, body: &Body) -> Result<(), ConfigError> {
        let (announced, length) = (headers.get(CONTENT_LENGTH), body.size_hint().exact());
        let (Some(announced), Some(length)) = (announced, length) else {
            return Ok(());
        };
        match announced.as_bytes() == length.to_string().as_bytes() {
            true => Ok(()),
            false => Err(ConfigError::new(
                self.source.method(),
                format_args!("{length} bytes, Content-Length {announced:?}"),
                "should be sent with its own length: remove the header, which an earlier `multipart` may \
                 have set",
            )),
        }
    }

    /// Refuses a first body that cannot be sent.
    pub(crate) fn check_first(&self) -> Result<(), BodyError> {
        self.source.check_first()
    }

    /// Returns the bytes of the body for a dead letter.
    pub(crate) fn keep(&self, max: usize) -> KeptBody {
        self.source.keep(max)
    }

    /// Returns whether this factory built the body of a request.
    fn has_built(&self, body: &Body) -> bool {
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
    /// Can be upgraded while the body or a clone of it exists.
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

    fn is_of(&self, body: &Body) -> bool {
        address(body) == self.address && self.alive.strong_count() > 0
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
            assert!(factory.has_built(&first));
            let (other, others) = BodyFactory::new(build(), build);
            assert!(others.has_built(&other));
            drop(first);
            assert!(!factory.has_built(&other) && !factory.has_built(&build()));
        }
    }
}
