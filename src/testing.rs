//! Servers without a network, for tests of your own code.
//!
//! Enable the feature `testing` under `[dev-dependencies]`. The tests of this crate use the same servers.
//!
//! Everything runs in virtual time. Under tokio's paused clock an hour of waiting takes a millisecond, and waits are
//! exact. There are two kinds of server. Both are the last middleware of a client, which responds instead of sending:
//!
//! - [`ScriptedServer`] responds by a script and records every request. Use it to test *one* call: how often it was
//!   sent, with which headers, after which waits.
//!
//!   ```
//!   use std::time::Duration;
//!   use reqwest_steady::RetryMiddleware;
//!   use reqwest_steady::testing::{Reply, ScriptedServer};
//!
//!   # // Your test uses #[tokio::test(start_paused = true)].
//!   # #[tokio::main(flavor = "current_thread", start_paused = true)]
//!   # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!   let server = ScriptedServer::new(|before| match before {
//!       0 => Reply::status(503).header("retry-after", "30"),
//!       _ => Reply::status(200).body("hello"),
//!   });
//!   let client = server.client(RetryMiddleware::default());
//!
//!   let response = client.get("https://api.example.com/").send().await?;
//!   assert_eq!(response.text().await?, "hello");
//!   assert_eq!(server.count(), 2);
//!   assert!(server.gaps()[0] >= Duration::from_secs(30));
//!   # Ok(()) }
//!   ```
//!
//! - [`SimulatedService`] has a latency and [`Rule`]s, and records every request. Use it to test *many* calls, and
//!   their effect on the service. A [`Simulation`] makes the calls, and its [`Outcome`] has the results:
//!
//!   ```
//!   use std::sync::Arc;
//!   use std::time::Duration;
//!   use reqwest_steady::testing::{Limit, Load, SimulatedService, Simulation};
//!   use reqwest_steady::{RetryMiddleware, ThrottleMiddleware};
//!
//!   // 50 requests per 100 ms, and 200 calls at once.
//!   let limit = Limit::window(500.0, Duration::from_millis(100));
//!   let service = SimulatedService::with_latency(Duration::from_millis(2)).rule(limit);
//!   let outcome = Simulation::new(service, Load::AtOnce(200)).seed(1).run(&|seed| {
//!       vec![
//!           Arc::new(RetryMiddleware::builder().seed(seed).build().unwrap()),
//!           Arc::new(ThrottleMiddleware::builder().seed(seed).build().unwrap()),
//!       ]
//!   });
//!   assert_eq!(outcome.succeeded(), 200);
//!   assert!(outcome.requests_per_success() < 1.2);
//!   ```
//!
//! Both apply the `timeout` of a request and fail with reqwest's timeout error. They ignore the timeouts of the client.
//!
//! Both work with any middlewares, including yours. The simulation lab of this crate (`lab/`) uses the second kind.
//!
//! An invalid script, rule or load, such as a status of 99 or a negative rate, panics where it is created. The message
//! names the value.

mod arrivals;
mod concurrency;
mod limit;
mod outcome;
mod reply;
mod rules;
mod scripted;
mod service;
mod simulation;
mod timeout;
mod worker;

pub use arrivals::{Arrival, Arrivals};
pub use concurrency::Concurrency;
pub use limit::{Limit, Steps};
pub use outcome::{Call, Outcome};
pub use reply::Reply;
pub use rules::{Chance, Down, Flaky, Rule};
pub use scripted::{Received, ScriptedServer};
pub use service::{SimulatedService, SimulatedServiceBuilder};
pub use simulation::{Load, Simulation, Stack};
pub use worker::Worker;

use std::sync::Arc;

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware};

/// Normalizes the name of a host, so that it equals the host in the URLs of requests.
#[track_caller]
fn host_name(host: &str) -> String {
    let url = reqwest::Url::parse(&format!("http://{host}/"));
    let parsed = url
        .ok()
        .filter(|url| url.port().is_none() && url.path() == "/");
    let parsed = parsed.as_ref().and_then(reqwest::Url::host_str);
    let Some(name) = parsed else {
        panic!("a host of {host:?}: it must be a name, without port and path");
    };
    name.to_owned()
}

/// Builds a client with these middlewares, the outermost first, and with a server in place of the network.
fn client_of(
    middlewares: impl IntoIterator<Item = Arc<dyn Middleware>>,
    server: Arc<dyn Middleware>,
) -> ClientWithMiddleware {
    // reqwest-middleware needs a client, but the server sends nothing with it.
    let outer = ClientBuilder::new(timeout::NOWHERE.clone());
    let all = middlewares.into_iter().fold(outer, ClientBuilder::with_arc);
    all.with_arc(server).build()
}
