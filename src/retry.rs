//! The retry middleware and its loop.
//!
//! [`RetryMiddleware::run`] is the loop, and [`after_attempt`] below it is what follows a failure. The state of a call
//! is in `call`, its settings in `config` and `read_back`, and what a retry costs in `permit`.

mod builder;
mod call;
mod config;
mod host_states;
mod inner_chain;
mod permit;
mod read_back;
mod replace;

use std::sync::Arc;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::Result;

pub use builder::RetryMiddlewareBuilder;
use call::{Call, Decision, Opening};
use config::{RetryConfig, RetryParts, RetryState};

use crate::config::ConfigError;
use crate::decide::ClassifiedOutcome;
use crate::outcome::SteadyError;
use crate::presets::Preset;
use crate::settings::RetrySettings;
use crate::upstream::{BoxFuture, Upstream};

/// Retries requests where that is safe, spread out and limited.
///
/// Most clients install it together with a [`ThrottleMiddleware`](crate::ThrottleMiddleware), by
/// [`Steady`](crate::Steady). To register it alone, add it to a
/// [`ClientBuilder`](reqwest_middleware::ClientBuilder). Middleware that you add after it sees every attempt.
/// Middleware that you add before it sees the call as a whole.
///
/// When a call gives up, you get the last response or error unchanged. The guide explains what is retried
/// ([decide](crate::guide::decide)), when ([schedule](crate::guide::schedule)) and how often
/// ([admit](crate::guide::admit)).
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
/// # What reqwest repeats
///
/// reqwest and its HTTP stack repeat some requests inside one attempt, which no middleware sees:
///
/// - Requests that an HTTP/2 server refused or did not process before it went away: twice and without a wait, unless
///   the client is built with `.retry(reqwest::retry::never())`.
/// - Requests that were never started on a reused connection: on a new connection.
/// - Redirects.
///
/// # What it needs
///
/// It needs a tokio runtime with timers: `enable_time` or `enable_all` of its builder, or `#[tokio::main]`. Without
/// timers, a call fails with a [`SteadyError`](crate::SteadyError) before anything is sent.
///
/// Each middleware checks this until one call finds timers. If you use it in several runtimes, enable timers in all of
/// them. tokio reports missing timers only by a panic. The middleware catches it, but your panic hook still prints a
/// message. With `panic = "abort"` the process ends.
#[derive(Clone)]
pub struct RetryMiddleware {
    state: Arc<RetryState>,
}

impl Default for RetryMiddleware {
    fn default() -> Self {
        // A test builds it.
        Self::new(RetrySettings::default(), None, RetryParts::default()).expect("valid defaults")
    }
}

impl RetryMiddleware {
    /// Returns a builder with the default settings.
    pub fn builder() -> RetryMiddlewareBuilder {
        RetryMiddlewareBuilder::default()
    }

    fn new(
        data: RetrySettings,
        preset: Option<Preset>,
        parts: RetryParts,
    ) -> std::result::Result<Self, ConfigError> {
        let config = RetryConfig::new(data, preset, &parts)?;
        Ok(Self {
            state: Arc::new(RetryState::new(config, parts)),
        })
    }

    /// Sends a request until a response is final or the call stops.
    ///
    /// 1. The call starts: the request's options, its key, and what it may do.
    /// 2. An attempt is sent, in the call's scope and within its time.
    /// 3. A final response ends the call. Anything else goes to [`after_attempt`].
    // An `async fn` would hold the request twice: 830 instructions a call.
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn run<'a>(
        &'a self,
        mut request: Request,
        extensions: &'a mut Extensions,
        mut upstream: impl Upstream + 'a,
    ) -> impl Future<Output = Result<Response>> + Send + 'a {
        async move {
            let config = self.state.config.get();
            let opening = Opening::read(&config, &mut request, extensions)?;
            SteadyError::check(self.state.timers.check(), request.url())?;
            let mut call = Call::new(
                &self.state,
                &config,
                &request,
                opening.options,
                opening.has_key,
            );
            call.start(opening.outer, &mut request, extensions);
            if !config.limits.launch_spread.is_zero() {
                Box::pin(call.launch_delay()).await;
            }
            loop {
                call.begin_attempt(&mut request, extensions);
                // In a block, so that this future holds no room for the result, which moves into `after_attempt`.
                let next = {
                    let sending = upstream.send(request, extensions);
                    let mut result = match call.is_bounded() {
                        true => call.run(sending).await,
                        false => sending.await,
                    };
                    let outcome = call.end_attempt(&result, extensions);
                    if let Some(stop) = call.final_stop(outcome, &result) {
                        // A final response leaves no dead letter to wait for.
                        let _ = call.finish(stop, call.ended(), &mut result, extensions);
                        return result;
                    }
                    after_attempt(&mut call, outcome, result, extensions)
                };
                match next.await {
                    AfterAttempt::Send(next) => request = next,
                    AfterAttempt::Return(result) => return result,
                }
            }
        }
    }
}

/// What the loop does after an attempt whose response was not final at once.
enum AfterAttempt {
    Send(Request),
    Return(Result<Response>),
}

/// Decides what follows an attempt, waits for the next one, or ends the call.
///
/// Boxed, because most calls end with their first response: unboxed it exceeds three limits of the benchmark
/// `call_cost`.
fn after_attempt<'c>(
    call: &'c mut Call<'_>,
    mut outcome: ClassifiedOutcome,
    mut result: Result<Response>,
    extensions: &'c mut Extensions,
) -> BoxFuture<'c, AfterAttempt> {
    Box::pin(async move {
        let mut verdict = None;
        if call.inspects(outcome, &result) {
            // Boxed, because few responses are inspected.
            let inspected = Box::pin(call.inspect_body(outcome, result)).await;
            (outcome, result, verdict) = inspected;
        }
        let mut decision = call.decide(outcome, verdict, &result).await;
        if call.buffers() && decision.is_final() {
            (decision, result) = Box::pin(call.read_body(decision, verdict, result)).await;
        }
        let stop;
        match decision {
            Decision::Retry(mut retry) => {
                // Boxed, so that a call that ends with this attempt needs less room.
                match Box::pin(call.wait(&mut retry, result, extensions)).await {
                    Ok(()) => match call.next_request(retry, extensions) {
                        Ok(next) => return AfterAttempt::Send(next),
                        Err((unbuilt, error)) => (stop, result) = (unbuilt, Err(error)),
                    },
                    Err(stopped) => (stop, result) = stopped,
                }
            }
            Decision::Stop(reached) => stop = reached,
        }
        if let Some(delivery) = call.finish(stop, call.now(), &mut result, extensions) {
            delivery.await;
        }
        AfterAttempt::Return(result)
    })
}
