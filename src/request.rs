//! A request before it is sent: its options, its key, and a snapshot to send it again.
//!
//! - [`RequestBuilderExt`] is what users call. It stores [`RequestOptions`] in the extensions of the request.
//! - `key` has [`IdempotencyKey`] and the rules for its text.
//! - `body` has [`BodyFactory`], which builds a streaming body, a form or a file again for each attempt.
//! - `snapshot` has [`RequestSnapshot`], from which retries and dead letters are made.

mod body;
mod header_copy;
mod key;
mod options;
mod snapshot;

#[cfg(feature = "file")]
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "multipart")]
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};
#[cfg(feature = "multipart")]
use reqwest::multipart::Form;
use reqwest::{Body, Url};
use reqwest_middleware::RequestBuilder;
use url::Position;

#[cfg(feature = "file")]
use body::file::FileSource;
#[cfg(feature = "multipart")]
use body::multipart::FormSource;
pub(crate) use body::{BodyFactory, KeptBody, describe};
pub(crate) use key::{DEFAULT_HEADER, check_header, has_key};
pub use key::{IdempotencyKey, InvalidKeyError};
pub(crate) use options::RequestOptions;
pub(crate) use snapshot::{RequestSnapshot, RequestTarget, SnapshotBody};

use crate::log;
use crate::outcome::ReportSlot;

/// Adds options of one request: key, time limits, retries, body, report.
///
/// It extends the request builder of [`ClientWithMiddleware`](reqwest_middleware::ClientWithMiddleware). The
/// [recipes](crate::guide::recipes) show how to use them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = wiremock::MockServer::start().await;
/// # let url = server.uri();
/// use std::time::Duration;
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::{ClientBuilderExt, IdempotencyKey, RequestBuilderExt, Steady};
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with_steady(Steady::default())
///     .build();
///
/// client.get(&url).max_retries(1).send().await?;
/// client.get(&url).no_retry().send().await?;
/// client.get(&url).deadline(Duration::from_secs(3)).send().await?;
/// client.get(&url).attempt_timeout(Duration::from_secs(1)).send().await?;
/// client.post(&url).mark_idempotent().send().await?;
/// client.post(&url).idempotency_key(IdempotencyKey::random()).body("order").send().await?;
/// # Ok(()) }
/// ```
///
/// The builder keeps these options in its extensions, and [`RetryMiddleware`](crate::RetryMiddleware) reads them
/// there. So call `send` on the builder: `build` keeps only the key and the first body, and drops all other options. A
/// client without this middleware ignores them, too. If a middleware sends additional requests, it should give each of
/// them new extensions.
pub trait RequestBuilderExt: Sized + sealed::Sealed {
    /// Limits the retries of this request.
    ///
    /// Default: the [`max_retries`](crate::RetryMiddlewareBuilder::max_retries) of the middleware.
    #[must_use]
    fn max_retries(self, retries: u32) -> Self;

    /// Sends this request only once.
    #[must_use]
    fn no_retry(self) -> Self {
        self.max_retries(0)
    }

    /// Limits the total time of this call until response headers arrive.
    ///
    /// Retries that cannot start in time are skipped.
    ///
    /// Default: the [`deadline`](crate::RetryMiddlewareBuilder::deadline) of the middleware.
    #[must_use]
    fn deadline(self, deadline: Duration) -> Self;

    /// Limits the time of each attempt until its response headers arrive.
    ///
    /// Use it for a request that takes longer than others, such as an upload. Time in the queue of a throttle does
    /// not count. Unlike reqwest's `timeout`, it does not interrupt a long download. A shorter
    /// [`deadline`](Self::deadline) still applies.
    ///
    /// Default: the [`attempt_timeout`](crate::RetryMiddlewareBuilder::attempt_timeout) of the middleware, which
    /// is none unless set.
    ///
    /// # Errors
    ///
    /// An attempt that takes longer is retried like any timeout. If the last attempt takes longer, the call fails
    /// with a [`SteadyError`](crate::SteadyError). With a timeout of zero, the call fails with one before anything is
    /// sent.
    ///
    /// ```
    /// use std::time::Duration;
    /// use reqwest_steady::testing::{Reply, ScriptedServer};
    /// use reqwest_steady::{RequestBuilderExt, RetryMiddleware};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ScriptedServer::new(|_| Reply::status(200).after(Duration::from_secs(20)));
    /// let retry = RetryMiddleware::builder().attempt_timeout(Duration::from_secs(5)).build()?;
    /// let client = server.client(retry);
    ///
    /// let report = client.get("https://api.example.com/reports/2026");
    /// let response = report.attempt_timeout(Duration::from_secs(30)).send().await?;
    /// assert_eq!(response.status(), 200);
    /// assert_eq!(server.count(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    fn attempt_timeout(self, timeout: Duration) -> Self;

