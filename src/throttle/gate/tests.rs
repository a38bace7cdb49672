use http::{Extensions, Method};
use reqwest::Request;

use super::super::signal::{Signal, SignalKind};
use super::*;

fn gate(max_in_flight: u32) -> Arc<Gate> {
    let settings = ThrottleSettings {
        max_in_flight,
        ..ThrottleSettings::default()
    };
    let key = GateKey::new("api.example.com", None);
    Gate::new(key, &Arc::new(settings), &Arc::default(), clock::now())
}

/// Brings a new request to the gate, and returns whether it was admitted.
fn enter(gate: &Gate) -> (GateRequest<'_>, bool) {
    let url = "https://api.example.com".parse().unwrap();
    let request = Request::new(Method::GET, url);
    let mut extensions = Extensions::new();
    let mut at_gate = GateRequest::new(gate, &request, &extensions);
    let admitted = at_gate.admit(&request, &mut extensions);
    (at_gate, matches!(admitted, Ok(None)))
}

#[tokio::test]
async fn a_gate_is_kept_while_it_is_in_use_or_has_learned_something() {
    let gate = gate(1);
    assert!(!gate.must_keep(clock::now()));
    let (mut at_gate, admitted) = enter(&gate);
    assert!(admitted, "the gate is empty");
    assert!(gate.must_keep(clock::now()));
    let (waiting, admitted) = enter(&gate);
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

    let (mut at_gate, admitted) = enter(&gate);
    assert!(admitted, "the slot is free again");
    let kind = SignalKind::Refused;
    at_gate.on_response(&Signal { kind, ..accepted });
    assert!(gate.must_keep(clock::now()));
}
