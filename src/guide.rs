//! The guide: from nothing to a well-tuned client in ten minutes.
//!
//! Every block of code in it runs as a test, most of them against the servers without a network of
//! [`testing`](crate::testing) and in virtual time. Where a block says what happens, it has happened.
//!
//! # The first minute
//!
//! ```toml
//! [dependencies]
//! reqwest = { version = "0.13.5", default-features = false, features = ["rustls"] }
//! reqwest-middleware = "0.5"
//! reqwest-steady = "0.1"
//! ```
//!
//! Build one client, with the retry before the throttle, and use it, or its clones, everywhere:
//!
//! ```
//! use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
//! use reqwest_steady::{RetryMiddleware, ThrottleMiddleware};
//!
//! fn client(inner: reqwest::Client) -> ClientWithMiddleware {
//!     ClientBuilder::new(inner)
//!         .with(RetryMiddleware::default())
//!         .with(ThrottleMiddleware::default())
//!         .build()
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = wiremock::MockServer::start().await;
//! # let answer = |status| wiremock::Mock::given(wiremock::matchers::any()).respond_with(wiremock::ResponseTemplate::new(status));
//! # answer(503).up_to_n_times(1).mount(&server).await;
//! # answer(200).mount(&server).await;
//! # let url = server.uri();
//!
//! let client = client(reqwest::Client::new());
//! let answer = client.get(url).send().await?; // the server says 503, and then 200
//! assert_eq!(answer.status(), 200);
//! # assert_eq!(server.received_requests().await.unwrap().len(), 2);
//! # Ok(()) }
//! ```
//!
//! That is safe as it stands: nothing is sent twice that must not be, no server is asked earlier than it
//! wants, and an outage adds two requests a second and no more. The rest of the guide is about making it
//! fit.
//!
//! # In this order
//!
//! The four questions that every retry has to answer:
//!
//! 1. [`decide`][]: may this be sent again at all?
//! 2. [`schedule`][]: when?
//! 3. [`admit`][]: is there room for it now?
//! 4. [`observe`][]: who gets to know?
//!
//! And then:
//!
//! 5. [`recipes`][]: payments, object stores, quotas by the hour, language models, control planes, batch
//!    jobs. Code to paste.
//! 6. [`tuning`][]: what to look at, which knob moves it, and how to size a budget for a fleet.
//! 7. [`testing`][]: your own code against servers without a network, in virtual time.
//! 8. [`migration`][]: moving from reqwest-retry.
//!
//! # Good to know
//!
//! - Middleware that is added after `RetryMiddleware` sees every attempt, with its number in
//!   [`Attempt::of`](crate::Attempt::of); middleware that is added before it sees the call as a whole.
//! - No middleware sees what reqwest repeats by itself: requests that an HTTP/2 server refused are resent
//!   up to twice, without a wait. `reqwest::ClientBuilder::retry(reqwest::retry::never())` turns that off.
//! - Settings for one request travel in the builder's extensions: `send` it, for `build` leaves them
//!   behind.
//! - The connection of an answer that is not returned is used again: its body is read, within bounds, while
//!   the retry waits.

#[doc = include_str!("../docs/guide/decide.md")]
pub mod decide {}

#[doc = include_str!("../docs/guide/schedule.md")]
pub mod schedule {}

#[doc = include_str!("../docs/guide/admit.md")]
pub mod admit {}

#[doc = include_str!("../docs/guide/observe.md")]
pub mod observe {}

#[doc = include_str!("../docs/guide/recipes.md")]
pub mod recipes {}

#[doc = include_str!("../docs/guide/tuning.md")]
pub mod tuning {}

#[doc = include_str!("../docs/guide/testing.md")]
pub mod testing {}

#[doc = include_str!("../docs/guide/migration.md")]
pub mod migration {}
