//! The caller's side of a request: its options, its key, and what it takes to send it again.

mod body;
mod header_copy;
mod key;
mod options;
mod snapshot;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use reqwest::{Body, Url};
use reqwest_middleware::RequestBuilder;
use url::Position;

pub(crate) use body::{BodyFactory, bytes_of};
pub(crate) use key::{DEFAULT_HEADER, check_header, has_key};
pub use key::{IdempotencyKey, InvalidKey};
pub(crate) use options::RequestOptions;
pub(crate) use snapshot::{RequestSnapshot, SnapshotBody};

use crate::log;
use crate::outcome::ReportSlot;

/// Settings for one request, on the builder that
/// [`ClientWithMiddleware`](reqwest_middleware::ClientWithMiddleware) hands out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = wiremock::MockServer::start().await;
/// # let url = server.uri();
/// use std::time::Duration;
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::{IdempotencyKey, RequestBuilderExt, RetryMiddleware};
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::default())
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
/// The settings travel in the builder's extensions, and a [`RetryMiddleware`](crate::RetryMiddleware)
/// reads them there. So call `send` on the builder: `build` keeps only the key and drops all other settings. A
/// client without that middleware ignores them, too. A middleware that sends requests of its own should give
/// those extensions of their own.
pub trait RequestBuilderExt: Sized + sealed::Sealed {
    /// At most this many retries, in place of the middleware's own number.
    #[must_use]
    fn max_retries(self, retries: u32) -> Self;

    /// Sends this request once.
    #[must_use]
    fn no_retry(self) -> Self {
        self.max_retries(0)
    }

    /// The answer's head, or an error, is there by then; in place of the middleware's own deadline.
    #[must_use]
    fn deadline(self, deadline: Duration) -> Self;

    /// Limits the time of each attempt until its response headers arrive.
    ///
    /// Replaces the middleware's own
    /// [`attempt_timeout`](crate::RetryMiddlewareBuilder::attempt_timeout) for this request: for an upload
    /// that takes longer than other calls, for example. Time in the queue of a throttle does not count.
    /// Unlike reqwest's `timeout` it does not cut a long download. A shorter
    /// [`deadline`](Self::deadline) still holds.
    ///
    /// Default: the value of the middleware, which is none unless set.
    ///
    /// # Errors
    ///
    /// An attempt that takes longer is retried like any timeout. The last one ends the call with
    /// [`TimedOut`](crate::TimedOut). A timeout of zero fails the call with [`ConfigError`](crate::ConfigError) before anything is sent.
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

    /// Sending this request twice does no harm, whatever its method.
    #[must_use]
    fn mark_idempotent(self) -> Self;

    /// Names the operation, so that the server can tell a repeated request from a second one.
    ///
    /// Takes an [`IdempotencyKey`] or its text, and writes the header `Idempotency-Key` at once. So the key
    /// is also sent by a client without this crate's middleware, and after
    /// [`build`](RequestBuilder::build) and `execute`. A
    /// [`RetryMiddleware`](crate::RetryMiddleware) with another
    /// [`idempotency_header`](crate::RetryMiddlewareBuilder::idempotency_header) moves the key there.
    ///
    /// It replaces an earlier key. Beside an `Idempotency-Key` that you set by hand, `send` keeps this key; after `build`,
    /// two keys are refused.
    ///
    /// The value is marked as [sensitive](http::HeaderValue::is_sensitive). The middleware moves only values with
    /// this mark. It does not move an `Idempotency-Key` without it.
    ///
    /// # Errors
    ///
    /// An invalid text makes `build` and `send` fail before anything is sent, with a builder error of
    /// reqwest. That error cannot say what is wrong with the key. The log does (feature `tracing`), and so
    /// does [`IdempotencyKey::new`]:
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
        K::Error: Into<InvalidKey>;

