use http::{Extensions, Method};
use reqwest::Request;

use super::super::config::ThrottleParts;
use super::super::signal::{Signal, SignalKind};
use super::*;
use crate::settings::ThrottleSettings;

fn config(max_in_flight: u32) -> ThrottleConfig {
    let data = ThrottleSettings {
        max_in_flight,
        ..ThrottleSettings::default()
    };
    ThrottleConfig::new(data, &ThrottleParts::default()).unwrap()
}

fn gate(config: &ThrottleConfig) -> Arc<Gate> {
    let key = GateKey::new("api.example.com", None);
    Gate::new(key, config, &Arc::default(), clock::now())
}

/// Brings a new request to the gate, and returns whether it was admitted.
fn enter<'a>(gate: &'a Gate, config: &'a ThrottleConfig) -> (GateRequest<'a>, bool) {
    let url = "https://api.example.com".parse().unwrap();
    let request = Request::new(Method::GET, url);
    let mut extensions = Extensions::new();
    let mut at_gate = GateRequest::new(gate, config, &request, &extensions);
    let admitted = at_gate.admit(&request, &mut extensions);
    (at_gate, matches!(admitted, Ok(None)))
}

#[tokio::test]
async fn a_gate_is_kept_while_it_is_in_use_or_has_learned_something() {
    let config = config(1);
    let gate = gate(&config);
    assert!(!gate.must_keep(clock::now()));
    let (mut at_gate, admitted) = enter(&gate, &config);
    assert!(admitted, "the gate is empty");
    assert!(gate.must_keep(clock::now()));
    let (waiting, admitted) = enter(&gate, &config);
    assert!(!admitted, "the only slot is taken");
    let accepted = Signal {
        kind: SignalKind::Accepted,
        hint: None,
        quota: None,
    };
    at_gate.on_response(&accepted);
    // The slot went to the waiter.
    assert!(gate.must_keep(clock::now()));
    drop(waiting);
    assert!(!gate.must_keep(clock::now()));

    let (mut at_gate, admitted) = enter(&gate, &config);
    assert!(admitted, "the slot is free again");
    let kind = SignalKind::Refused;
    at_gate.on_response(&Signal { kind, ..accepted });
    assert!(gate.must_keep(clock::now()));
}
