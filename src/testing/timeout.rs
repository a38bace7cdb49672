//! Applies the timeout of a request, which reqwest would normally do.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::{Body, Client, Request, Response};
use reqwest_middleware::{Error, Result};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::clock;

/// A client that never sends anything, because its resolver never returns an address.
pub(super) static NOWHERE: LazyLock<Client> = LazyLock::new(|| {
    let client = Client::builder()
        .no_proxy()
        .dns_resolver(Arc::new(NeverResolves));
    client.build().expect("a valid client")
});

struct NeverResolves;

impl Resolve for NeverResolves {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(std::future::pending())
    }
}

/// Returns the time when a request that is sent now times out, if it has a timeout.
pub(super) fn end_of(request: &Request) -> Option<Instant> {
    let timeout = request.timeout()?;
    Some(clock::after(clock::now(), *timeout))
}

/// Waits for the reply until `end`, and otherwise returns a timeout error.
pub(super) async fn until(
    end: Option<Instant>,
    request: &Request,
    reply: impl Future<Output = Result<Response>>,
) -> Result<Response> {
    match end {
        None => reply.await,
        Some(end) => match clock::within(end, reply).await {
            Some(result) => result,
            None => Err(timed_out(request).await),
        },
    }
}

/// Makes a timeout error of reqwest. Only reqwest can create its errors, so this provokes one.
async fn timed_out(request: &Request) -> Error {
    let silent = NOWHERE
        .get("http://nowhere.invalid/")
        .timeout(Duration::ZERO);
    match silent.send().await {
        Err(error) => error.with_url(request.url().clone()).into(),
        Ok(_) => Error::Middleware(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

/// Limits a streamed body to the time until `end`.
pub(super) fn body_until(end: Option<Instant>, body: Body) -> Body {
    match end {
        Some(end) if body.as_bytes().is_none() => Body::wrap(TimedBody {
            body,
            alarm: Box::pin(sleep_until(end)),
        }),
        // A body in memory takes no time.
        _ => body,
    }
}

struct TimedBody {
    body: Body,
    alarm: Pin<Box<Sleep>>,
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let timed_out = |()| Some(Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        self.alarm.as_mut().poll(context).map(timed_out)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
