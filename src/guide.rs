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
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! Build one client, with the retry before the throttle, and use it, or its clones, everywhere:
//!
//! ```
//! use std::time::Duration;
//! use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
//! use reqwest_steady::{ConfigError, RetryMiddleware, ThrottleMiddleware};
//!
//! fn client(inner: reqwest::Client) -> Result<ClientWithMiddleware, ConfigError> {
//!     let retry = RetryMiddleware::builder().attempt_timeout(Duration::from_secs(30)).build()?;
//!     let throttle = ThrottleMiddleware::default();
//!     Ok(ClientBuilder::new(inner).with(retry).with(throttle).build())
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = wiremock::MockServer::start().await;
//! # let answer = |status| wiremock::Mock::given(wiremock::matchers::any()).respond_with(wiremock::ResponseTemplate::new(status));
//! # answer(503).up_to_n_times(1).mount(&server).await;
//! # answer(200).mount(&server).await;
//! # let url = server.uri();
//!
//! let client = client(reqwest::Client::new())?;
//! let answer = client.get(url).send().await?; // the server says 503, and then 200
//! assert_eq!(answer.status(), 200);
//! # assert_eq!(server.received_requests().await.unwrap().len(), 2);
//! # Ok(()) }
//! ```
//!
//! That is safe as it stands. Nothing is sent twice that must not be. No call comes back earlier than it was
//! told. An outage adds at most what was saved up in the 10 s before it (a fifth of the successes, and 20), and
//! then 2 requests a second. And no attempt hangs: there is no timeout by default, and without one a server
//! that says nothing is waited for without end.
//!
//! # A well-tuned client
//!
//! The rest of the guide is about making it fit. This is where most end up, with numbers of their own:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware};
//! use reqwest_steady::{Budget, ConfigError, RequestBuilderExt, RetryMiddleware, ThrottleMiddleware};
//!
//! fn middlewares() -> Result<Vec<Arc<dyn Middleware>>, ConfigError> {
//!     // Half of the default, for there are several of these clients.
//!     let budget = Budget::builder().retry_ratio(0.1).min_retries_per_sec(1.0);
//!     let retry = RetryMiddleware::builder()
//!         .budget_per_host(budget)
//!         .attempt_timeout(Duration::from_secs(5)) // a little more than the slowest good answer takes
//!         .deadline(Duration::from_secs(20)) // as long as the caller waits
//!         .build()?;
//!     let throttle = ThrottleMiddleware::builder()
//!         .max_queue_wait(Duration::from_secs(10)) // in line, before it is refused
//!         .build()?;
//!     Ok(vec![Arc::new(retry), Arc::new(throttle)])
//! }
//!
//! fn client() -> Result<ClientWithMiddleware, ConfigError> {
//!     let outer = ClientBuilder::new(reqwest::Client::new());
//!     Ok(middlewares()?.into_iter().fold(outer, ClientBuilder::with_arc).build())
//! }
//!
//! async fn order(client: &ClientWithMiddleware, number: u32) -> reqwest_middleware::Result<reqwest::Response> {
//!     client
//!         .post("https://api.example.com/orders")
//!         .idempotency_key(format!("order-{number}")) // or else a POST is sent once
//!         .body("one teapot")
//!         .send()
//!         .await
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _ = client()?;
//! # use reqwest_steady::testing::{Reply, ScriptedServer};
//! // A server for tests: it hangs, then it has trouble, and then it works.
//! let server = ScriptedServer::new(|before| match before {
//!     0 => Reply::silence(),
//!     1 => Reply::status(503).header("retry-after", "2"),
//!     _ => Reply::status(201),
//! });
//! let client = server.client_behind(middlewares()?);
//! let answer = order(&client, 4711).await?;
//! assert_eq!(answer.status(), 201);
//! assert_eq!(server.count(), 3); // the first was cut off after 5 s
//! # let gaps = server.gaps();
//! # assert!(gaps[0] >= Duration::from_secs(5) && gaps[0] < Duration::from_secs(6), "{gaps:?}");
//! # assert!(gaps[1] >= Duration::from_secs(2));
//! # assert!(server.received().iter().all(|it| it.headers["idempotency-key"] == "order-4711"));
//! # Ok(()) }
//! ```
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
//! 7. [`fleet`][]: one quota and one budget for many processes, by way of Redis.
//! 8. [`testing`][]: your own code against servers without a network, in virtual time.
//! 9. [`migration`][]: moving from reqwest-retry.
//!
//! # Good to know
//!
//! - Middleware that is added after `RetryMiddleware` sees every attempt, with its number in
//!   [`Attempt::of`](crate::observe::Attempt::of); middleware that is added before it sees the call as a whole.
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

// The examples on some pages need more than this crate and its dev-dependencies: `proof/src/lib.rs` runs them.
#[cfg_attr(not(doctest), doc = include_str!("../docs/guide/fleet.md"))]
pub mod fleet {}

#[doc = include_str!("../docs/guide/testing.md")]
pub mod testing {}

#[cfg_attr(not(doctest), doc = include_str!("../docs/guide/migration.md"))]
pub mod migration {}
