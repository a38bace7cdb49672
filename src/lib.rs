//! Retries for [`reqwest`](https://docs.rs/reqwest) that help a server recover: safe to repeat, spread out in time,
//! limited in number.
//!
//! One call installs retry and throttle in the right order, as [reqwest-middleware](https://docs.rs/reqwest-middleware):
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = wiremock::MockServer::start().await;
//! # let url = server.uri();
//! use std::time::Duration;
//! use reqwest_middleware::ClientBuilder;
//! use reqwest_steady::{ClientBuilderExt, IdempotencyKey, RequestBuilderExt, RetryReport, Steady};
//!
//! let steady = Steady::builder()
//!     .attempt_timeout(Duration::from_secs(10)) // a silent server would block the call forever
//!     .deadline(Duration::from_secs(60)) // for all attempts together
//!     .build()?;
//! let client = ClientBuilder::new(reqwest::Client::new()).with_steady(steady).build();
//!
//! // GET, HEAD, OPTIONS, TRACE, QUERY, PUT and DELETE are retried. POST and PATCH need a key.
//! let response = client
//!     .post(url)
//!     .idempotency_key(IdempotencyKey::random())
//!     .body("one teapot")
//!     .send()
//!     .await?;
//!
//! let report = RetryReport::of(&response).expect("every response carries one");
//! println!("{report}"); // 3 attempts in 10.4 s: 503, timeout, 200
//! # Ok(()) }
//! ```
//!
//! # Where to start
//!
//! | you want to | read |
//! |---|---|
//! | install it with the right order and time limits | [`Steady`] |
//! | change what is retried, when and how often | [`RetryMiddlewareBuilder`] |
//! | respect rate limits, limit requests in flight | [`ThrottleMiddlewareBuilder`] |
//! | change settings for one request | [`RequestBuilderExt`] |
//! | know whether a failed request took effect | [`Effect`], [`ReportSlot`] |
//! | ask whether it was a timeout, which host, how many attempts | [`SteadyError`], [`RetryReport`] |
//! | go on with a download that broke off | [`download`] |
//! | read settings from a file, or change them while the client runs | [`settings`] |
//! | see each circuit breaker, limit and queue as it is now | [`Steady::state`] |
//! | read the log and the metrics | [observe](guide::observe) |
//! | know the errors of Stripe, OpenAI, Anthropic, GitHub, S3 or Kubernetes | [`Preset`] |
//! | copy settings for payments, object stores, LLM APIs, batch jobs | [recipes](guide::recipes) |
//! | move from reqwest-retry | [migration](guide::migration) |
//! | test your own client | [testing](guide::testing) |
//!
//! # How it works
//!
//! Every retry passes three stages, and everything is observed. The [guide] has a page for each.
//!
//! | stage | question | main types |
//! |---|---|---|
//! | [decide](guide::decide) | May this request be sent again? | [`StatusClass`], [`IdempotencyKey`], [`AutoKey`] |
//! | [schedule](guide::schedule) | When? | [`Backoff`], [`Jitter`], time limits |
//! | [admit](guide::admit) | Is there capacity for it now? | [`Budget`], [`Scope`], [`ThrottleMiddleware`] |
//! | [observe](guide::observe) | What happened? | [`RetryReport`], [`observe::Observer`], [`dead_letter::DeadLetter`] |
//!
//! When a call gives up, you get the last response or error unchanged. If this crate itself ends a call, the error is
//! a [`SteadyError`].
//!
//! # Runtime
//!
//! It needs tokio with timers (`#[tokio::main]`, or a runtime with `enable_time` or `enable_all`). Without timers, every
//! call fails before anything is sent. tokio prints a panic message first, and then the error says what to do.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adapters;
mod admit;
mod clock;
mod coalesce;
mod config;
pub mod dead_letter;
mod decide;
pub mod download;
mod entropy;
pub mod fleet;
// Its examples run with these features. The pages are in the documentation with any features, so that links work.
#[cfg(any(
    all(doc, not(doctest)),
    all(
        feature = "dead-letter-file",
        feature = "file",
        feature = "metrics",
        feature = "multipart",
        feature = "serde",
        feature = "testing",
        feature = "tracing"
    )
))]
pub mod guide;
mod handoff;
mod hashed;
mod host;
mod lock;
mod log;
pub mod observe;
mod outcome;
// With `testing`, because `fuzzing` is also set when a crate that depends on this one is fuzzed.
mod presets;
#[cfg(any(test, all(fuzzing, feature = "testing")))]
#[doc(hidden)]
pub mod properties;
mod request;
mod response;
mod retry;
mod schedule;
pub mod settings;
mod steady;
#[cfg(feature = "testing")]
pub mod testing;
mod throttle;
mod two_windows;
mod upstream;

pub use admit::{Budget, BudgetBuilder, Deposit, Scope};
pub use coalesce::{CoalesceMiddleware, CoalesceMiddlewareBuilder};
pub use config::ConfigError;
pub use decide::{AttemptView, AutoKey, BodyStart, BodyVerdict, Inspect, StatusClass};
pub use outcome::{Effect, ReportSlot, RetryReport, SteadyError, StopReason};
pub use presets::Preset;
pub use request::{IdempotencyKey, InvalidKeyError, RequestBuilderExt};
pub use retry::{RetryMiddleware, RetryMiddlewareBuilder};
pub use schedule::{Backoff, Jitter};
pub use settings::SteadySettings;
#[cfg(feature = "serde")]
pub use steady::SettingsError;
pub use steady::{ClientBuilderExt, Steady, SteadyBuilder};
pub use throttle::{KeyBy, ThrottleMiddleware, ThrottleMiddlewareBuilder};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
