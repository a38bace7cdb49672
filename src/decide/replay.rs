//! What it takes to send the same request once more.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Extensions, Method};
use http_body::Body as _;
use reqwest::{Body, Request, Url};

use crate::request::RequestSettings;

/// Builds the body of every attempt after the first.
#[derive(Clone)]
pub(crate) struct BodyFactory(Arc<dyn Fn() -> Body + Send + Sync>);

impl BodyFactory {
    pub(crate) fn new(build: impl Fn() -> Body + Send + Sync + 'static) -> Self {
        Self(Arc::new(build))
    }

    pub(crate) fn build(&self) -> Body {
        (self.0)()
    }
}

impl fmt::Debug for BodyFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyFactory(..)")
    }
}

/// What the next attempt starts from, put aside before this one is sent.
pub(crate) struct Spare {
    request: Request,
    before: Before,
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

    fn extensions(self) -> Extensions {
        match self {
            Self::Copy(extensions) => extensions,
            Self::Settings(settings) => {
                let mut extensions = Extensions::new();
                extensions.insert(settings);
                extensions
            }
        }
    }
}

impl Spare {
    /// Puts a copy into `place`, unless the body is a stream that nobody can build again. Says whether
    /// it did.
    //
    // Filled where it is kept, instead of moved there: every call that could be retried pays for it.
    pub(crate) fn keep(
        place: &mut Option<Self>,
        request: &mut Request,
        rebuilt: bool,
        extensions: &Extensions,
    ) -> bool {
        // `Request::try_clone` would also make a table of settings, only to throw it away again.
        let spare = place.insert(Self {
            request: Request::new(request.method().clone(), request.url().clone()),
            before: Before::of(extensions),
        });
        let copy = &mut spare.request;
        *copy.headers_mut() = request.headers().clone();
        *copy.version_mut() = request.version();
        if let Some(timeout) = request.timeout() {
            *copy.timeout_mut() = Some(*timeout);
        }
        if request.body().is_some() && !rebuilt {
            let body = request.body_mut().as_mut().and_then(copy_of);
            if body.is_some() {
                *copy.body_mut() = body;
            } else {
                *place = None;
                return false;
            }
        }
        true
    }

    /// Where the request goes.
    pub(crate) fn target(&self) -> (&Method, &Url) {
        (self.request.method(), self.request.url())
    }

    /// The request for the next attempt, and the extensions as they were before this one.
    pub(crate) fn unpack(mut self, body: Option<&BodyFactory>) -> (Request, Extensions) {
        if let Some(factory) = body {
            *self.request.body_mut() = Some(factory.build());
        }
        (self.request, self.before.extensions())
    }
}

/// Another body with the same bytes, which are not copied; `None` for a stream.
fn copy_of(body: &mut Body) -> Option<Body> {
    bytes_of(body).map(Body::from)
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
    use std::time::Duration;

    use http::{HeaderValue, Version};

    use super::*;

    fn spare_of(request: &mut Request, rebuilt: bool) -> Option<Spare> {
        let mut place = None;
        Spare::keep(&mut place, request, rebuilt, &Extensions::new());
        place
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
        let (copy, _) = spare_of(&mut original, false).unwrap().unpack(None);
        assert_eq!(copy.method(), original.method());
        assert_eq!(copy.url(), original.url());
        assert_eq!(copy.headers(), original.headers());
        assert_eq!(copy.version(), original.version());
        assert_eq!(copy.timeout(), original.timeout());
        assert!(copy.body().is_none());
    }

    #[test]
    fn bytes_are_copied_streams_are_built_anew_or_not_at_all() {
        let mut original = request();
        *original.body_mut() = Some("bytes".into());
        let spare = spare_of(&mut original, false).unwrap();
        let (copy, _) = spare.unpack(None);
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b"bytes"[..]));
        assert_eq!(copy.timeout(), original.timeout());
        let left = original.body().and_then(Body::as_bytes);
        assert_eq!(left, Some(&b"bytes"[..]));
        // The bytes themselves are shared.
        let place = |request: &Request| request.body().and_then(Body::as_bytes).map(<[u8]>::as_ptr);
        assert_eq!(place(&copy), place(&original));

        *original.body_mut() = Some("".into());
        let (copy, _) = spare_of(&mut original, false).unwrap().unpack(None);
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b""[..]));

        *original.body_mut() = Some(Body::wrap(String::from("stream")));
        assert!(spare_of(&mut original, false).is_none());

        let factory = BodyFactory::new(|| "built".into());
        let spare = spare_of(&mut original, true).unwrap();
        let (copy, _) = spare.unpack(Some(&factory));
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b"built"[..]));
    }
}
