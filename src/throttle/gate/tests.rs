use super::super::signal::{Signal, SignalKind};
use super::*;

fn gate(settings: &Settings) -> Gate {
    Gate::new(GateKey::shown("api.example.com"), settings, clock::now())
}

fn enter<'a>(gate: &'a Gate, settings: &'a Settings) -> Entry<'a> {
    let entry = gate.enter(clock::now(), settings, false, Duration::ZERO, None);
    entry.unwrap_or_else(|refusal| panic!("{refusal}"))
}

#[test]
fn a_gate_is_kept_while_it_is_in_use_or_has_learned_something() {
    let settings = Settings {
        max_in_flight: 1,
        ..Settings::default()
    };
    let gate = gate(&settings);
    assert!(!gate.must_keep(clock::now()));
    let Entry::Admitted(mut slot, _) = enter(&gate, &settings) else {
        panic!("the gate is empty");
    };
    assert!(gate.must_keep(clock::now()));
    let Entry::Queued(waiting) = enter(&gate, &settings) else {
        panic!("the only slot is taken");
    };
    let accepted = Signal {
        kind: SignalKind::Accepted,
        hint: None,
        quota: None,
    };
    slot.on_response(&accepted);
    // The slot went to the waiter.
    assert!(gate.must_keep(clock::now()));
    drop(waiting);
    assert!(!gate.must_keep(clock::now()));

    let Entry::Admitted(mut slot, _) = enter(&gate, &settings) else {
        panic!("the slot is free again");
    };
    let kind = SignalKind::Refused;
    slot.on_response(&Signal { kind, ..accepted });
    assert!(gate.must_keep(clock::now()));
}
