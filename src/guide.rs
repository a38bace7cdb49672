//! The guide: from an empty project to a well-tuned client.
//!
//! Add these dependencies:
//!
//! ```sh
//! cargo add reqwest-steady reqwest-middleware reqwest
//! cargo add tokio --features macros,rt-multi-thread
//! ```
//!
//! Your own dependency on reqwest chooses the TLS library.
//!
//! Build one client, and use it or its clones everywhere:
//!
//! ```
//! use std::time::Duration;
//! use reqwest_middleware::ClientBuilder;
//! use reqwest_steady::{ClientBuilderExt, Steady};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = wiremock::MockServer::start().await;
//! # let respond = |status| {
//! #     let response = wiremock::ResponseTemplate::new(status);
//! #     wiremock::Mock::given(wiremock::matchers::any()).respond_with(response)
//! # };
//! # respond(503).up_to_n_times(1).mount(&server).await;
//! # respond(200).mount(&server).await;
//! # let url = server.uri();
//! let steady = Steady::builder()
//!     .attempt_timeout(Duration::from_secs(10))
//!     .deadline(Duration::from_secs(60))
//!     .build()?;
//! let client = ClientBuilder::new(reqwest::Client::new()).with_steady(steady).build();
//!
//! let response = client.get(url).send().await?; // this server sends 503, then 200
//! assert_eq!(response.status(), 200);
//! # assert_eq!(server.received_requests().await.unwrap().len(), 2);
//! # Ok(()) }
//! ```
//!
//! Set both times. Without a timeout, a silent server blocks the call forever. The rest
//! is safe by default:
//!
//! - **Nothing happens twice.** `POST` and `PATCH` are retried only with an idempotency
//!   key.
//! - **`Retry-After` is followed.** No call retries earlier than the server asks.
//! - **Exponential backoff with full jitter** spreads the retries.
//! - **A retry budget** limits the retries to each host, so that they cannot keep a
//!   server down.
//! - **Rate limits are learned.** If a server refuses requests, the others wait in a
//!   queue.
//! - **A circuit breaker** tests a server that is down with one request at a time.
//!
//! Here 500 calls start while a service is down for 3 s. With reqwest-retry, half of the
//! calls give up. With this client, they wait, and all of them succeed:
//!
//! <div class="steady-herd"><style>.steady-herd svg { max-width: 34rem; width: 100%; height: auto; }</style>
#![doc = include_str!("../docs/pictures/herd.svg")]
//! </div>
//!
//! # Settings for your service
//!
//! `Steady` takes the builders of its middlewares. Most clients end up like this one,
//! with other numbers:
//!
//! ```
//! use std::time::Duration;
//! use reqwest_middleware::ClientWithMiddleware;
//! use reqwest_steady::{Budget, ConfigError, RequestBuilderExt};
//! use reqwest_steady::{RetryMiddleware, Steady, ThrottleMiddleware};
//!
//! fn steady() -> Result<Steady, ConfigError> {
//!     // Half of the default, because there are several of these clients:
//!     let budget = Budget::builder().retry_ratio(0.1).min_retries_per_sec(1.0);
//!     Steady::builder()
//!         .attempt_timeout(Duration::from_secs(5)) // more than the slowest response
//!         .deadline(Duration::from_secs(20)) // as long as the caller waits
//!         .retry(RetryMiddleware::builder().budget_per_host(budget))
//!         .throttle(ThrottleMiddleware::builder().max_queue_wait(Duration::from_secs(10)))
//!         .build()
//! }
//!
//! async fn order(
//!     client: &ClientWithMiddleware,
//!     number: u32,
//! ) -> reqwest_middleware::Result<reqwest::Response> {
//!     client
//!         .post("https://api.example.com/orders")
//!         .idempotency_key(format!("order-{number}")) // without a key, a POST is sent once
//!         .body("one teapot")
//!         .send()
//!         .await
//! }
//! # use reqwest_middleware::ClientBuilder;
//! # use reqwest_steady::ClientBuilderExt;
//! # use reqwest_steady::testing::{Reply, ScriptedServer};
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = ScriptedServer::new(|before| match before {
//! #     0 => Reply::silence(),
//! #     1 => Reply::status(503).header("retry-after", "2"),
//! #     _ => Reply::status(201),
//! # });
//! # let client = ClientBuilder::new(reqwest::Client::new()).with_steady(steady()?);
//! # let client = client.with_arc(server.clone()).build();
//! # let response = order(&client, 4711).await?;
//! # assert_eq!(response.status(), 201);
//! # assert_eq!(server.count(), 3); // the first was cut off after 5 s
//! # let gaps = server.gaps();
//! # let seconds = Duration::from_secs;
//! # assert!(gaps[0] >= seconds(5) && gaps[0] < seconds(6), "{gaps:?}");
//! # assert!(gaps[1] >= Duration::from_secs(2));
//! # let received = server.received();
//! # let mut keys = received.iter().map(|it| &it.headers["idempotency-key"]);
//! # assert!(keys.all(|key| key == "order-4711"));
//! # Ok(()) }
//! ```
//!
//! # The pages
//!
//! | page | what it explains |
//! |---|---|
//! | [`decide`] | which requests are retried, and idempotency keys |
//! | [`schedule`] | exponential backoff, `Retry-After`, timeouts and deadlines, which runtimes work |
//! | [`admit`] | retry budget, rate limits, circuit breaker, backpressure |
//! | [`observe`] | reports, errors, logs, metrics, dead letters |
//! | [`settings`] | files, environment variables, SDKs, and settings that change while a client runs |
//! | [`presets`] | the errors of Stripe, OpenAI, Anthropic, GitHub, S3 and Kubernetes, by name |
//! | [`recipes`] | payments, object stores, quotas per hour, LLM APIs, control planes, batch jobs |
//! | [`tuning`] | which number to look at, and which setting changes it |
//! | [`fleet`] | rate limits and retry budgets that many processes share through Redis |
//! | [`testing`] | your own code against servers without a network, in virtual time |
//! | [`migration`] | the move from reqwest-retry |
//!
//! Each block of code runs as a test, most of them in virtual time against the servers of
//! [`testing`](crate::testing). Test code that you do not need is hidden.
//!
//! # Good to know
//!
//! - Middleware that you add after `with_steady` sees every attempt.
//!   [`Attempt::of`](crate::observe::Attempt::of) has the attempt number. Middleware that
//!   you add before it sees the call as a whole.
//! - reqwest itself repeats requests that an HTTP/2 server refused, up to twice and
//!   without a wait. No middleware sees that.
//!   `reqwest::ClientBuilder::retry(reqwest::retry::never())` turns it off.
//! - Settings of a single request are stored in its builder. So call `send` on the
//!   builder: `build` keeps only the key.
//! - If a response is not returned, its connection can be used again. The client reads
//!   the rest of the body while the retry waits, up to a limit.

// Without these features, some links lead to items that do not exist.
#![cfg_attr(
    not(all(
        feature = "dead-letter-file",
        feature = "file",
        feature = "metrics",
        feature = "multipart",
        feature = "redis",
        feature = "serde",
        feature = "testing",
        feature = "tracing"
    )),
    allow(rustdoc::broken_intra_doc_links)
)]

