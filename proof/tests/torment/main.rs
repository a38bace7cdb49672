//! Payments over real sockets, to a server with random faults for each connection and request. The server keeps a ledger
//! of its effects.
//!
//! `cargo test -p proof --test torment -- --nocapture` prints the results. `STEADY_TORMENT_CALLS=100000` makes it the long
//! run. `STEADY_TORMENT_SEED` changes the faults.

#![cfg(target_os = "linux")] // reads /proc

mod client;
mod faults;
mod frames;
mod front;
mod given_up;
mod http1;
mod http2;
mod ledger;
mod process;
mod resources;
mod run;
mod server;
mod short_lived;
mod table;

use std::sync::{Mutex, MutexGuard, PoisonError};

use client::persistent;
use faults::{HTTP1, HTTP2, ON_ACCEPT};
use front::{CONNECT, TLS};
use process::ServerProcess;
use run::{Outcome, alone, run, without_redirects};
use table::{Table, Tally};

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(value) => value.parse().ok().expect(name),
        Err(_) => default,
    }
}

fn call_count() -> u32 {
    setting("STEADY_TORMENT_CALLS", 3000)
}

fn seed() -> u64 {
    setting(process::SEED, 1)
}

/// Allows one test at a time, so that all resources of the process belong to it.
fn alone_in_process() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

#[test]
#[ignore = "the server, which the other tests start as a process"]
fn the_server() {
    if let Ok(control) = std::env::var(process::CONTROL) {
        block_on(server::run(control.parse().unwrap(), seed())).unwrap();
    }
}

#[test]
fn payments_with_a_key_have_their_effect_once_and_none_is_lost() {
    let _turn = alone_in_process();
    let mut server = ServerProcess::start("the_server", seed());
    let build = |names: &_| alone(names, persistent()).into();
    let outcome = block_on(run(&mut server, seed(), call_count(), |_| true, build));
    println!("{}", Table("with a key", &outcome));

    let tally = Tally::of(&outcome);
    let calls = u64::from(call_count());
    assert_eq!(tally.by_effects, [(1, calls)].into());
    assert_eq!(tally.done, calls);
    assert_eq!(tally.mixed_up, 0);
    assert_eq!(tally.misled, 0);
    // Otherwise there were no faults to survive.
    assert!(outcome.account.replays > 0);
    assert!(outcome.account.in_progress > 0);
    assert!(outcome.calls.retries() > calls / 4);
    assert_every_fault_was_met(&outcome);
    assert_reports_contain_all_requests(&outcome);
    assert_nothing_leaks(&outcome);
}

#[test]
fn payments_without_a_key_have_their_effect_at_most_once() {
    let _turn = alone_in_process();
    let mut server = ServerProcess::start("the_server", seed());
    let build = |names: &_| {
        let bold = [
            persistent().retry_unsent(true),
            persistent().retry_unsent(true).retry_without_key(true),
        ];
        let bold = bold.into_iter().flat_map(|it| without_redirects(names, it));
        alone(names, persistent()).into_iter().chain(bold).collect()
    };
    let outcome = block_on(run(&mut server, seed(), call_count(), |_| false, build));
    println!("{}", Table("without a key", &outcome));

    let tally = Tally::of(&outcome);
    assert_eq!(tally.repeated(), 0);
    assert_eq!(tally.mixed_up, 0);
    assert_eq!(tally.misled, 0);
    // Otherwise no result was unclear, and no key was needed.
    assert!(tally.unclear_and_done > 0);
    assert!(outcome.calls.retries() > 0);
    assert_every_fault_was_met(&outcome);
    assert_reports_contain_all_requests(&outcome);
    assert_nothing_leaks(&outcome);
}

fn assert_every_fault_was_met(outcome: &Outcome) {
    assert!(outcome.refused > 0);
    for (fault, _) in [ON_ACCEPT, HTTP1, HTTP2, TLS, CONNECT].concat() {
        let times = outcome.account.drawn.get(&format!("{fault:?}"));
        assert!(times.is_some(), "{fault:?} was never drawn");
    }
    assert_eq!(outcome.account.garbled, 0);
}

/// Checks that reports contain every request. The ledger hides duplicates with a key.
///
/// Requests that reqwest itself retries were refused before the server read them.
fn assert_reports_contain_all_requests(outcome: &Outcome) {
    let attempts = u64::from(outcome.calls.count()) + outcome.calls.retries();
    let arrivals = outcome.account.sum(|record| record.arrivals);
    assert!(arrivals <= attempts, "{arrivals} of {attempts}");
    // Otherwise most reported requests never arrived.
    assert!(arrivals > attempts / 4, "{arrivals} of {attempts}");
}

/// Enough for a table that grew once. A leak of three bytes per call would exceed it.
const NEXT_TO_NOTHING: usize = 8 * 1024;

fn assert_nothing_leaks(outcome: &Outcome) {
    let before = outcome.before;
    for held in outcome.between.iter().chain([&outcome.after]) {
        assert!(held.descriptors <= before.descriptors, "{held}");
    }
    assert_eq!(outcome.after.tasks, before.tasks);
    assert!(outcome.after.bytes <= before.bytes + NEXT_TO_NOTHING);
    let (first, last) = (
        outcome.between[0],
        outcome.between[outcome.between.len() - 1],
    );
    assert!(last.bytes <= first.bytes + NEXT_TO_NOTHING);
    assert!(last.tasks <= first.tasks);
}
