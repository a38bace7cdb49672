//! Downloads that go on where they broke off.
//!
//! A retry repeats a request until its response headers arrive. If the body of a large file breaks off later, the
//! caller has half a file. A [`Download`] requests the rest through the same client. So each request has the client's
//! retries, budget, throttle and credentials.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = wiremock::MockServer::start().await;
//! # let file = wiremock::ResponseTemplate::new(200).set_body_string("data");
//! # wiremock::Mock::given(wiremock::matchers::any()).respond_with(file).mount(&server).await;
//! # let url = server.uri();
//! use reqwest_middleware::ClientBuilder;
//! use reqwest_steady::download::DownloadExt;
//! use reqwest_steady::{ClientBuilderExt, Steady};
//!
//! let steady = Steady::default();
//! let client = ClientBuilder::new(reqwest::Client::new()).with_steady(steady).build();
//! let mut download = client.get(url).download().await?;
//! let mut bytes = 0;
//! while let Some(chunk) = download.chunk().await? {
//!     bytes += chunk.len();
//! }
//! assert_eq!(bytes, 4);
//! # Ok(()) }
//! ```
//!
//! With the feature `file`, [`save`](Download::save) writes the download to a file.
//!
//! # When it goes on
//!
//! The first response must be a 200 with a length and a strong validator. That is an `ETag` that is not weak or,
//! without any `ETag`, a `Last-Modified` that is at least a minute older than `Date` (RFC 9110 §8.8.2.2). The request
//! for the rest has `Range` and `If-Range`. The download goes on only with a 206 that has the right bytes, the same
//! length and the same validator. A `Last-Modified` that is missing counts as another one, because the server may have
//! ignored `If-Range`. So no byte comes twice, and none is missing.
//!
//! A 206 may come without a length, because it is chunked or because the client has decoded it. Then its bytes are in
//! doubt until it ends exactly where its range ends: nothing else shows that they are those of the range. If it breaks
//! off before, `save` takes its bytes back and requests them again. A stream ends with a [`DownloadError`] that
//! [`is_changed`](DownloadError::is_changed).
//!
//! If the file has changed, or the server cannot send parts, `save` begins again with the first byte. A stream cannot
//! take back the bytes that you have read, so it ends with a [`DownloadError`].
//!
//! # What limits it
//!
//! - At most [`max_resumes`](DownloadRequest::max_resumes) resumes in a row without a new byte. Retries of their
//!   requests count, too. A new byte restores the full number. So if a server sends one byte per connection, only a
//!   deadline limits the requests. Bytes in doubt are not new. If `save` begins again, bytes of a version with a strong
//!   validator are new from the first one on, but at most `max_resumes` times in a download. So a file that changes
//!   forever ends it.
//! - The [`stall_timeout`](DownloadRequest::stall_timeout) between two chunks. After it, the download requests the
//!   rest. After the last byte of a rest without a length, it waits as long for the end of the body, because more bytes
//!   would show that the rest does not fit.
//! - The [`deadline`](crate::RequestBuilderExt::deadline) of the request and that of a [`Scope`](crate::Scope) around
//!   it hold for the whole download. The deadline of a middleware holds for each request until its headers arrive.
//! - If a request for the rest must not be repeated, the download ends. Examples are a veto of the server, a
//!   `Retry-After` over 60 s, an empty retry budget, and a throttle that refuses. A later `save` goes on with the part
//!   file.
//!
//! Before each resume, the download waits for a random backoff, and at least as long as the server asks. A resume
//! counts as a new call, so it takes nothing from the retry budget. The retries of its request do. Inside a `Scope`, a
//! resume takes one of the scope's retries.

mod error;
mod requests;
#[cfg(feature = "file")]
mod save;
mod transfer;
mod version;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, StatusCode};
use reqwest_middleware::{RequestBuilder, Result};

use crate::config::{ConfigError, longer_than_zero};
use crate::outcome::SteadyError;
use crate::schedule::Backoff;
use crate::upstream::BoxFuture;
pub use error::DownloadError;
use requests::Requests;
use transfer::{Item, ResumeSettings, Transfer};
// For its property.
#[cfg(any(test, all(fuzzing, feature = "testing")))]
pub(crate) use version::{FileVersion, Rest};

/// Adds `download` to request builders.
pub trait DownloadExt: sealed::Sealed {
    /// Downloads a file, and goes on where its body breaks off.
    ///
    /// Await it, or change its settings first:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).build();
    /// # let url = server.uri();
    /// use std::time::Duration;
    /// use reqwest_steady::download::DownloadExt;
    ///
    /// let download = client
    ///     .get(url)
    ///     .download()
    ///     .stall_timeout(Duration::from_secs(10))
    ///     .on_progress(|progress| println!("{} bytes", progress.received()))
    ///     .await?;
    /// assert_eq!(download.status(), 404);
    /// # Ok(()) }
    /// ```
    ///
    /// The request has `Accept-Encoding: identity`, because offsets count the bytes of the file itself. Its
    /// `buffer_response` has no effect.
    ///
    /// # Errors
    ///
    /// If the request fails. Also, with a [`SteadyError`], if the request is not a `GET`, has a `Range` or `If-Range`
    /// header or a streaming body, or if a setting of the download is invalid.
    fn download(self) -> DownloadRequest;
}

impl DownloadExt for RequestBuilder {
    fn download(self) -> DownloadRequest {
        DownloadRequest {
            request: self,
            settings: ResumeSettings::default(),
            on_progress: None,
        }
    }
}

type OnProgress = Box<dyn FnMut(Progress) + Send>;

