//! What it takes to send the same request once more.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderName, HeaderValue, Method, Version};
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
///
/// No whole request: most are never needed, and a list of headers takes half the work of a map.
pub(crate) struct Spare {
    method: Method,
    url: Url,
    headers: Vec<(HeaderName, HeaderValue)>,
    version: Version,
    timeout: Option<Duration>,
    body: Option<Bytes>,
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
    /// Puts a copy into `place`, unless the body is a stream that nobody can build again.
    pub(crate) fn keep(
        place: &mut Option<Self>,
        request: &mut Request,
        rebuilt: bool,
        extensions: &Extensions,
    ) {
        let mut body = None;
        if request.body().is_some() && !rebuilt {
            body = request.body_mut().as_mut().and_then(bytes_of);
            if body.is_none() {
                *place = None;
                return;
            }
        }
        let mut headers = Vec::with_capacity(request.headers().len());
        for (name, value) in request.headers() {
            headers.push((name.clone(), value.clone()));
        }
        *place = Some(Self {
            method: request.method().clone(),
            url: request.url().clone(),
            headers,
            version: request.version(),
            timeout: request.timeout().copied(),
            body,
            before: Before::of(extensions),
        });
    }

    /// Where the request goes.
    pub(crate) fn target(&self) -> (&Method, &Url) {
        (&self.method, &self.url)
    }

    /// The request for the next attempt, and the extensions as they were before this one.
    pub(crate) fn unpack(self, body: Option<&BodyFactory>) -> (Request, Extensions) {
        let mut request = Request::new(self.method, self.url);
        let headers = request.headers_mut();
        headers.reserve(self.headers.len());
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        *request.version_mut() = self.version;
        if self.timeout.is_some() {
            *request.timeout_mut() = self.timeout;
        }
        *request.body_mut() = match body {
            Some(factory) => Some(factory.build()),
            None => self.body.map(Body::from),
        };
        (request, self.before.extensions())
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
