//! Reading changes nothing, from any thread, and can become JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_steady::Steady;
use reqwest_steady::observe::BreakerState;
use tokio::time::{Instant, sleep, timeout};

#[cfg(feature = "serde")]
use super::start;
use super::{HOST, client, once, retry, steady, throttle};
use crate::support::scripted::{Server, call, late, respond, respond_with};
use crate::support::stacks::{MS, SEC};

/// Makes 300 calls to a server in trouble, perhaps with looks at every millisecond. Returns when each request came.
async fn arrivals(looks: bool) -> (Vec<Duration>, usize) {
    let started = Instant::now();
    let server = Server::new(|index| match index {
        5 => respond_with(429, &[("retry-after", "2")]),
        90..=97 => late(5 * MS, respond(503)),
        index if index > 100 && index % 40 == 0 => late(3 * MS, respond(429)),
        _ => late(7 * MS, respond(200)),
    });
    let steady = steady(retry(), throttle());
    let client = client(&server, &steady);
    let looking = tokio::spawn({
        let steady = steady.clone();
        async move {
            let mut paused = 0;
            loop {
                if looks {
                    let seen = steady.state();
                    let other = steady.host(HOST);
                    assert_eq!(seen.hosts.first(), other.as_ref());
                    let breaker = other.map(|host| host.gates[0].breaker);
                    paused += usize::from(matches!(breaker, Some(BreakerState::Paused { .. })));
                }
                sleep(MS).await;
                if started.elapsed() > 60 * SEC {
                    return paused;
                }
            }
        }
    });
    // First fewer than the pace lets through, then many at once.
    let calls = (0..300).map(|name| {
        let client = client.clone();
        async move {
            sleep(name.min(60) as u32 * 140 * MS).await;
            let _ = call(&client, name).await;
        }
    });
    join_all(calls).await;
    let paused = looking.await.unwrap();
    let received = server.received();
    let at = received.iter().map(|it| it.at - started);
    (at.collect(), paused)
}

#[tokio::test(start_paused = true)]
async fn looks_change_no_request_and_no_wait() {
    let (with_looks, paused) = arrivals(true).await;
    let (without, _) = arrivals(false).await;
    assert!(paused > 1000, "{paused} looks at a pause");
    assert!(with_looks.len() > 300, "{}", with_looks.len());
    assert_eq!(with_looks, without);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_look_while_calls_run() {
    let server = Server::new(|index| match index % 50 {
        7 => respond(429),
        8 => respond(503),
        _ => late(MS, respond(200)),
    });
    let steady = steady(once(), throttle().max_in_flight(8));
    let client = client(&server, &steady);
    let is_over = Arc::new(AtomicBool::new(false));
    // In threads of their own, which do not share the runtime.
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (steady, is_over) = (steady.clone(), is_over.clone());
            std::thread::spawn(move || read_until(&steady, &is_over))
        })
        .collect();
    let calls = (0..2000).map(|name: usize| {
        let url = format!("http://host{}.example.com/", name % 20);
        tokio::spawn(client.get(url).send())
    });
    let ended = timeout(60 * SEC, join_all(calls)).await;
    is_over.store(true, Ordering::Relaxed);
    assert!(ended.is_ok(), "a call hangs");
    for reader in readers {
        let (looks, most) = reader.join().unwrap();
        assert!(looks > 0);
        assert!((1..=8).contains(&most), "{most} in flight");
    }
    let state = steady.state();
    assert_eq!(state.hosts.len(), 20);
    for host in state.hosts {
        assert_eq!((host.gates[0].in_flight, host.gates[0].queued), (0, 0));
    }
}

/// Looks again and again. Returns how often, and the most requests in flight at one gate.
fn read_until(steady: &Steady, is_over: &AtomicBool) -> (u64, u32) {
    let (mut looks, mut most) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let hosts = steady.state().hosts;
        let gates = hosts.iter().flat_map(|host| &host.gates);
        most = gates.map(|gate| gate.in_flight).fold(most, u32::max);
        steady.host("host7.example.com");
        looks += 1;
    }
    (looks, most)
}

#[cfg(feature = "serde")]
#[tokio::test(start_paused = true)]
async fn the_state_as_json_has_units_and_stable_labels() {
    let server = Server::new(|_| respond_with(503, &[("retry-after", "7")]));
    let steady = steady(retry(), throttle().rate(12.5, 3));
    let client = client(&server, &steady);
    // The first waits for its retry, as long as the server asks. The second is in the queue.
    let first = start(&client, "a");
    sleep(Duration::ZERO).await;
    let second = start(&client, "b");
    sleep(1250 * MS).await;
    let mut json = serde_json::to_value(steady.state()).unwrap();
    let remaining = &mut json["hosts"][0]["gates"][0]["breaker"]["remaining_ms"];
    let left = remaining.take().as_u64().unwrap();
    assert!((5750..=6750).contains(&left), "{left}");
    let expected = serde_json::json!({
        "hosts": [{
            "host": "api.example.com",
            "budget_balance": 19.0,
            "failures_in_a_row": 1,
            "in_line": 0,
            "gates": [{
                "key": "api.example.com",
                "breaker": { "state": "paused", "remaining_ms": null, "asked_by": "server" },
                "limited_by": "pause",
                "failures_in_a_row": 1,
                "pace_per_second": null,
                "window": 8,
                "max_in_flight": 1024,
                "rate_per_second": 12.5,
                "has_fleet": false,
                "in_flight": 0,
                "queued": 1,
                "oldest_wait_ms": 1250
            }]
        }],
        "private_gates": []
    });
    assert_eq!(json, expected, "{json:#}");
    assert_eq!(server.count(), 1);
    [first, second].iter().for_each(|call| call.abort());
}

#[cfg(feature = "serde")]
#[test]
fn each_breaker_state_has_a_label_in_json() {
    let shown = |state: BreakerState| serde_json::to_value(state).unwrap();
    for state in [BreakerState::Passing, BreakerState::Probing] {
        let label = serde_json::json!({ "state": state.as_str() });
        assert_eq!(shown(state), label);
        assert_eq!(state.to_string(), state.as_str());
    }
}