/// Starts a [`Download`] when it is awaited.
#[must_use = "nothing is sent until it is awaited"]
pub struct DownloadRequest {
    request: RequestBuilder,
    settings: ResumeSettings,
    on_progress: Option<OnProgress>,
}

impl DownloadRequest {
    /// Limits the resumes in a row without a new byte.
    ///
    /// Retries of their requests count, too.
    ///
    /// Default: 5. With 0, a body that breaks off ends the download.
    pub fn max_resumes(mut self, resumes: u32) -> Self {
        self.settings.max_resumes = resumes;
        self
    }

    /// Limits the time between two chunks of a body.
    ///
    /// After it, the download requests the rest. It also limits each attempt of those requests until its headers
    /// arrive, unless the request or the client's retry has an `attempt_timeout`.
    ///
    /// Default: 30 s.
    ///
    /// # Errors
    ///
    /// With a timeout of zero, the download fails before anything is sent.
    pub fn stall_timeout(mut self, timeout: Duration) -> Self {
        self.settings.stall_timeout = timeout;
        self
    }

    /// Sets the waits before resumes. They grow with the resumes in a row without a new byte.
    ///
    /// Default: 200 ms · 2ⁿ up to 10 s, full jitter.
    ///
    /// # Errors
    ///
    /// With a backoff that [`RetryMiddlewareBuilder::backoff`](crate::RetryMiddlewareBuilder::backoff) refuses, the
    /// download fails before anything is sent.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Calls a function after each chunk, and when `save` begins again or takes bytes back.
    pub fn on_progress(mut self, notify: impl FnMut(Progress) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(notify));
        self
    }

    async fn start(self) -> Result<Download> {
        let mut requests = Requests::new(self.request, self.settings.stall_timeout)?;
        SteadyError::check(check(&self.settings), requests.url())?;
        let response = requests.first().await?;
        let headers = response.headers().clone();
        Ok(Download {
            headers,
            transfer: Transfer::new(requests, self.settings, response),
            on_progress: self.on_progress,
        })
    }
}

fn check(settings: &ResumeSettings) -> std::result::Result<(), ConfigError> {
    longer_than_zero("stall_timeout", Some(settings.stall_timeout))?;
    settings.backoff.check()
}

impl IntoFuture for DownloadRequest {
    type Output = Result<Download>;
    type IntoFuture = BoxFuture<'static, Result<Download>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

impl fmt::Debug for DownloadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DownloadRequest")
            .field("max_resumes", &self.settings.max_resumes)
            .field("stall_timeout", &self.settings.stall_timeout)
            .field("backoff", &self.settings.backoff)
            .finish_non_exhaustive()
    }
}

/// Says how much of a file has been downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    received: u64,
    length: Option<u64>,
    resumes: u32,
}

impl Progress {
    /// Returns how many bytes of the file have been received.
    ///
    /// Includes those in the part file of an earlier `save`. The number falls if `save` begins again or takes bytes back.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the length of the file, if the server announced it.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns how often the download has requested the rest.
    pub fn resumes(&self) -> u32 {
        self.resumes
    }
}

/// Reads a file, and goes on where its body breaks off.
///
/// [`DownloadExt::download`] starts one. Read it with [`chunk`](Self::chunk), as a [`Stream`] of chunks, or with
/// [`save`](Self::save) (feature `file`). The [module](self) says when it goes on.
///
/// As in reqwest, a response such as a 404 is not an error here: check [`status`](Self::status). Only the body of a 200
/// or 203 is the file. Others are not resumed, and `save` refuses them. Reading a 206 is an error, because the first
/// request is for the whole file.
#[must_use = "the file is not read yet"]
pub struct Download {
    transfer: Transfer,
    /// The headers of the first response.
    headers: HeaderMap,
    on_progress: Option<OnProgress>,
}

impl Download {
    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        self.transfer.status
    }

    /// Returns the headers of the first response.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the length of the file, if the server announced it.
    pub fn length(&self) -> Option<u64> {
        self.transfer.version.length
    }

    /// Returns how often the download has requested the rest.
    pub fn resumes(&self) -> u32 {
        self.transfer.resumes
    }

    /// Returns the next bytes of the file, or `None` after the last ones.
    ///
    /// If the future is dropped, no bytes are lost: the next call goes on.
    ///
    /// # Errors
    ///
    /// If the body breaks off and the download cannot go on:
    ///
    /// - A [`DownloadError`] says why.
    /// - A [`SteadyError`] ends the download at its deadline.
    /// - The error of a request for the rest is returned unchanged, if a retry would not help.
    ///
    /// After an error, there are no more chunks.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        poll_fn(|context| self.poll_chunk(context))
            .await
            .transpose()
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        loop {
            match ready!(self.poll_item(context)) {
                Some(Ok(Item::Chunk(chunk))) => return Poll::Ready(Some(Ok(chunk))),
                // Never come here: only `save` allows them, and `save` polls items.
                Some(Ok(Item::StartOver | Item::TakeBack)) => {}
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }

    fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Item>>> {
        let item = ready!(self.transfer.poll_item(context));
        if let (Some(Ok(_)), Some(notify)) = (&item, &mut self.on_progress) {
            notify(Progress {
                received: self.transfer.offset,
                length: self.transfer.version.length,
                resumes: self.transfer.resumes,
            });
        }
        Poll::Ready(item)
    }
}

impl Stream for Download {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_chunk(context)
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download")
            .field("status", &self.status())
            .field("length", &self.length())
            .field("received", &self.transfer.offset)
            .field("resumes", &self.resumes())
            .finish_non_exhaustive()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for reqwest_middleware::RequestBuilder {}
}