/// A page of the guide. Here its links to other pages lead to modules; in the repository, to files.
///
/// The first definition of a link counts. Each page ends with those for the repository.
macro_rules! page {
    ($file:literal) => {
        concat!(
            "[guide]: crate::guide\n",
            "[decide]: crate::guide::decide\n",
            "[keys]: crate::guide::decide#idempotency-keys\n",
            "[schedule]: crate::guide::schedule\n",
            "[admit]: crate::guide::admit\n",
            "[rate-limits]: crate::guide::admit#rate-limits\n",
            "[observe]: crate::guide::observe\n",
            "[dead-letters]: crate::guide::observe#dead-letters\n",
            "[settings]: crate::guide::settings\n",
            "[try-settings]: crate::guide::settings#try-them-without-a-server\n",
            "[presets]: crate::guide::presets\n",
            "[recipes]: crate::guide::recipes\n",
            "[object-stores]: crate::guide::recipes#object-stores\n",
            "[dead-letter-file]: crate::guide::recipes#batch-jobs-with-a-dead-letter-file\n",
            "[tuning]: crate::guide::tuning\n",
            "[budget-size]: crate::guide::tuning#retry-budget\n",
            "[fleet-size]: crate::guide::tuning#retry-budget-for-a-fleet\n",
            "[fleet]: crate::guide::fleet\n",
            "[testing]: crate::guide::testing\n",
            "[migration]: crate::guide::migration\n",
            "\n",
            include_str!(concat!("../docs/guide/", $file)),
        )
    };
}

#[doc = page!("decide.md")]
pub mod decide {}

#[doc = page!("schedule.md")]
pub mod schedule {}

#[doc = page!("admit.md")]
pub mod admit {}

#[doc = page!("observe.md")]
pub mod observe {}

#[doc = page!("presets.md")]
pub mod presets {}

#[doc = page!("recipes.md")]
pub mod recipes {}

#[doc = page!("settings.md")]
pub mod settings {}

#[doc = page!("tuning.md")]
pub mod tuning {}

// The examples on some pages need more than this crate and its dev-dependencies: `proof/src/lib.rs` runs them.
#[cfg_attr(not(doctest), doc = page!("fleet.md"))]
pub mod fleet {}

#[doc = page!("testing.md")]
pub mod testing {}

#[cfg_attr(not(doctest), doc = page!("migration.md"))]
pub mod migration {}
