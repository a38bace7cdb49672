//! The retry middleware and its loop.

mod builder;
mod call;
mod settings;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

pub use builder::RetryMiddlewareBuilder;
use call::{Call, Turn};
use settings::Settings;

use crate::admit::with_passage;
use crate::outcome::{Attempt, FailedReport};
use crate::request::RequestOptions;
use crate::throttle::{Passed, QueuedBefore};

/// Sends a request again where that is safe, spread out in time, and bounded in number.
///
/// Register it on a [`ClientBuilder`](reqwest_middleware::ClientBuilder). Middleware that is added
/// after it sees every attempt, middleware that is added before it sees the call as a whole.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::RetryMiddleware;
/// use wiremock::matchers::method;
/// use wiremock::{Mock, MockServer, ResponseTemplate};
///
/// let server = MockServer::start().await;
/// let once = Mock::given(method("GET")).respond_with(ResponseTemplate::new(503));
/// once.up_to_n_times(1).mount(&server).await;
/// let then = Mock::given(method("GET")).respond_with(ResponseTemplate::new(200));
/// then.mount(&server).await;
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::default())
///     .build();
/// let response = client.get(server.uri()).send().await?;
/// assert_eq!(response.status(), 200);
/// # Ok(()) }
/// ```
///
/// # What is repeated beneath it
///
/// No middleware sees what reqwest and its HTTP stack repeat by themselves: reqwest resends what an
/// HTTP/2 server refused or was going away from, twice and without a wait, unless the client is
/// built with `.retry(reqwest::retry::never())`; a request that was never started on a reused
/// connection is resent on a new one; and redirects are followed inside one attempt.
///
/// # What it needs
///
/// A tokio runtime with timers: `enable_time` or `enable_all` of its builder, or `#[tokio::main]`. Without
/// them a call fails with [`ConfigError`](crate::ConfigError) before anything is sent.
/// Each middleware checks this until one call finds timers. If you use it in several runtimes, enable timers in all of
/// them. tokio reports missing timers only by a panic. The middleware catches it, but your panic hook still prints a
/// message. With `panic = "abort"` the process ends.
#[derive(Clone, Debug, Default)]
pub struct RetryMiddleware {
    settings: Arc<Settings>,
}

impl RetryMiddleware {
    /// Starts from the defaults.
    pub fn builder() -> RetryMiddlewareBuilder {
        RetryMiddlewareBuilder::default()
    }
}

impl Middleware for RetryMiddleware {
    // What `#[async_trait]` would write, but for one thing: the loop uses the request where the
    // future holds it, instead of moving it to a second place there. That, and a box for whatever is
    // seldom needed, keeps the future of a call small. `benches/call_cost.rs` counts what it costs.
    fn handle<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        mut request: Request,
        extensions: &'life1 mut Extensions,
        next: Next<'life2>,
    ) -> Pin<Box<dyn Future<Output = Result<Response>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            self.settings.timers.check().map_err(Error::middleware)?;
            with_passage(|outer| {
                if outer.is_of(extensions, request.url()) {
                    outer.hide();
                }
            });
            let (mut own, mut queued) = (None, Duration::ZERO);
            if !extensions.is_empty() {
                queued = QueuedBefore::of(extensions);
                own = match RequestOptions::of(extensions) {
                    // Most requests carry nothing else.
                    own if extensions.len() == usize::from(own.is_some()) => own,
                    _ => {
                        forget_earlier_call(extensions);
                        RequestOptions::of(extensions)
                    }
                };
                if let Some(slot) = own.and_then(|own| own.report.as_ref()) {
                    slot.clear();
                }
                if let Some(own) = own {
                    own.check(&request).map_err(Error::middleware)?;
                }
            }
            let has_key = (self.settings.keys)
                .settle(&mut request, own.map(Arc::as_ref))
                .map_err(Error::middleware)?;
            let mut call = Call::open(&self.settings, &request, extensions, own, has_key);
            if !queued.is_zero() {
                call.has_queued(queued);
            }
            if call.is_followed() {
                call.follow(&request);
            }
            if call.is_spread() {
                Box::pin(call.launch()).await;
            }
            loop {
                call.prepare(&mut request, extensions);
                let answer = next.clone().run(request, extensions);
                let turn = {
                    let mut result = call.run(answer).await;
                    call.close_passage(extensions);
                    let verdict = call.judge(&result);
                    if verdict.is_success() && !call.wants_body() {
                        call.succeed(verdict, &mut result, extensions);
                        return result;
                    }
                    // The result goes with it, and so the future of the loop needs no room for one.
                    call.go_on(verdict, result, extensions)
                };
                match turn.await {
                    Turn::Again(again) => request = again,
                    Turn::Over(result) => return result,
                }
            }
        })
    }
}

/// Another call may have run with these extensions before: a middleware outside that asks twice.
fn forget_earlier_call(extensions: &mut Extensions) {
    extensions.remove::<Attempt>();
    extensions.remove::<Passed>();
    extensions.remove::<FailedReport>();
}
