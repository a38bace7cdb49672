//! What a client has learned, saved up and queued, while its settings are replaced.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_middleware::ClientWithMiddleware;
use reqwest_steady::observe::{BreakerState, GateView, PauseSource};
use reqwest_steady::testing::{Reply, ScriptedServer};
use reqwest_steady::{Steady, SteadySettings};
use tokio::time::sleep;

use crate::files::read_toml;
use crate::replace::{change, client};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const URL: &str = "http://api.example.com/orders";

type Call = tokio::task::JoinHandle<reqwest_middleware::Result<reqwest::Response>>;

fn start(client: &ClientWithMiddleware, count: usize) -> Vec<Call> {
    (0..count)
        .map(|_| tokio::spawn(client.get(URL).send()))
        .collect()
}

fn gate(steady: &Steady) -> GateView {
    steady.state().hosts[0].gates[0].clone()
}

/// Replaces what no gate and no budget depends on, and compares all that the client knows.
fn replace_and_compare(steady: &Steady) {
    let before = steady.state();
    change(steady, |settings| {
        settings.retry.max_retries += 1;
        settings.retry.max_server_delay += SEC;
        settings.throttle.max_queue_wait += SEC;
    });
    assert_eq!(steady.state(), before);
}

#[tokio::test(start_paused = true)]
async fn a_learned_pace_and_window_stay() {
    // Every fifth request is refused.
    let server = ScriptedServer::new(|before| match before % 5 {
        4 => Reply::status(429).after(50 * MS),
        _ => Reply::status(200).after(50 * MS),
    });
    let mut settings = SteadySettings::default();
    settings.retry.retry_window = 3600 * SEC;
    settings.throttle.max_queue_wait = 3600 * SEC;
    let steady = Steady::from_settings(&settings).unwrap();
    let client = client(&steady, &server);
    let calls = start(&client, 100);
    let learned = loop {
        sleep(100 * MS).await;
        let seen = gate(&steady);
        // At a moment when no request may go, which a replacement would let go.
        let is_waiting = seen.limited_by.is_some();
        if is_waiting && seen.pace.is_some() && seen.breaker == BreakerState::Passing {
            break seen;
        }
    };
    assert!(
        learned.queued > 0 && learned.window.is_some(),
        "{learned:?}"
    );
    replace_and_compare(&steady);
    assert_eq!(gate(&steady).pace, learned.pace);
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_circuit_breaker_that_failures_opened_stays_open() {
    let server = ScriptedServer::statuses([500]);
    let mut settings = SteadySettings::default();
    settings.retry.max_retries = 0;
    let steady = Steady::from_settings(&settings).unwrap();
    let client = client(&steady, &server);
    while !matches!(gate_if_any(&steady), Some(BreakerState::Paused { .. })) {
        assert_eq!(client.get(URL).send().await.unwrap().status(), 500);
    }
    let BreakerState::Paused {
        remaining,
        asked_by,
        ..
    } = gate(&steady).breaker
    else {
        panic!("it is open");
    };
    assert_eq!(asked_by, PauseSource::Failures);
    assert!(remaining > Duration::ZERO);
    let sent = server.count();
    let calls = start(&client, 3);
    sleep(MS).await;
    assert_eq!(gate(&steady).queued, 3);
    replace_and_compare(&steady);
    assert_eq!(server.count(), sent, "the pause still holds");
    sleep(remaining).await;
    assert_eq!(server.count(), sent + 1, "one request is the probe");
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

fn gate_if_any(steady: &Steady) -> Option<BreakerState> {
    let state = steady.state();
    Some(state.hosts.first()?.gates.first()?.breaker)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_broken_files_under_load_change_nothing() {
    let server = ScriptedServer::new(|before| match before % 3 {
        0 => Reply::status(500).after(20 * MS),
        _ => Reply::status(200).after(20 * MS),
    });
    let mut settings = SteadySettings::default();
    settings.retry.max_retries = 50;
    settings.retry.budget_per_host.min_retries_per_sec = 1000.0;
    settings.throttle.max_in_flight = 4;
    settings.throttle.max_queue_wait = 600 * SEC;
    let steady = Steady::from_settings(&settings).unwrap();
    let client = client(&steady, &server);
    let calls = start(&client, 400);
    let mut queued = 0;
    for round in 0..1000 {
        sleep(MS).await;
        // Two are no TOML, and the others break another middleware each.
        let text = match round % 6 {
            0 => "retry.max_retries =",
            1 => "[retry\nmax_retries = 3",
            2 => "retry.backoff.multiplier = 0.5",
            3 => "throttle.max_in_flight = 0\nretry.max_retries = 9",
            4 => "retry.max_retry = 3",
            _ => "retry.max_retries = 9\n[coalesce]",
        };
        let before = steady.state();
        match read_toml(text) {
            Ok(settings) => drop(steady.replace(&settings).unwrap_err()),
            Err(message) => assert!(!message.is_empty()),
        }
        assert_eq!(steady.state(), before);
        assert_eq!(steady.settings(), settings);
        queued += before.hosts[0].gates[0].queued;
    }
    assert!(queued > 0, "there was load");
    let responses = join_all(calls).await;
    for response in responses {
        assert_eq!(response.unwrap().unwrap().status(), 200, "no call is lost");
    }
}

/// The helper of these tests must see a change.
#[tokio::test(start_paused = true)]
async fn another_key_makes_a_gate_that_has_learned_nothing() {
    let server: Arc<ScriptedServer> = ScriptedServer::statuses([500]);
    let steady = Steady::default();
    let client = client(&steady, &server);
    client.get(URL).send().await.unwrap();
    let before = steady.state();
    change(&steady, |settings| settings.throttle.max_in_flight = 7);
    assert_ne!(steady.state(), before);
    assert_eq!(gate(&steady).max_in_flight, 7);
}
