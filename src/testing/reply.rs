//! What a server without a network does with a request.

use std::io;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::{Body, Request, Response, ResponseBuilderExt};
use reqwest_middleware::{Error, Result};
use tokio::time::Instant;

use super::timeout::body_until;

/// What a server does with a request: an answer, a failure, or nothing at all.
///
/// ```
/// use std::io::ErrorKind;
/// use std::time::Duration;
/// use reqwest_steady::testing::Reply;
///
/// let busy = Reply::status(429).header("retry-after", "2").body("slow down");
/// let slow = Reply::status(200).after(Duration::from_secs(3));
/// let reset = Reply::fail(ErrorKind::ConnectionReset);
/// let hung = Reply::silence();
/// # let _ = (busy, slow, reset, hung);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Reply {
    pub(super) what: What,
    pub(super) after: Duration,
}

#[derive(Debug)]
pub(super) enum What {
    Answer(Box<http::Response<Body>>),
    Fail(io::ErrorKind),
    Silence,
}

#[track_caller]
pub(super) fn assert_status(status: u16) -> StatusCode {
    let Ok(status) = StatusCode::from_u16(status) else {
        panic!("a status of {status}: it must be from 100 to 999");
    };
    status
}

impl Reply {
    fn new(what: What) -> Self {
        let after = Duration::ZERO;
        Self { what, after }
    }

    /// An answer with this status, no headers and an empty body.
    ///
    /// # Panics
    ///
    /// If there is no such status.
    pub fn status(status: u16) -> Self {
        let mut response = http::Response::new(Body::from(""));
        *response.status_mut() = assert_status(status);
        Self::response(response)
    }

    /// Any answer, such as one whose body is a stream.
    pub fn response(response: http::Response<Body>) -> Self {
        Self::new(What::Answer(Box::new(response)))
    }

    /// The connection fails in this way: refused, reset, closed too early.
    ///
    /// The error is an [`io::Error`] inside a middleware error, so `is_connect()` is false. Only the `timeout` of a
    /// request gives a real `reqwest::Error`.
    pub fn fail(kind: io::ErrorKind) -> Self {
        Self::new(What::Fail(kind))
    }

    /// Never responds. The call ends by `attempt_timeout`, `deadline` or the request's `timeout`. Without these it
    /// never ends.
    pub fn silence() -> Self {
        Self::new(What::Silence)
    }

    /// Adds a header to the answer. What is no answer has none.
    ///
    /// # Panics
    ///
    /// If it is no valid header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name)
            .unwrap_or_else(|error| panic!("header name {name:?}: {error}"));
        let value = HeaderValue::try_from(value)
            .unwrap_or_else(|error| panic!("value {value:?} of header {name}: {error}"));
        if let What::Answer(response) = &mut self.what {
            response.headers_mut().append(name, value);
        }
        self
    }

    /// Replaces the body of the answer. What is no answer has none.
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        if let What::Answer(response) = &mut self.what {
            *response.body_mut() = body.into();
        }
        self
    }

    /// This much later than it would have come.
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = self.after.saturating_add(delay);
        self
    }

    /// What the client gets, once the time for it has come. The body has to be read until `end`.
    pub(super) async fn deliver(self, request: &Request, end: Option<Instant>) -> Result<Response> {
        match self.what {
            What::Answer(response) => {
                let (mut parts, body) = response.into_parts();
                let mut with_url = http::Response::builder().url(request.url().clone());
                if let Some(url) = with_url.extensions_mut() {
                    parts.extensions.extend(std::mem::take(url));
                }
                let body = body_until(end, body);
                Ok(http::Response::from_parts(parts, body).into())
            }
            What::Fail(kind) => Err(Error::Middleware(io::Error::from(kind).into())),
            What::Silence => std::future::pending().await,
        }
    }
}
