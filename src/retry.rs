//! The retry middleware and its loop.

mod answer;
mod builder;
mod call;

use std::sync::Arc;

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use builder::Settings;
pub use builder::{ConfigError, RetryMiddlewareBuilder};
use call::Call;

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

#[async_trait]
impl Middleware for RetryMiddleware {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let (mut call, mut request) =
            Call::open(&self.settings, request, extensions).map_err(Error::middleware)?;
        loop {
            let outcome = call.attempt(request, extensions, &next).await;
            let retry = match call.next_step(outcome) {
                Ok(retry) => retry,
                Err(end) => return call.finish(end),
            };
            // In a box: it is seldom needed, and would make the future of every call larger.
            request = Box::pin(call.wait(retry, extensions)).await;
        }
    }
}
