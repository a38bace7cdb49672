//! What it takes to send the same request once more.

use std::fmt;
use std::sync::Arc;

use http::Extensions;
use reqwest::{Body, Request};

/// Builds the body of every attempt after the first.
#[derive(Clone)]
pub(crate) struct BodyFactory(Arc<dyn Fn() -> Body + Send + Sync>);

impl BodyFactory {
    pub(crate) fn new(build: impl Fn() -> Body + Send + Sync + 'static) -> Self {
        Self(Arc::new(build))
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
    extensions: Extensions,
}

impl Spare {
    /// `None` if the body is a stream that nobody can build again.
    #[inline(always)] // built where it is kept, instead of moved there
    pub(crate) fn of(request: &Request, rebuilt: bool, extensions: &Extensions) -> Option<Self> {
        let copy = match request.body() {
            Some(_) if !rebuilt => request.try_clone()?,
            // `try_clone` also makes a table of settings that it throws away again; requests
            // without a body are the many.
            _ => without_body(request),
        };
        Some(Self {
            request: copy,
            extensions: extensions.clone(),
        })
    }

    /// The request for the next attempt, and the extensions as they were before this one.
    pub(crate) fn unpack(mut self, body: Option<&BodyFactory>) -> (Request, Extensions) {
        if let Some(BodyFactory(build)) = body {
            *self.request.body_mut() = Some(build());
        }
        (self.request, self.extensions)
    }
}

#[inline(always)]
fn without_body(request: &Request) -> Request {
    let mut copy = Request::new(request.method().clone(), request.url().clone());
    *copy.headers_mut() = request.headers().clone();
    *copy.version_mut() = request.version();
    if let Some(timeout) = request.timeout() {
        *copy.timeout_mut() = Some(*timeout);
    }
    copy
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderValue, Method, Version};
    use reqwest::Url;

    use super::*;

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
        let original = request();
        let (copy, _) = Spare::of(&original, false, &Extensions::new())
            .unwrap()
            .unpack(None);
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
        let spare = Spare::of(&original, false, &Extensions::new()).unwrap();
        let (copy, _) = spare.unpack(None);
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b"bytes"[..]));
        assert_eq!(copy.timeout(), original.timeout());

        *original.body_mut() = Some(Body::wrap(String::from("stream")));
        assert!(Spare::of(&original, false, &Extensions::new()).is_none());

        let factory = BodyFactory::new(|| "built".into());
        let spare = Spare::of(&original, true, &Extensions::new()).unwrap();
        let (copy, _) = spare.unpack(Some(&factory));
        assert_eq!(copy.body().and_then(Body::as_bytes), Some(&b"built"[..]));
    }
}
