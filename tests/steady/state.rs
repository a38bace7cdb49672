//! `Steady::state`: it shows the truth at that moment, and changes nothing.

mod breaker;
mod hosts;
mod limits;
mod reading;

use std::sync::Arc;

use reqwest::Response;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Result};
use reqwest_steady::observe::{BreakerState, GateView, HostState, PauseSource};
use reqwest_steady::{
    RetryMiddleware, RetryMiddlewareBuilder, Steady, ThrottleMiddleware, ThrottleMiddlewareBuilder,
};
use std::time::Duration;
use tokio::task::JoinHandle;

use crate::support::scripted::Server;

const HOST: &str = "api.example.com";

fn retry() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder().seed(1)
}

/// A call makes one attempt.
fn once() -> RetryMiddlewareBuilder {
    retry().max_retries(0)
}

fn throttle() -> ThrottleMiddlewareBuilder {
    ThrottleMiddleware::builder().seed(1)
}

fn steady(retry: RetryMiddlewareBuilder, throttle: ThrottleMiddlewareBuilder) -> Steady {
    let steady = Steady::builder().retry(retry).throttle(throttle);
    steady.build().unwrap()
}

/// A client that has the retry and the throttle of a `Steady`, and this server.
fn client(server: &Arc<Server>, steady: &Steady) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new())
        .with(steady.retry().clone())
        .with(steady.throttle().clone())
        .with_arc(server.clone())
        .build()
}

/// Gets a path of the host in a task.
fn start(client: &ClientWithMiddleware, path: &str) -> JoinHandle<Result<Response>> {
    tokio::spawn(client.get(format!("http://{HOST}/{path}")).send())
}

async fn status(call: JoinHandle<Result<Response>>) -> u16 {
    call.await.unwrap().unwrap().status().as_u16()
}

#[track_caller]
fn host(steady: &Steady) -> HostState {
    let host = steady.host(HOST).expect("the host is known");
    let hosts = steady.state().hosts;
    assert_eq!(hosts, std::slice::from_ref(&host), "the only host");
    host
}

/// The only gate of the only host.
#[track_caller]
fn gate(steady: &Steady) -> GateView {
    let mut gates = host(steady).gates;
    assert_eq!(gates.len(), 1, "{gates:?}");
    gates.remove(0)
}

/// How long the gate still pauses, and who asked for that.
#[track_caller]
fn pause(steady: &Steady) -> (Duration, PauseSource) {
    match gate(steady).breaker {
        BreakerState::Paused {
            remaining,
            asked_by,
            ..
        } => (remaining, asked_by),
        other => panic!("{other:?}"),
    }
}
