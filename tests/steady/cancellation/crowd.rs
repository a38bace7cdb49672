//! Many calls at the same time, of which some are dropped at random points.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest_steady::RequestBuilderExt;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::CALM;
use super::cut::{Cut, Moment};
use super::script::{Action, RESPONSE_TIME};
use super::stack::{Setup, Stack, fresh};
use crate::support::stacks::MS;

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
struct Caller {
    begins: u32,
    /// One of few paths, so that some calls are coalesced.
    path: usize,
    buffered: bool,
    deadline: Option<u32>,
    cut: Cut,
}

fn caller() -> impl Strategy<Value = Caller> {
    let moment = select(vec![Moment::Asleep, Moment::Woken]);
    let cut = (1..16_usize, moment).prop_map(|(suspension, moment)| Cut { suspension, moment });
    let cut = prop_oneof![1 => Just(Cut::NEVER), 3 => cut];
    let deadline = proptest::option::weighted(0.2, 1..2000_u32);
    (0..400_u32, 0..4_usize, any::<bool>(), deadline, cut).prop_map(
        |(begins, path, buffered, deadline, cut)| Caller {
            begins,
            path,
            buffered,
            deadline,
            cut,
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => select(vec![200, 404, 500, 502, 502, 504]).prop_map(Action::Status),
        2 => (0..3_u32).prop_map(Action::Pause),
        2 => (select(vec![200, 502]), 0..5_usize).prop_map(|(status, parts)| Action::Drips(status, parts)),
        1 => (1..500_u32).prop_map(Action::Slow),
        1 => Just(Action::Breaks),
        1 => Just(Action::Reset),
        1 => Just(Action::Silence),
    ]
}

const SETUPS: [Setup; 5] = [
    Setup {
        retry: |retry| retry.attempt_timeout(300 * MS),
        throttle: |throttle| throttle,
        nested: false,
        empty_budget: true,
        no_throttle: true,
    },
    Setup {
        retry: |retry| retry.attempt_timeout(300 * MS),
        throttle: |throttle| throttle,
        nested: false,
        empty_budget: false,
        no_throttle: false,
    },
    Setup {
        retry: |retry| retry.attempt_timeout(300 * MS).launch_spread(30 * MS),
        throttle: |throttle| throttle.max_in_flight(1),
        nested: false,
        empty_budget: false,
        no_throttle: false,
    },
    Setup {
        retry: |retry| retry.attempt_timeout(300 * MS),
        throttle: |throttle| {
            throttle
                .max_in_flight(2)
                .max_queue(2)
                .max_queue_wait(100 * MS)
        },
        nested: false,
        empty_budget: false,
        no_throttle: false,
    },
    Setup {
        retry: |retry| retry.attempt_timeout(300 * MS).max_retries(2),
        throttle: |throttle| throttle.rate(20.0, 2),
        nested: true,
        empty_budget: false,
        no_throttle: false,
    },
];

/// Each of the four paths has its own part of the script, and then responds with 200.
fn script(actions: Vec<Action>) -> impl Fn(&str, usize) -> Action + Send + Sync + 'static {
    move |path, before| {
        let own = match path {
            "/0" => 0,
            "/1" => 1,
            "/2" => 2,
            "/3" => 3,
            "/token" => 4,
            _ => return Action::Status(200),
        };
        let part = actions.len() / 5;
        match before < part {
            true => actions[own * part + before],
            false => Action::Status(200),
        }
    }
}

/// Starts a call, which ends or is dropped.
fn begin(stack: &Stack, number: usize, caller: &Caller) -> JoinHandle<()> {
    let mut request = stack.get(&format!("/{}", caller.path), &format!("caller {number}"));
    if caller.buffered {
        request = request.buffer_response(1000);
    }
    if let Some(deadline) = caller.deadline {
        request = request.deadline(deadline * MS);
    }
    let Caller { begins, cut, .. } = *caller;
    tokio::spawn(async move {
        sleep(begins * MS).await;
        let call = async {
            if let Ok(response) = request.send().await {
                // Some of the bodies break off.
                let _ = response.text().await;
            }
        };
        cut.off(call).await;
    })
}

