//! Retries that help a server recover instead of finishing it off: middleware for
//! [`reqwest`](https://docs.rs/reqwest), by way of [`reqwest_middleware`].
//!
//! Retries are **safe**, **spread out** in time, and **bounded** in number: per call, per host, and for calls inside
//! calls.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = wiremock::MockServer::start().await;
//! # let url = server.uri();
//! use reqwest_middleware::ClientBuilder;
//! use reqwest_steady::{IdempotencyKey, RequestBuilderExt, RetryMiddleware, RetryReport};
//!
//! let client = ClientBuilder::new(reqwest::Client::new())
//!     .with(RetryMiddleware::default())
//!     .build();
//!
//! // GET, HEAD, OPTIONS, TRACE, QUERY, PUT and DELETE are safe to repeat. POST and PATCH need a key:
//! let response = client
//!     .post(url)
//!     .idempotency_key(IdempotencyKey::random())
//!     .body("order")
//!     .send()
//!     .await?;
//!
//! let report = RetryReport::of(&response).expect("every response carries one");
//! println!("{} retries, waited {:?}, {}", report.retries(), report.waited(), report.stop_reason());
//! # Ok(()) }
//! ```
//!
//! Every retry passes these stages:
//!
//! | stage | question | to tune it |
//! |---|---|---|
//! | **decide** | may this request be sent again? | [`StatusClass`], [`IdempotencyKey`], [`AutoKey`], [`AttemptView`] |
//! | **schedule** | when? | [`Backoff`], [`Jitter`], the limits of [`RetryMiddlewareBuilder`] |
//! | **admit** | is there room for it now? | [`Budget`], [`Scope`], [`ThrottleMiddleware`] |
//! | **observe** | what happened to it? | [`RetryReport`], [`ReportSlot`], [`Observer`], [`DeadLetterSink`], [`Secrets`], [`Attempt`] |
//!
//! When a call gives up, you get the last response or error unchanged. If this crate itself ends a call, the error is
//! a [`SteadyError`]. [`Effect`] says whether a request that failed may have taken effect.
//!
//! The guide is the module `guide`, in the documentation with all features (`cargo doc --open --all-features`). It has
//! a page for each stage, recipes, and pages about tuning, testing and migration.
//!
//! Two other middlewares work with the retry. [`ThrottleMiddleware`], inside it, finds the rate that a server accepts
//! and queues the rest. [`CoalesceMiddleware`], outside it, makes one request of identical ones.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adapters;
mod admit;
mod clock;
mod coalesce;
mod config;
pub mod dead_letter;
mod decide;
mod entropy;
pub mod fleet;
#[cfg(all(
    feature = "dead-letter-file",
    feature = "metrics",
    feature = "testing",
    feature = "tracing"
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
#[cfg(any(test, all(fuzzing, feature = "testing")))]
#[doc(hidden)]
pub mod properties;
mod request;
mod response;
mod retry;
mod schedule;
#[cfg(feature = "testing")]
pub mod testing;
mod throttle;
mod two_windows;
mod upstream;

pub use admit::{Budget, BudgetBuilder, Deposit, Scope};
pub use coalesce::{CoalesceMiddleware, CoalesceMiddlewareBuilder};
pub use config::ConfigError;
pub use decide::{AttemptView, AutoKey, StatusClass};
pub use outcome::{Effect, ReportSlot, RetryReport, SteadyError, StopReason};
pub use request::{IdempotencyKey, InvalidKeyError, RequestBuilderExt};
pub use retry::{RetryMiddleware, RetryMiddlewareBuilder};
pub use schedule::{Backoff, Jitter};
pub use throttle::{KeyBy, ThrottleMiddleware, ThrottleMiddlewareBuilder};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
