//! Coalescing: identical requests that run at the same time become one request on the wire.
//!
//! A middleware has a table of [`flights`]. The first caller with an [`identity`] becomes the [`leader`] of a
//! flight and sends its request. Callers with an equal identity become [`follower`]s and wait. When the
//! leader's response is [`shareable`], the [`call`] reads its body and gives each follower a copy.

mod builder;
mod call;
mod config;
mod flights;
#[cfg(test)]
mod flights_tests;
mod follower;
mod identity;
mod ignored;
mod leader;
mod read_back;
mod shareable;

use std::sync::Arc;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::Result;

pub use builder::CoalesceMiddlewareBuilder;
use call::{CoalescedCall, copy_for_follower, send_within};
use config::CoalesceConfig;
use flights::{FlightMessage, Flights, Role};
use identity::Identity;
use leader::Leader;
use shareable::{NotShared, check_request};

use crate::config::{ConfigError, Current, Timers};
use crate::host::host_of;
use crate::log::{COALESCE_INSIDE_RETRY, UNKNOWN_EXTENSIONS, WarnOnce};
use crate::outcome::{Attempt, SteadyError};
use crate::request::RequestOptions;
use crate::settings::CoalesceSettings;
use crate::upstream::Upstream;

/// Sends identical requests that run at the same time only once.
///
/// When a popular value expires, a thousand callers may request it at once. With this middleware the first
/// of them sends its request, and the others wait for its response. Each caller gets its own response with
/// the same status, headers, extensions and body.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::{CoalesceMiddleware, RetryMiddleware};
/// use wiremock::matchers::method;
/// use wiremock::{Mock, MockServer, ResponseTemplate};
///
/// let server = MockServer::start().await;
/// let prices = ResponseTemplate::new(200).set_body_string("prices");
/// Mock::given(method("GET")).respond_with(prices).expect(1).mount(&server).await;
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(CoalesceMiddleware::default())
///     .with(RetryMiddleware::default())
///     .build();
/// let calls = (0..100).map(|_| async {
///     let response = client.get(server.uri()).send().await?;
///     Ok::<_, reqwest_middleware::Error>(response.text().await?)
/// });
/// for text in futures_util::future::join_all(calls).await {
///     assert_eq!(text?, "prices");
/// }
/// # Ok(()) } // the server has received one request
/// ```
///
/// # Where to put it
///
/// Add it before the [`RetryMiddleware`](crate::RetryMiddleware), so that it is outside. Callers then share
/// a call with all its retries and its [`RetryReport`](crate::RetryReport). Inside the retry, callers share
/// only single attempts: calls that have drifted apart no longer meet. Each caller also pays for the same failure
/// with a retry from the [`Budget`](crate::Budget), which is soon empty. This order triggers a
/// one-time warning (feature `tracing`).
///
/// Add it after all middleware that adds credentials or other headers: **headers that are added later are
/// not compared.** It cannot see what the client adds either: default headers, cookies, certificates.
///
/// Each client should therefore have its own table of requests. A clone of this middleware has its own.
/// **But [`ClientBuilder::from_client`](reqwest_middleware::ClientBuilder::from_client) keeps the same
/// middleware, and so the same table. Middleware that you add to the new client is inside. If it adds
/// credentials, one user gets the responses of another.** Add the credentials first, then this middleware
/// to each client separately. The same applies to
/// [`with_arc`](reqwest_middleware::ClientBuilder::with_arc). Use it to share one table between clients
/// that look the same to the server.
///
/// # Which requests are identical
///
/// `GET`, `HEAD` and `OPTIONS` requests without a body are identical if they have the same URL, headers,
/// HTTP version, `timeout`, `attempt_timeout` and `max_retries`. Tracing headers and those named with
/// [`ignore_header`](CoalesceMiddlewareBuilder::ignore_header) are not compared. Credentials always are.
/// All other requests pass through unchanged, and so do:
///
/// - requests with `Cache-Control: no-cache`, `no-store` or `max-age=0`, or with `Pragma: no-cache`. A shared
///   response can be as old as the first request for it. After a change, use one of these headers to see it.
/// - requests with an idempotency key, as an option or in an `Idempotency-Key` header.
/// - requests with extensions that this crate does not know. See
///   [`ignore_extensions`](CoalesceMiddlewareBuilder::ignore_extensions).
///
/// # Which responses are shared
///
/// All responses, including errors like 404 or 503, except those
///
/// - with a body of more than [`max_body`](CoalesceMiddlewareBuilder::max_body) bytes, or a body that is
///   not complete 2 s after the headers;
/// - with `Set-Cookie`, because it may start a session that belongs to one caller;
/// - with `Cache-Control: no-store`, which limits a response to one request;
/// - with `Vary: *`, or with a `Vary` that names an ignored header;
/// - that are event streams (`text/event-stream`, `multipart/x-mixed-replace`) or a `101`.
///
/// If a response is not shared, all waiting callers send their own requests at once. An endpoint whose responses
/// are never shared costs them a second round trip each time. Use a client without this middleware for it.
///
/// If no other caller waits, nothing is read or delayed: a single caller gets its response unchanged. Trailers are
/// not shared.
///
/// A retry inside can end for a reason that holds for the first caller alone: its deadline was too close,
/// its [`Scope`](crate::Scope) had no retries left, or a throttle refused it. Such a response is not shared, and
/// the next caller sends its own request.
///
/// # When a request fails
///
/// If the request fails or its body breaks off, the first caller gets that result. Then the caller that has
/// waited longest sends its request. The same happens when the first request takes longer than
/// [`leader_timeout`](CoalesceMiddlewareBuilder::leader_timeout). If the first caller is dropped or runs out of time,
/// the newest caller sends its request, because it has the most time left. All others keep waiting. After
/// three such failures, a waiting caller sends its own request.
///
/// A [`deadline`](crate::RequestBuilderExt::deadline) of a request or a [`Scope`](crate::Scope) also limits
/// the wait. What is left of it limits the request that follows. The call then ends with
/// a [`SteadyError`](crate::SteadyError).
///
/// The `timeout` of a request limits one attempt. A caller that waits for a call with retries waits for all
/// its attempts. But if that call fails or is dropped, the wait and the caller's own request together take no longer
/// than the timeout. They end with a `SteadyError`, too.
///
/// This middleware cannot see a deadline or timeout that is set on a retry inside or on the client. Such
/// a limit starts when the caller sends its own request. After one failure, a call can take up to twice as long, and
/// at most four times. Set a deadline on the request if that is too long.
///
/// It needs a tokio runtime with timers, like a
/// [`RetryMiddleware`](crate::RetryMiddleware#what-it-needs).
pub struct CoalesceMiddleware {
    /// Shared with clones, so that one `replace` reaches them all.
    config: Arc<Current<CoalesceConfig>>,
    flights: Arc<Flights>,
    timers: Timers,
    extensions_warning: WarnOnce,
    order_warning: WarnOnce,
}