async fn check(setup: &Setup, callers: &[Caller], actions: Vec<Action>) {
    let stack = Stack::new(setup, script(actions));
    #[cfg(feature = "metrics")]
    let _measured = stack.measure();
    let callers = callers.iter().enumerate();
    let calls: Vec<_> = callers
        .map(|(number, caller)| begin(&stack, number, caller))
        .collect();
    for call in calls {
        // No call waits forever for a dropped one.
        timeout(HOUR, call).await.unwrap().unwrap();
    }
    let assert_paid = match setup.nested {
        true => Stack::assert_paid_or_begun,
        false => Stack::assert_paid,
    };
    assert_paid(&stack, "right after the calls");
    stack
        .events
        .counts()
        .assert_all_ended("right after the calls");
    stack
        .events
        .counts()
        .assert_throttle_empty("right after the calls");
    sleep(CALM).await;
    assert_paid(&stack, "after a long pause");
    stack.assert_empty("after a long pause");
    #[cfg(feature = "metrics")]
    stack.assert_gauges("after a long pause");
    assert!(fresh(&stack).await <= RESPONSE_TIME + 30 * MS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn calls_dropped_in_a_crowd_leave_nothing_behind(
        setup in 0..SETUPS.len(),
        callers in vec(caller(), 1..14),
        actions in vec(action(), 30),
    ) {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(&SETUPS[setup], &callers, actions));
    }
}

/// Calls that queue in a throttle, and calls that it lets through at once.
const AMONG_THREADS: [Setup; 2] = [
    Setup {
        retry: |retry| retry,
        throttle: |throttle| throttle.adaptive(false).max_in_flight(8),
        nested: false,
        empty_budget: false,
        no_throttle: false,
    },
    Setup {
        retry: |retry| retry.attempt_timeout(HOUR),
        throttle: |throttle| throttle,
        nested: true,
        empty_budget: false,
        no_throttle: false,
    },
];

/// In real time, on several threads. Checks only counts.
#[test]
fn calls_dropped_on_many_threads_leave_nothing_behind() {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(8).enable_time().build().unwrap();
    for seed in 0..4 {
        runtime.block_on(among_threads(&AMONG_THREADS[seed as usize % 2], seed));
    }
}

async fn among_threads(setup: &Setup, seed: u64) {
    const CALLS: usize = 500;
    let place = &format!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let stack = Stack::new(setup, |path, before| {
        let number: usize = path[1..].parse().unwrap_or_default();
        match (number + before) % 16 {
            _ if path == "/fresh" => Action::Status(200),
            0 => Action::Drips(502, 1),
            4 => Action::Reset,
            8 => Action::Breaks,
            2 | 10 => Action::Drips(200, 2),
            _ => Action::Status(200),
        }
    });
    let mut caller = || Caller {
        begins: rng.random_range(0..300),
        path: rng.random_range(0..200),
        buffered: rng.random_bool(0.5),
        deadline: None,
        cut: match rng.random_range(0..16_usize) {
            10.. => Cut::NEVER,
            suspension => Cut {
                suspension: suspension % 5,
                moment: [Moment::Asleep, Moment::Woken][rng.random_range(0..2)],
            },
        },
    };
    let calls: Vec<_> = (0..CALLS)
        .map(|number| begin(&stack, number, &caller()))
        .collect();
    for call in calls {
        timeout(60_000 * MS, call).await.unwrap().unwrap();
    }
    // Wait for deliveries of letters and for the last tasks to end.
    let gone = async {
        while Handle::current().metrics().num_alive_tasks() > 0 {
            sleep(MS).await;
        }
    };
    assert!(timeout(60_000 * MS, gone).await.is_ok(), "{place}");
    stack.assert_paid(place);
    stack.assert_empty(place);
    let counts = stack.events.counts();
    assert!(
        counts.abandoned > 50 && counts.stopped > 50,
        "{place}: {counts:?}"
    );
    assert!(timeout(60_000 * MS, fresh(&stack)).await.is_ok(), "{place}");
    println!("{place}: {counts:?}");
}
