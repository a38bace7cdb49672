//! The replies of servers without a network.

use std::io;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::{Body, Request, Response, ResponseBuilderExt};
use reqwest_middleware::{Error, Result};
use tokio::time::Instant;

use super::timeout::body_until;

/// Describes what a server does with a request: it responds, fails, or stays silent.
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
    pub(super) kind: ReplyKind,
    pub(super) after: Duration,
}

#[derive(Debug)]
pub(super) enum ReplyKind {
    Respond(Box<http::Response<Body>>),
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
    fn new(kind: ReplyKind) -> Self {
        let after = Duration::ZERO;
        Self { kind, after }
    }

    /// Responds with this status, no headers and an empty body.
    ///
    /// # Panics
    ///
    /// Panics if the status is invalid.
    pub fn status(status: u16) -> Self {
        let mut response = http::Response::new(Body::from(""));
        *response.status_mut() = assert_status(status);
        Self::response(response)
    }

    /// Responds with any response, such as one with a streamed body.
    pub fn response(response: http::Response<Body>) -> Self {
        Self::new(ReplyKind::Respond(Box::new(response)))
    }

    /// Fails the connection in this way, such as refused, reset or closed early.
    ///
    /// The error is an [`io::Error`] inside a middleware error, so `is_connect()` is false. Only the `timeout` of a
    /// request gives a real `reqwest::Error`.
    pub fn fail(kind: io::ErrorKind) -> Self {
        Self::new(ReplyKind::Fail(kind))
    }

    /// Never responds.
    ///
    /// The call ends by `attempt_timeout`, `deadline` or the request's `timeout`. Without these it never ends.
    pub fn silence() -> Self {
        Self::new(ReplyKind::Silence)
    }

    /// Adds a header to the response. Failures and silence ignore it.
    ///
    /// # Panics
    ///
    /// Panics if the header is invalid.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name)
            .unwrap_or_else(|error| panic!("header name {name:?}: {error}"));
        let value = HeaderValue::try_from(value)
            .unwrap_or_else(|error| panic!("value {value:?} of header {name}: {error}"));
        if let ReplyKind::Respond(response) = &mut self.kind {
            response.headers_mut().append(name, value);
        }
        self
    }

    /// Replaces the body of the response. Failures and silence ignore it.
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        if let ReplyKind::Respond(response) = &mut self.kind {
            *response.body_mut() = body.into();
        }
        self
    }

    /// Delays the reply.
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = self.after.saturating_add(delay);
        self
    }

    /// Waits for the delay and returns the result. The body must be read before `end`.
    pub(super) async fn deliver(self, request: &Request, end: Option<Instant>) -> Result<Response> {
        match self.kind {
            ReplyKind::Respond(response) => {
                let (mut parts, body) = response.into_parts();
                let mut with_url = http::Response::builder().url(request.url().clone());
                if let Some(url) = with_url.extensions_mut() {
                    parts.extensions.extend(std::mem::take(url));
                }
                let body = body_until(end, body);
                Ok(http::Response::from_parts(parts, body).into())
            }
            ReplyKind::Fail(kind) => Err(Error::Middleware(io::Error::from(kind).into())),
            ReplyKind::Silence => std::future::pending().await,
        }
    }
}
