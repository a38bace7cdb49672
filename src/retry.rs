//! The retry middleware and its loop.

mod builder;
mod call;
mod inner;
mod permit;
mod settings;

use std::sync::Arc;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Result};

pub use builder::RetryMiddlewareBuilder;
use call::{Call, Turn};
use settings::Settings;

use crate::handoff::Handoff;
use crate::outcome::{Attempt, FailedReport};
use crate::request::RequestOptions;
use crate::upstream::Upstream;

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

impl RetryMiddleware {
    /// Sends the request through `upstream`.
    // An `async fn` would hold the request twice: 830 instructions a call.
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn run<'a>(
        &'a self,
        mut request: Request,
        extensions: &'a mut Extensions,
        mut upstream: impl Upstream + 'a,
    ) -> impl Future<Output = Result<Response>> + Send + 'a {
        async move {
            self.settings.timers.check().map_err(Error::middleware)?;
            let (mut own, mut outer) = (None, None);
            if !extensions.is_empty() {
                outer = Handoff::take_outer(extensions);
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
                .apply(&mut request, own.map(Arc::as_ref))
                .map_err(Error::middleware)?;
            let mut call = Call::open(&self.settings, &request, own, has_key);
            if let Some((outer, terms)) = outer {
                call.nest_in(outer, terms);
            }
            if call.is_followed() {
                call.follow(&request);
            }
            if call.is_spread() {
                Box::pin(call.launch()).await;
            }
            loop {
                call.prepare(&mut request, extensions);
                let answer = upstream.send(request, extensions);
                let turn = {
                    let mut result = call.run(answer).await;
                    call.end_attempt(extensions);
                    let classified = call.classify(&result);
                    if classified.is_success() && !call.wants_body() {
                        call.succeed(classified, &mut result, extensions);
                        return result;
                    }
                    // The result goes with it, and so the future of the loop needs no room for one.
                    call.go_on(classified, result, extensions)
                };
                match turn.await {
                    Turn::Again(again) => request = again,
                    Turn::Over(result) => return result,
                }
            }
        }
    }
}

/// Another call may have run with these extensions before: a middleware outside that asks twice.
fn forget_earlier_call(extensions: &mut Extensions) {
    extensions.remove::<Attempt>();
    extensions.remove::<FailedReport>();
}
