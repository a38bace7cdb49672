//! Servers without a network, for tests of your own code.
//!
//! Behind the feature `testing`, which belongs under `[dev-dependencies]`. What this crate says about
//! itself is shown with the same parts.
//!
//! Everything runs in virtual time: under tokio's paused clock an hour of waiting takes a millisecond, and
//! waits come out exact. There are two kinds of server, and both are the last middleware of a client, which
//! answers instead of sending:
//!
//! - [`ScriptedServer`] answers by a script, and remembers every request as it arrived. It is for what
//!   *one* call does: how often it was sent, with which headers, after which waits.
//!
//!   ```
//!   use std::time::Duration;
//!   use reqwest_steady::RetryMiddleware;
//!   use reqwest_steady::testing::{Reply, ScriptedServer};
//!
//!   # // A test of yours says #[tokio::test(start_paused = true)].
//!   # #[tokio::main(flavor = "current_thread", start_paused = true)]
//!   # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!   let server = ScriptedServer::new(|before| match before {
//!       0 => Reply::status(503).header("retry-after", "30"),
//!       _ => Reply::status(200).body("hello"),
//!   });
//!   let client = server.client(RetryMiddleware::default());
//!
//!   let answer = client.get("https://api.example.com/").send().await?;
//!   assert_eq!(answer.text().await?, "hello");
//!   assert_eq!(server.count(), 2);
//!   assert!(server.gaps()[0] >= Duration::from_secs(30));
//!   # Ok(()) }
//!   ```
//!
//! - [`SimulatedService`] is some way off, takes as much as its [`Rule`]s let it, and counts. It is for
//!   what becomes of *many* calls, and of the service. A [`Simulation`] makes the calls, and its
//!   [`Outcome`] tells how they ended:
//!
//!   ```
//!   use std::sync::Arc;
//!   use std::time::Duration;
//!   use reqwest_steady::testing::{Limit, Load, SimulatedService, Simulation};
//!   use reqwest_steady::{RetryMiddleware, ThrottleMiddleware};
//!
//!   // 50 requests per 100 ms, and 200 come at once.
//!   let limit = Limit::window(500.0, Duration::from_millis(100));
//!   let service = SimulatedService::away(Duration::from_millis(2)).rule(limit);
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
//! Both take any stack of middlewares, yours included. `lab/` is built from the second kind, and
//! draws what comes of it.
//!
//! A script, a rule or a load that makes no sense, such as a status of 99 or a negative rate, panics where
//! it is made, and names the value.

mod arrivals;
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

/// The name of a host as it is in the URLs of requests.
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

/// A client with these middlewares, the outermost first, and with a server in place of the network.
fn client_of(
    middlewares: impl IntoIterator<Item = Arc<dyn Middleware>>,
    server: Arc<dyn Middleware>,
) -> ClientWithMiddleware {
    // Nothing is ever sent with it, but reqwest-middleware wants one.
    let outer = ClientBuilder::new(timeout::NOWHERE.clone());
    let all = middlewares.into_iter().fold(outer, ClientBuilder::with_arc);
    all.with_arc(server).build()
}