impl CoalesceMiddleware {
    /// Creates a builder with the default settings.
    pub fn builder() -> CoalesceMiddlewareBuilder {
        CoalesceMiddlewareBuilder::default()
    }

    fn new(data: CoalesceSettings) -> std::result::Result<Self, ConfigError> {
        let config = CoalesceConfig::new(data)?;
        Ok(Self::with_config(Arc::new(Current::new(config))))
    }

    fn with_config(config: Arc<Current<CoalesceConfig>>) -> Self {
        Self {
            config,
            flights: Arc::default(),
            timers: Timers::default(),
            extensions_warning: WarnOnce::default(),
            order_warning: WarnOnce::default(),
        }
    }

    /// Replaces all settings, for new calls of all clones.
    ///
    /// ```
    /// use reqwest_steady::CoalesceMiddleware;
    ///
    /// let coalesce = CoalesceMiddleware::default();
    /// let mut settings = coalesce.settings();
    /// settings.max_body = 4096;
    /// coalesce.replace(settings)?;
    /// assert_eq!(coalesce.max_body(), 4096);
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a setting is invalid. Then nothing changes.
    pub fn replace(&self, settings: CoalesceSettings) -> std::result::Result<(), ConfigError> {
        self.prepare(settings)?();
        Ok(())
    }

