//! What it takes to send a request once more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Version};
use reqwest::{Body, Request, Url};

use super::body::{BodyFactory, bytes_of};
use super::header_copy::HeaderCopy;
use super::options::RequestOptions;

/// What every attempt after the first starts from, and the letter about a call that is given up: put aside
/// before the first is sent.
///
/// No whole request: most are never needed.
pub(crate) struct RequestSnapshot {
    method: Method,
    url: Url,
    headers: HeaderCopy,
    /// The same, put together when that is needed for the second time.
    whole_headers: Option<Box<HeaderMap>>,
    /// For how many requests they were needed.
    requests: u32,
    version: Version,
    timeout: Option<Duration>,
    body: SnapshotBody,
    before: Before,
}

/// What is left of a body that is sent.
pub(crate) enum SnapshotBody {
    Empty,
    Bytes(Bytes),
    /// There is a [`BodyFactory`] for it.
    Rebuilt,
    /// Nobody can build it again.
    Stream,
}

impl SnapshotBody {
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
    Settings(Arc<RequestOptions>),
}

impl Before {
    fn of(extensions: &Extensions) -> Self {
        if extensions.is_empty() {
            return Self::Copy(Extensions::new());
        }
        match extensions.get::<Arc<RequestOptions>>() {
            Some(settings) if extensions.len() == 1 => Self::Settings(Arc::clone(settings)),
            _ => Self::Copy(extensions.clone()),
        }
    }
}

impl RequestSnapshot {
    /// `rebuilt`: there is a factory for the body.
    #[inline]
    pub(crate) fn of(request: &mut Request, rebuilt: bool, extensions: &Extensions) -> Self {
        let body = SnapshotBody::of(request.body_mut().as_mut(), rebuilt);
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
        !matches!(self.body, SnapshotBody::Stream)
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
            (None, SnapshotBody::Bytes(bytes)) => Some(Body::from(bytes.clone())),
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
    pub(crate) fn into_parts(mut self) -> (Method, Url, HeaderMap, SnapshotBody) {
        let headers = self.headers.put_together();
        (self.method, self.url, headers, self.body)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn spare_of(request: &mut Request, rebuilt: bool) -> Option<RequestSnapshot> {
        let spare = RequestSnapshot::of(request, rebuilt, &Extensions::new());
        Some(spare).filter(RequestSnapshot::is_replayable)
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
}
