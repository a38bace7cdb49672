//! A snapshot of a request, to send it again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Version};
use reqwest::{Body, Request, Response, Url};

use super::body::{BodyError, BodyFactory, bytes_of, describe};
use super::header_copy::HeaderCopy;
use super::options::RequestOptions;
use super::without_fragment;

/// The parts of a request, saved before the first attempt is sent.
///
/// Retries and dead letters are made from it. It is not a `Request`, because most snapshots are never used and a
/// clone of the headers is expensive: see [`HeaderCopy`].
pub(crate) struct RequestSnapshot {
    target: RequestTarget,
    headers: HeaderCopy,
    version: Version,
    timeout: Option<Duration>,
    pub(crate) body: SnapshotBody,
    extensions: SavedExtensions,
}

/// Method and URL of a request.
#[derive(Clone)]
pub(crate) struct RequestTarget {
    pub(crate) method: Method,
    pub(crate) url: Url,
}

impl RequestTarget {
    /// Returns whether the response comes from this URL, and not from a redirect.
    pub(crate) fn is_url_of(&self, response: &Response) -> bool {
        without_fragment(&self.url) == without_fragment(response.url())
    }
}

/// What a snapshot keeps of a body.
pub(crate) enum SnapshotBody {
    Empty,
    Bytes(Bytes),
    /// A [`BodyFactory`] builds it again.
    Rebuilt,
    /// It can be sent only once.
    Stream,
}

/// The extensions before the first attempt.
enum SavedExtensions {
    All(Extensions),
    /// Nothing but the options of the request, the usual case of a request with a key.
    OnlyOptions(Arc<RequestOptions>),
}

impl RequestSnapshot {
    /// Saves a request. `has_factory`: a [`BodyFactory`] builds its body.
    #[inline]
    pub(crate) fn of(request: &mut Request, has_factory: bool, extensions: &Extensions) -> Self {
        let body = match request.body_mut() {
            None => SnapshotBody::Empty,
            Some(_) if has_factory => SnapshotBody::Rebuilt,
            Some(body) => bytes_of(body).map_or(SnapshotBody::Stream, SnapshotBody::Bytes),
        };
        let extensions = match RequestOptions::of(extensions) {
            Some(options) if extensions.len() == 1 => {
                SavedExtensions::OnlyOptions(Arc::clone(options))
            }
            _ => SavedExtensions::All(extensions.clone()),
        };
        Self {
            target: RequestTarget {
                method: request.method().clone(),
                url: request.url().clone(),
            },
            headers: HeaderCopy::of(request.headers()),
            version: request.version(),
            timeout: request.timeout().copied(),
            body,
            extensions,
        }
    }

    pub(crate) fn target(&self) -> &RequestTarget {
        &self.target
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        self.headers.to_header_map()
    }

    /// Whether the request has no body, or its body can be sent again.
    pub(crate) fn is_replayable(&self) -> bool {
        !matches!(self.body, SnapshotBody::Stream)
    }

    /// Builds the request of the next attempt.
    pub(crate) fn request(&self, body: Option<&BodyFactory>) -> Result<Request, BodyError> {
        let RequestTarget { method, url } = &self.target;
        let mut request = Request::new(method.clone(), url.clone());
        *request.headers_mut() = self.headers();
        *request.version_mut() = self.version;
        if self.timeout.is_some() {
            *request.timeout_mut() = self.timeout;
        }
        *request.body_mut() = match (body, &self.body) {
            (Some(factory), _) => {
                let built = factory.build()?;
                describe(request.headers_mut(), built.headers);
                Some(built.body)
            }
            (None, SnapshotBody::Bytes(bytes)) => Some(Body::from(bytes.clone())),
            (None, _) => None,
        };
        Ok(request)
    }

    /// Resets the extensions to what they were before the first attempt.
    pub(crate) fn restore(&self, extensions: &mut Extensions) {
        // Emptied and not replaced, because the next attempt needs the memory again.
        extensions.clear();
        match &self.extensions {
            SavedExtensions::All(all) => extensions.extend(all.clone()),
            SavedExtensions::OnlyOptions(options) => drop(extensions.insert(Arc::clone(options))),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn snapshot_of(request: &mut Request, rebuilt: bool) -> Option<RequestSnapshot> {
        let snapshot = RequestSnapshot::of(request, rebuilt, &Extensions::new());
        Some(snapshot).filter(RequestSnapshot::is_replayable)
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
    fn a_copy_without_body_equals_the_original() {
        let mut original = request();
        let snapshot = snapshot_of(&mut original, false).unwrap();
        for _ in 0..4 {
            let copy = snapshot.request(None).unwrap();
            assert_eq!(copy.method(), original.method());
            assert_eq!(copy.url(), original.url());
            assert_eq!(copy.headers(), original.headers());
            assert_eq!(copy.version(), original.version());
            assert_eq!(copy.timeout(), original.timeout());
            assert!(copy.body().is_none());
        }
    }

    #[test]
    fn bytes_are_shared_and_streams_are_rebuilt_or_refused() {
        let mut original = request();
        *original.body_mut() = Some("bytes".into());
        let snapshot = snapshot_of(&mut original, false).unwrap();
        let copy = snapshot.request(None).unwrap();
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b"bytes"[..]));
        assert_eq!(copy.timeout(), original.timeout());
        let left = original.body().and_then(Body::as_bytes);
        assert_eq!(left, Some(&b"bytes"[..]));
        // The bytes are not copied.
        let address =
            |request: &Request| request.body().and_then(Body::as_bytes).map(<[u8]>::as_ptr);
        assert_eq!(address(&copy), address(&original));

        *original.body_mut() = Some("".into());
        let copy = snapshot_of(&mut original, false)
            .unwrap()
            .request(None)
            .unwrap();
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b""[..]));

        *original.body_mut() = Some(Body::wrap(String::from("stream")));
        assert!(snapshot_of(&mut original, false).is_none());

        let (_, factory) = BodyFactory::new("first".into(), || "built".into());
        let snapshot = snapshot_of(&mut original, true).unwrap();
        let copy = snapshot.request(Some(&factory)).unwrap();
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b"built"[..]));
    }
}