    /// Checks new settings, and returns a function that puts them into effect and cannot fail.
    pub(crate) fn prepare(
        &self,
        settings: CoalesceSettings,
    ) -> std::result::Result<impl FnOnce() + use<'_>, ConfigError> {
        let new = CoalesceConfig::new(settings)?;
        Ok(move || self.config.set(new))
    }

    /// Sends the request, or waits for the response to an identical one.
    // `-> impl Future` and an `async move` block: an `async fn` would hold the request twice. The steps that
    // only a crowd needs are boxed: most callers are alone, and their future stays small.
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn run<'a>(
        &'a self,
        request: Request,
        extensions: &'a mut Extensions,
        mut upstream: impl Upstream + 'a,
    ) -> impl Future<Output = Result<Response>> + Send + 'a {
        async move {
            SteadyError::check(self.timers.check(), request.url())?;
            let config = self.config.get();
            if let Err(reason) = check_request(&request, extensions, &config.ignored) {
                if reason == NotShared::UnknownExtensions {
                    self.extensions_warning.warn(&UNKNOWN_EXTENSIONS);
                }
                return upstream.send(request, extensions).await;
            }
            if extensions.get::<Attempt>().is_some() {
                self.order_warning.warn(&COALESCE_INSIDE_RETRY);
            }

            let options = RequestOptions::of(extensions).map(Arc::as_ref);
            let identity = Identity::of(&request, options, &config.ignored);
            let call = CoalescedCall::start(&config, &request, options);
            let (leader, limit) =
                match (self.flights).join(identity, config.leader_timeout, call.started) {
                    Role::Leader(leader) => (Some(leader), None),
                    Role::Alone => (None, None),
                    Role::Follower(follower) => {
                        let slot = options.and_then(|options| options.report.as_ref());
                        if let Some(slot) = slot {
                            // It can hold the report of an earlier call.
                            slot.clear();
                        }
                        let message = Box::pin(call.follow(follower)).await;
                        let host = host_of(request.url());
                        match message.map_err(|error| call.complete_error(error, host, 0))? {
                            FlightMessage::Response(shared) => {
                                return Ok(copy_for_follower(&shared, slot));
                            }
                            FlightMessage::Lead(leader) => (Some(leader), call.send_limit()),
                            FlightMessage::Alone => (None, call.send_limit()),
                        }
                    }
                };

            // If this call is dropped here, its request ends before `leader` hands over.
            let host = limit.map(|_| host_of(request.url()).to_owned());
            let sending = upstream.send(request, extensions);
            let result = match limit {
                None => sending.await,
                Some(limit) => {
                    let host = host.unwrap_or_default();
                    let result = Box::pin(send_within(limit, sending)).await;
                    result.map_err(|error| call.complete_error(error, &host, 1))
                }
            };
            match leader.and_then(Leader::if_awaited) {
                None => result,
                Some(leader) => Box::pin(call.share(leader, result)).await,
            }
        }
    }
}

impl Default for CoalesceMiddleware {
    fn default() -> Self {
        // A test builds it.
        Self::new(CoalesceSettings::default()).expect("valid defaults")
    }
}

impl Clone for CoalesceMiddleware {
    /// Shares the settings with another client. The two share no requests.
    fn clone(&self) -> Self {
        Self::with_config(self.config.clone())
    }
}