    /// Builds the body anew for each attempt, for bodies that are streams.
    ///
    /// It replaces a body that was set before. A middleware that changes bodies belongs inside the retry,
    /// where it sees each of them.
    ///
    /// # Errors
    ///
    /// The call fails with [`ConfigError`](crate::ConfigError), before anything is sent, if this body is replaced. A later `body`, `json`
    /// or `form` does that, and so does a middleware outside the retry. Otherwise the first attempt and its retries
    /// would send different bodies with one key. A middleware outside that wraps a stream is not noticed.
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

    /// Reads the body of the answer into memory before the call returns, so that a connection cut
    /// in the middle of it is retried too. The attempt's timeout and the deadline then cover the
    /// body as well.
    ///
    /// This is for answers that are final by themselves. If their body cannot be read and no retry
    /// is allowed, the call ends with that error. An answer that was given up comes back as it is. A
    /// body of more than `limit` bytes is handed out as a stream once so much has arrived, and what
    /// happens to it after that is not retried. Trailers are not kept.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).build();
    /// # let url = server.uri();
    /// use reqwest_steady::RequestBuilderExt;
    ///
    /// let response = client.get(url).buffer_response(1024 * 1024).send().await?;
    /// let body = response.bytes().await?; // at once, and whole
    /// # Ok(()) }
    /// ```
    #[must_use]
    fn buffer_response(self, limit: usize) -> Self;

    /// Keeps the [`RetryReport`](crate::RetryReport) of this call, also if it ends with an error.
    ///
    /// Empties the slot at once. So a request that cannot be built leaves no report of an earlier call.
    #[must_use]
    fn report_to(self, slot: &ReportSlot) -> Self;
}

impl RequestBuilderExt for RequestBuilder {
    fn max_retries(self, retries: u32) -> Self {
        set(self, |settings| settings.max_retries = Some(retries))
    }

    fn deadline(self, deadline: Duration) -> Self {
        set(self, |settings| settings.deadline = Some(deadline))
    }

    fn attempt_timeout(self, timeout: Duration) -> Self {
        set(self, |settings| settings.attempt_timeout = Some(timeout))
    }

    fn mark_idempotent(self) -> Self {
        set(self, |settings| settings.idempotent = true)
    }

    fn idempotency_key<K>(self, key: K) -> Self
    where
        K: TryInto<IdempotencyKey>,
        K::Error: Into<InvalidKey>,
    {
        match key.try_into().map_err(Into::into) {
            Ok(key) => {
                let mut builder = self;
                let value = key.header_value().clone();
                let settings: &mut Arc<RequestOptions> =
                    builder.extensions().get_or_insert_default();
                let before = Arc::make_mut(settings).key.replace(key);
                match before {
                    None => builder.header(DEFAULT_HEADER, value),
                    // `header` would add a second line.
                    Some(_) => builder.headers(HeaderMap::from_iter([(DEFAULT_HEADER, value)])),
                }
            }
            Err(invalid) => {
                log::invalid_key(&invalid);
                // An invalid header value makes `build` fail.
                self.header(DEFAULT_HEADER, "\n")
            }
        }
    }

    fn body_with<B: Into<Body>>(self, build: impl Fn() -> B + Send + Sync + 'static) -> Self {
        let first = build().into();
        let (first, later) = BodyFactory::new(first, move || build().into());
        set(self.body(first), |settings| settings.body = Some(later))
    }

    fn buffer_response(self, limit: usize) -> Self {
        set(self, |settings| settings.buffer = Some(limit))
    }

    fn report_to(self, slot: &ReportSlot) -> Self {
        // The middleware never sees a request that cannot be built.
        slot.clear();
        set(self, |settings| settings.report = Some(slot.clone()))
    }
}

/// For a request whose key the server has seen in this very header.
pub(crate) fn keep_key_header(builder: RequestBuilder, header: &HeaderName) -> RequestBuilder {
    set(builder, |settings| {
        settings.key_header = Some(header.clone())
    })
}

/// Extensions are copied for every attempt; behind an `Arc` that costs next to nothing.
fn set(mut builder: RequestBuilder, change: impl FnOnce(&mut RequestOptions)) -> RequestBuilder {
    let settings: &mut Arc<RequestOptions> = builder.extensions().get_or_insert_default();
    change(Arc::make_mut(settings));
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