    /// Declares that this request may be sent twice, whatever its method.
    ///
    /// Use it for a `POST` that only reads, or whose effect can be repeated safely.
    #[must_use]
    fn mark_idempotent(self) -> Self;

    /// Sets the key by which the server recognises a repeated request.
    ///
    /// Takes an [`IdempotencyKey`] or its text, and writes the header `Idempotency-Key` immediately. So the key is
    /// also sent by a client without this crate's middleware, and after [`build`](RequestBuilder::build) and
    /// `execute`. A [`RetryMiddleware`](crate::RetryMiddleware) with another
    /// [`idempotency_header`](crate::RetryMiddlewareBuilder::idempotency_header) moves the key to that header.
    ///
    /// A second call replaces the first key. If you also set `Idempotency-Key` by hand, `send` uses this key. After
    /// `build`, two keys are an error.
    ///
    /// The value is marked as [sensitive](http::HeaderValue::is_sensitive). The middleware moves only values with
    /// this mark.
    ///
    /// # Errors
    ///
    /// With an invalid text, `build` and `send` fail with a builder error of reqwest, and nothing is sent. That error
    /// does not say what is wrong with the key. The log does (feature `tracing`), and so does
    /// [`IdempotencyKey::new`]:
    ///
    /// ```
    /// # let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).build();
    /// use reqwest_steady::{IdempotencyKey, RequestBuilderExt};
    ///
    /// let post = || client.post("https://api.example.com/orders");
    /// let request = post().idempotency_key("order-4711").build()?;
    /// assert_eq!(request.headers()["idempotency-key"], "order-4711");
    ///
    /// assert!(post().idempotency_key("two words").build().unwrap_err().is_builder());
    /// assert_eq!(
    ///     IdempotencyKey::new("two words").unwrap_err().to_string(),
    ///     "the idempotency key has the byte 0x20 at position 3, \
    ///      only visible ASCII (0x21 to 0x7e) is allowed",
    /// );
    /// # Ok::<(), reqwest::Error>(())
    /// ```
    #[must_use]
    fn idempotency_key<K>(self, key: K) -> Self
    where
        K: TryInto<IdempotencyKey>,
        K::Error: Into<InvalidKeyError>;

    /// Builds the body again for each attempt.
    ///
    /// Use it for streaming bodies, because a stream can be sent only once. It replaces an earlier body. The function
    /// should build the same content each time, which nothing checks. If a middleware changes bodies, add it after the
    /// retry, so that it sees the body of each attempt.
    ///
    /// # Errors
    ///
    /// The call fails with a [`SteadyError`](crate::SteadyError) before anything is sent, in these cases:
    ///
    /// - A later `body`, `json` or `form`, or a middleware outside the retry, has replaced this body. Otherwise the
    ///   first attempt and its retries would send different bodies with one key. A middleware outside the retry that
    ///   wraps a stream is not detected.
    /// - The request has the `Content-Length` of another body, as after an earlier `multipart`.
    /// - The `Content-Type` names another boundary than the one with which a new body begins. To compare them, the call
    ///   builds one more body. For forms, use `multipart_with` (feature `multipart`).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).build();
    /// # let url = server.uri();
    /// use reqwest_steady::RequestBuilderExt;
    ///
    /// let upload = client.put(url).body_with(|| {
    ///     let lines = ["one\n", "two\n"].map(Ok::<_, std::io::Error>);
    ///     reqwest::Body::wrap_stream(futures_util::stream::iter(lines))
    /// });
    /// upload.send().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    fn body_with<B: Into<Body>>(self, build: impl Fn() -> B + Send + Sync + 'static) -> Self;

