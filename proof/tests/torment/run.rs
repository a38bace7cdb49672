//! One whole run, and its resources at each step.

use std::sync::Arc;

use reqwest::redirect::Policy;
use reqwest_middleware::Middleware;
use reqwest_steady::RetryMiddlewareBuilder;

use crate::client::{Caller, Calls, Names, callers, callers_with, persistent};
use crate::faults::Weather;
use crate::process::{Account, ServerProcess};
use crate::resources::Held;

const ROUNDS: u32 = 10;

/// The results of a run.
pub(crate) struct Outcome {
    pub(crate) calls: Arc<Calls>,
    pub(crate) account: Account,
    /// The number of refused connections.
    pub(crate) refused: u64,
    /// The resources before the client is built.
    pub(crate) before: Held,
    /// After each round, when the server has closed idle connections. The client still exists.
    pub(crate) between: Vec<Held>,
    /// After the client is dropped.
    pub(crate) after: Held,
}

/// Builds clients with only a retry.
pub(crate) fn alone(names: &Arc<Names>, retry: RetryMiddlewareBuilder) -> [Caller; 4] {
    let retry: Arc<dyn Middleware> = Arc::new(retry.build().unwrap());
    callers(names, &[retry])
}

/// Builds the same with clients that follow no redirects.
pub(crate) fn without_redirects(names: &Arc<Names>, retry: RetryMiddlewareBuilder) -> [Caller; 4] {
    let retry = retry.client_follows_redirects(false);
    let retry: Arc<dyn Middleware> = Arc::new(retry.build().unwrap());
    callers_with(names, &[retry], Policy::none)
}

/// Makes this many calls with faults, in ten rounds.
pub(crate) async fn run(
    server: &mut ServerProcess,
    seed: u64,
    count: u32,
    keyed: fn(u32) -> bool,
    build: impl Fn(&Arc<Names>) -> Vec<Caller>,
) -> Outcome {
    warm_up(server).await;
    server.set_weather(Weather::Foul);
    let names = Names::new(server.addresses, Weather::Foul, seed);
    let mut calls = Calls::new(count, keyed);
    let mut between = Vec::with_capacity(ROUNDS as usize);
    let before = Held::now();

    calls.set_callers(build(&names));
    let calls = Arc::new(calls);
    for round in 0..ROUNDS {
        let begin = |round: u32| (u64::from(count) * u64::from(round) / u64::from(ROUNDS)) as u32;
        calls.run(begin(round)..begin(round + 1)).await;
        server.hang_up();
        between.push(Held::when_settled(before).await);
    }
    let mut calls = Arc::into_inner(calls).unwrap();
    calls.set_callers(Vec::new());
    let after = Held::when_settled(before).await;
    Outcome {
        calls: Arc::new(calls),
        account: server.close_the_ledger(),
        refused: names.refused(),
        before,
        between,
        after,
    }
}

/// Makes all allocations that happen once per process, so that they do not look like a leak.
async fn warm_up(server: &mut ServerProcess) {
    server.set_weather(Weather::Calm);
    let names = Names::new(server.addresses, Weather::Calm, 0);
    let before = Held::now();
    let mut calls = Calls::new(1000, |_| true);
    calls.set_callers(alone(&names, persistent()).into());
    let calls = Arc::new(calls);
    calls.run(0..1000).await;
    drop(calls);
    Held::when_settled(before).await;
    server.close_the_ledger();
}
