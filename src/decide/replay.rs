//! What it takes to send the same request once more.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Version};
use http_body::{Body as _, Frame, SizeHint};
use reqwest::{Body, Request, Url};

use super::header_copy::HeaderCopy;
use crate::request::RequestSettings;

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

/// What every attempt after the first starts from, and the letter about a call that is given up: put aside
/// before the first is sent.
///
/// No whole request: most are never needed.
pub(crate) struct Spare {
    method: Method,
    url: Url,
    headers: HeaderCopy,
    /// The same, put together when that is needed for the second time.
    whole_headers: Option<Box<HeaderMap>>,
    /// For how many requests they were needed.
    requests: u32,
    version: Version,
    timeout: Option<Duration>,
    body: SpareBody,
    before: Before,
}

/// What is left of a body that is sent.
pub(crate) enum SpareBody {
    Empty,
    Bytes(Bytes),
    /// There is a [`BodyFactory`] for it.
    Rebuilt,
    /// Nobody can build it again.
    Stream,
}

impl SpareBody {
    fn of(body: Option<&mut Body>, rebuilt: bool) -> Self {
        match body {
            None => Self::Empty,
            Some(_) if rebuilt => Self::Rebuilt,
            Some(body) => bytes_of(body).map_or(Self::Stream, Self::Bytes),
        }
    }
}

/// The extensions as they were.
enum Before {
    Copy(Extensions),
    /// Nothing but what the request asked for, which most that have any have. Extensions are a table
    /// of boxes, and this is a pointer.
    Settings(Arc<RequestSettings>),
}

impl Before {
    fn of(extensions: &Extensions) -> Self {
        if extensions.is_empty() {
            return Self::Copy(Extensions::new());
        }
        match extensions.get::<Arc<RequestSettings>>() {
            Some(settings) if extensions.len() == 1 => Self::Settings(Arc::clone(settings)),
            _ => Self::Copy(extensions.clone()),
        }
    }
}

impl Spare {
    /// `rebuilt`: there is a factory for the body.
    #[inline]
    pub(crate) fn of(request: &mut Request, rebuilt: bool, extensions: &Extensions) -> Self {
        let body = SpareBody::of(request.body_mut().as_mut(), rebuilt);
        Self {
            method: request.method().clone(),
            url: request.url().clone(),
            headers: HeaderCopy::of(request.headers()),
            whole_headers: None,
            requests: 0,
            version: request.version(),
            timeout: request.timeout().copied(),
            body,
            before: Before::of(extensions),
        }
    }

    /// Where the request goes.
    pub(crate) fn target(&self) -> (&Method, &Url) {
        (&self.method, &self.url)
    }

    /// Whether there is a body to send once more, where there was one.
    pub(crate) fn is_replayable(&self) -> bool {
        !matches!(self.body, SpareBody::Stream)
    }

    /// The request for the next attempt.
    pub(crate) fn request(&mut self, body: Option<&BodyFactory>) -> Request {
        let mut request = Request::new(self.method.clone(), self.url.clone());
        *request.headers_mut() = self.next_headers();
        *request.version_mut() = self.version;
        if self.timeout.is_some() {
            *request.timeout_mut() = self.timeout;
        }
        *request.body_mut() = match (body, &self.body) {
            (Some(factory), _) => Some(factory.build()),
            (None, SpareBody::Bytes(bytes)) => Some(Body::from(bytes.clone())),
            (None, _) => None,
        };
        request
    }

    /// To clone them is quicker than to put them together, but it takes a set of them to clone from.
    fn next_headers(&mut self) -> HeaderMap {
        if let Some(headers) = &self.whole_headers {
            return HeaderMap::clone(headers);
        }
        let headers = self.headers.put_together();
        if self.requests > 0 {
            self.whole_headers = Some(Box::new(headers.clone()));
        }
        self.requests += 1;
        headers
    }

    /// Makes the extensions what they were.
    pub(crate) fn restore(&self, extensions: &mut Extensions) {
        // This keeps their memory.
        extensions.clear();
        match &self.before {
            Before::Copy(before) if before.is_empty() => {}
            Before::Copy(before) => *extensions = before.clone(),
            Before::Settings(settings) => {
                extensions.insert(Arc::clone(settings));
            }
        }
    }

    /// What a letter takes from it.
    pub(crate) fn into_parts(mut self) -> (Method, Url, HeaderMap, SpareBody) {
        let headers = self.headers.put_together();
        (self.method, self.url, headers, self.body)
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
    use http::HeaderValue;

    use super::*;

    fn spare_of(request: &mut Request, rebuilt: bool) -> Option<Spare> {
        let spare = Spare::of(request, rebuilt, &Extensions::new());
        Some(spare).filter(Spare::is_replayable)
    }

    fn request() -> Request {
        let mut request = Request::new(Method::PUT, Url::parse("http://a/b?c=d").unwrap());
        request
            .headers_mut()
            .append("x", HeaderValue::from_static("1"));
        request
            .headers_mut()
            .append("x", HeaderValue::from_static("2"));
        *request.version_mut() = Version::HTTP_2;
        *request.timeout_mut() = Some(Duration::from_secs(7));
        request
    }

    #[test]
    fn a_copy_without_body_differs_in_nothing() {
        let mut original = request();
        let mut spare = spare_of(&mut original, false).unwrap();
        for _ in 0..4 {
            let copy = spare.request(None);
            assert_eq!(copy.method(), original.method());
            assert_eq!(copy.url(), original.url());
            assert_eq!(copy.headers(), original.headers());
            assert_eq!(copy.version(), original.version());
            assert_eq!(copy.timeout(), original.timeout());
            assert!(copy.body().is_none());
        }
    }

    #[test]
    fn bytes_are_copied_streams_are_built_anew_or_not_at_all() {
        let mut original = request();
        *original.body_mut() = Some("bytes".into());
        let mut spare = spare_of(&mut original, false).unwrap();
        let copy = spare.request(None);
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b"bytes"[..]));
        assert_eq!(copy.timeout(), original.timeout());
        let left = original.body().and_then(Body::as_bytes);
        assert_eq!(left, Some(&b"bytes"[..]));
        // The bytes themselves are shared.
        let place = |request: &Request| request.body().and_then(Body::as_bytes).map(<[u8]>::as_ptr);
        assert_eq!(place(&copy), place(&original));

        *original.body_mut() = Some("".into());
        let copy = spare_of(&mut original, false).unwrap().request(None);
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b""[..]));

        *original.body_mut() = Some(Body::wrap(String::from("stream")));
        assert!(spare_of(&mut original, false).is_none());

        let (_, factory) = BodyFactory::new("first".into(), || "built".into());
        let mut spare = spare_of(&mut original, true).unwrap();
        let copy = spare.request(Some(&factory));
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b"built"[..]));
    }

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