    /// Builds a multipart form again for each attempt (feature `multipart`).
    ///
    /// Use it instead of reqwest's `multipart`, whose form can be sent only once. Each attempt sends a new form with
    /// its own boundary, `Content-Type` and `Content-Length`. It replaces an earlier body and its `Content-Type`. The
    /// function should build the same parts each time, which nothing checks.
    ///
    /// Dead letters keep a form within their size limit if all its parts are in memory. `AutoKey::Content` makes no
    /// key for a form, because its content has a random boundary. Like any stream, a form is not sent on to the target of
    /// a redirect with 307 or 308: reqwest returns that response.
    ///
    /// # Errors
    ///
    /// The call fails with a [`SteadyError`](crate::SteadyError) before anything is sent, if the form was replaced by
    /// another body, or if the request has another `Content-Type` or `Content-Length`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).build();
    /// # let url = server.uri();
    /// use reqwest::multipart::Form;
    /// use reqwest_steady::RequestBuilderExt;
    ///
    /// let upload = client.post(url).idempotency_key("scan-7");
    /// let upload = upload.multipart_with(|| Form::new().text("title", "Scan 7").text("pages", "2"));
    /// upload.send().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "multipart")]
    #[must_use]
    fn multipart_with(self, build: impl Fn() -> Form + Send + Sync + 'static) -> Self;

    /// Sends a file, opened again for each attempt (feature `file`).
    ///
    /// Sends the length as `Content-Length` and the content in chunks of 64 KiB. It replaces an earlier body and sets
    /// no `Content-Type`. This method and each attempt open the file with blocking calls of `std::fs`, which are short
    /// on a local disk. The content is read on tokio's threads for blocking work.
    ///
    /// Dead letters keep an unchanged file within their size limit, and read it with blocking calls. `AutoKey::Content`
    /// makes no key for a file. Like any stream, a file is not sent on to the target of a redirect with 307 or 308:
    /// reqwest returns that response.
    ///
    /// # Errors
    ///
    /// Before each attempt, the call fails with a [`SteadyError`](crate::SteadyError) if the file cannot be opened, or
    /// if its length or modification time has changed since this method was called. Otherwise two attempts would send
    /// different contents with one key. Another file with the same length and modification time is not noticed. Before a
    /// retry, this error replaces the last response. See [`SteadyError::is_body`](crate::SteadyError::is_body).
    ///
    /// If the file shrinks while it is sent, the attempt fails with an error of reqwest and is not retried. Other
    /// changes during an attempt are noticed only before the next one. As with [`body_with`](Self::body_with), the call
    /// fails if the file was replaced by another body, or if the request has the `Content-Length` of one. Without a
    /// [`RetryMiddleware`](crate::RetryMiddleware), a file that cannot be opened is an error of reqwest.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).build();
    /// # let url = server.uri();
    /// # let path = "Cargo.toml";
    /// use reqwest_steady::RequestBuilderExt;
    ///
    /// let upload = client.put(url).header("content-type", "application/octet-stream");
    /// upload.file(path).send().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "file")]
    #[must_use]
    fn file(self, path: impl Into<PathBuf>) -> Self;

    /// Reads the response body into memory before the call returns.
    ///
    /// So a connection that breaks while the body arrives is retried, too. `attempt_timeout` and `deadline` then also
    /// cover the body.
    ///
    /// Only final responses are buffered: if the call gives up, you get the last response unchanged. If a body cannot
    /// be read and no retry is allowed, the call fails with that error. A longer body than `limit` bytes becomes a
    /// stream once more than `limit` bytes have arrived. Later failures of that stream are not retried. Trailers are
    /// dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).build();
    /// # let url = server.uri();
    /// use reqwest_steady::RequestBuilderExt;
    ///
    /// let response = client.get(url).buffer_response(1024 * 1024).send().await?;
    /// let body = response.bytes().await?; // complete, without waiting
    /// # Ok(()) }
    /// ```
    #[must_use]
    fn buffer_response(self, limit: usize) -> Self;

    /// Stores the [`RetryReport`](crate::RetryReport) of this call, even if it fails.
    ///
    /// [`ReportSlot::effect`] then says whether the request took effect, however the call ended.
    ///
    /// Empties the slot immediately. So if the request cannot be built, the slot has no report of an earlier call.
    #[must_use]
    fn report_to(self, slot: &ReportSlot) -> Self;
}

impl RequestBuilderExt for RequestBuilder {
    fn max_retries(self, retries: u32) -> Self {
        set(self, |options| options.max_retries = Some(retries))
    }

