//! Default middlewares, with a budget that may be empty and a throttle that may refuse.
//!
//! Each failed call is in a dead letter, and each replayed letter has its effect once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest_middleware::Middleware;
use reqwest_steady::ThrottleMiddleware;
use reqwest_steady::dead_letter::{DeadLetter, DeadLetterReceiver, dead_letter_channel};

use crate::client::{CallResult, Calls, Names, callers, persistent, usual};
use crate::faults::Weather;
use crate::process::ServerProcess;
use crate::run::alone;
use crate::{alone_in_process, block_on, call_count, seed};

#[test]
fn each_failed_call_is_in_a_dead_letter_and_no_other() {
    let _turn = alone_in_process();
    let mut server = ServerProcess::start("the_server", seed());
    block_on(give_up_and_replay(&mut server));
}

async fn give_up_and_replay(server: &mut ServerProcess) {
    // Calls may wait long for the throttle.
    let count = call_count() / 10;
    let (sink, letters) = dead_letter_channel(count as usize);
    let throttle = ThrottleMiddleware::builder().max_queue_wait(Duration::from_secs(2));
    let stack: [Arc<dyn Middleware>; 2] = [
        Arc::new(usual().dead_letter_sink(sink).build().unwrap()),
        Arc::new(throttle.build().unwrap()),
    ];
    let names = Names::new(server.addresses, Weather::Foul, seed());
    let mut calls = Calls::new(count, |call| call / 4 % 2 == 0);
    calls.set_callers(callers(&names, &stack).into());
    let calls = Arc::new(calls);
    server.set_weather(Weather::Foul);
    calls.run(0..count).await;
    server.set_weather(Weather::Calm);

    let letters = by_call(letters);
    let mut done = 0;
    for (call, result) in calls.results() {
        let is_done = matches!(result, CallResult::Done(_));
        done += usize::from(is_done);
        assert_eq!(letters.contains_key(&call), !is_done, "{call}: {result:?}");
    }
    let print = |what: &str, count: usize| println!("  {what:<46}{count:>9}");
    print("default settings: calls", count as usize);
    print("reported as done", done);
    print("in a dead letter", letters.len());
    for (reason, times) in reasons(&letters) {
        print(&format!("  … {reason}"), times);
    }

    // Uses another client, because the throttle of this one may still be closed.
    let calm = Names::new(server.addresses, Weather::Calm, seed());
    let callers = alone(&calm, persistent());
    let mut replayed = 0;
    for (call, letter) in &letters {
        assert_eq!(letter.key().is_some(), calls.is_keyed(*call));
        if letter.is_repeatable() {
            let caller = &callers[*call as usize % callers.len()];
            let response = letter.replay(&caller.client).await.unwrap();
            assert_eq!(response.status(), 200);
            replayed += 1;
        }
    }
    print("replayed without faults", replayed);
    assert!(replayed > 0);
    let account = server.close_the_ledger();
    assert_eq!(account.garbled, 0);
    for call in 0..count {
        let effects = account.of(call).effects;
        match calls.is_keyed(call) {
            true => assert_eq!(effects, 1, "{call}"),
            false => assert!(effects <= 1, "{call}: {effects}"),
        }
    }
    let effects = account.sum(|record| record.effects);
    print("effects", effects as usize);
}

/// Groups letters by call. No call has two.
fn by_call(mut letters: DeadLetterReceiver) -> BTreeMap<u32, Arc<DeadLetter>> {
    let mut by_call = BTreeMap::new();
    while let Some(letter) = letters.try_recv() {
        let (_, call) = (letter.headers())
            .find(|(name, _)| *name == "x-call")
            .unwrap();
        let call = call.unwrap().to_str().unwrap().parse().unwrap();
        assert!(by_call.insert(call, letter).is_none(), "{call}");
    }
    by_call
}

fn reasons(letters: &BTreeMap<u32, Arc<DeadLetter>>) -> BTreeMap<&str, usize> {
    let mut reasons = BTreeMap::new();
    for letter in letters.values() {
        *reasons.entry(letter.stop_reason_label()).or_default() += 1;
    }
    reasons
}
