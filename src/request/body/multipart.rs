//! A multipart form that is built again for each attempt, behind the feature `multipart`.

use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Method};
use http_body::Body as _;
use reqwest::multipart::Form;
use reqwest::{Body, Request, Url};
use reqwest_middleware::{ClientWithMiddleware, RequestBuilder};

use super::{BodyError, BodySource, BuiltBody, KeptBody};
use crate::config::ConfigError;
use crate::lock::lock;

/// The user's function of `multipart_with`.
pub(in crate::request) struct FormSource<F> {
    build: F,
    url: Url,
    /// Makes a `RequestBuilder`, because only that knows the length of a form. It sends nothing.
    client: ClientWithMiddleware,
    /// `Content-Type` and `Content-Length` of the latest form that is to be sent.
    headers: Mutex<HeaderMap>,
}

impl<F: Fn() -> Form> FormSource<F> {
    /// Returns `None` if the request is already invalid.
    pub(in crate::request) fn new(builder: &RequestBuilder, build: F) -> Option<Self> {
        let (client, request) = builder.try_clone()?.build_split();
        Some(Self {
            build,
            url: request.ok()?.url().clone(),
            client,
            headers: Mutex::default(),
        })
    }

    /// Builds the form of an attempt.
    pub(in crate::request) fn next(&self) -> Result<BuiltBody, BodyError> {
        let built = self.form()?;
        *lock(&self.headers) = built.headers.clone().unwrap_or_default();
        Ok(built)
    }

    /// Builds a form as reqwest sends it.
    fn form(&self) -> Result<BuiltBody, BodyError> {
        let request = Request::new(Method::POST, self.url.clone());
        let request = RequestBuilder::from_parts(self.client.clone(), request);
        let built = request.multipart((self.build)()).build();
        let mut request = built.map_err(|error| BodyError(format!("invalid form: {error}")))?;
        Ok(BuiltBody {
            headers: Some(std::mem::take(request.headers_mut())),
            body: request.body_mut().take().unwrap_or_default(),
        })
    }
}

impl<F: Fn() -> Form + Send + Sync> BodySource for FormSource<F> {
    fn method(&self) -> &'static str {
        "multipart_with"
    }

    fn build(&self) -> Result<BuiltBody, BodyError> {
        self.next()
    }

    fn check(&self, request: &Request) -> Result<(), ConfigError> {
        let own = lock(&self.headers);
        for name in [CONTENT_TYPE, CONTENT_LENGTH] {
            let values = request.headers().get_all(&name).iter();
            if !values.eq(own.get_all(&name).iter()) {
                return Err(ConfigError::new(
                    "multipart_with",
                    format_args!("another {name} header"),
                    "should be the only source of this header: remove the other one",
                ));
            }
        }
        Ok(())
    }

    fn keep(&self, max: usize) -> KeptBody {
        let Ok(BuiltBody { body, headers }) = self.form() else {
            return KeptBody::NotReplayable;
        };
        let length = headers.as_ref().and_then(length_in);
        match length {
            Some(length) if length > max as u64 => KeptBody::TooLarge(length),
            Some(length) => match collect_ready(body, length) {
                Some(bytes) => KeptBody::Bytes(bytes, headers),
                None => KeptBody::NotReplayable,
            },
            None => KeptBody::NotReplayable,
        }
    }
}

fn length_in(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the bytes of a body of this length, if all its parts are in memory.
fn collect_ready(mut body: Body, length: u64) -> Option<Bytes> {
    let mut bytes = BytesMut::new();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => bytes.extend_from_slice(&frame.into_data().ok()?),
            Poll::Ready(None) => break,
            Poll::Ready(Some(Err(_))) | Poll::Pending => return None,
        }
        if bytes.len() as u64 > length {
            return None;
        }
    }
    (bytes.len() as u64 == length).then(|| bytes.freeze())
}