    fn deadline(self, deadline: Duration) -> Self {
        set(self, |options| options.deadline = Some(deadline))
    }

    fn attempt_timeout(self, timeout: Duration) -> Self {
        set(self, |options| options.attempt_timeout = Some(timeout))
    }

    fn mark_idempotent(self) -> Self {
        set(self, |options| options.idempotent = true)
    }

    fn idempotency_key<K>(self, key: K) -> Self
    where
        K: TryInto<IdempotencyKey>,
        K::Error: Into<InvalidKeyError>,
    {
        match key.try_into().map_err(Into::into) {
            Ok(key) => {
                let value = key.header_value().clone();
                let mut earlier = None;
                let builder = set(self, |options| earlier = options.key.replace(key));
                match earlier {
                    None => builder.header(DEFAULT_HEADER, value),
                    // `header` adds a second line, and `headers` replaces the first.
                    Some(_) => builder.headers(HeaderMap::from_iter([(DEFAULT_HEADER, value)])),
                }
            }
            Err(invalid) => {
                log::invalid_key(&invalid);
                let builder = set(self, |options| {
                    options.has_invalid_key = true;
                    options.report.iter().for_each(ReportSlot::start);
                });
                // An invalid header value makes `build` fail.
                builder.header(DEFAULT_HEADER, "\n")
            }
        }
    }

    fn body_with<B: Into<Body>>(self, build: impl Fn() -> B + Send + Sync + 'static) -> Self {
        let first = build().into();
        let (first, later) = BodyFactory::new(first, move || build().into());
        set(self.body(first), |options| {
            options.body = Some(later.into())
        })
    }

    #[cfg(feature = "multipart")]
    fn multipart_with(self, build: impl Fn() -> Form + Send + Sync + 'static) -> Self {
        // A stream could not be cloned, and the form replaces any body.
        let builder = self.body(Body::default());
        let first =
            FormSource::new(&builder, build).and_then(|source| Some((source.next().ok()?, source)));
        let Some((first, source)) = first else {
            // The request or the form is invalid. An invalid header makes `build` fail, so that nothing is sent without
            // the form.
            return builder.header(CONTENT_TYPE, "\n");
        };
        let (body, later) = BodyFactory::of_source(first.body, source);
        let headers = first.headers.unwrap_or_default();
        set(builder.headers(headers).body(body), |options| {
            options.body = Some(later.into());
        })
    }

    #[cfg(feature = "file")]
    fn file(self, path: impl Into<PathBuf>) -> Self {
        let (first, source) = FileSource::open(path.into());
        let (first, later) = BodyFactory::of_source(first, source);
        set(self.body(first), |options| {
            options.body = Some(later.into())
        })
    }

    fn buffer_response(self, limit: usize) -> Self {
        set(self, |options| options.buffer = Some(limit))
    }

    fn report_to(self, slot: &ReportSlot) -> Self {
        // The middleware never sees a request that cannot be built.
        slot.clear();
        set(self, |options| {
            if options.has_invalid_key {
                slot.start();
            }
            options.report = Some(slot.clone());
        })
    }
}

/// Keeps the key of a replayed request in this header, because the server knows it from there.
pub(crate) fn keep_key_header(builder: RequestBuilder, header: &HeaderName) -> RequestBuilder {
    set(builder, |options| options.key_header = Some(header.clone()))
}

/// Changes the options of a request.
fn set(mut builder: RequestBuilder, change: impl FnOnce(&mut RequestOptions)) -> RequestBuilder {
    RequestOptions::change(builder.extensions(), change);
    builder
}

/// Returns the part of a URL that is sent.
pub(crate) fn without_fragment(url: &Url) -> &str {
    &url[..Position::AfterQuery]
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for reqwest_middleware::RequestBuilder {}
}
