use super::super::signal::{Signal, SignalKind};
use super::*;

fn gate(settings: &ThrottleSettings) -> Gate {
    Gate::new(GateKey::shown("api.example.com"), settings, clock::now())
}

fn enter<'a>(gate: &'a Gate, settings: &'a ThrottleSettings) -> GateEntry<'a> {
    let entry = gate.enter(clock::now(), settings, false, Terms::default());
    entry.unwrap_or_else(|refusal| panic!("{refusal}"))
}

#[test]
fn a_gate_is_kept_while_it_is_in_use_or_has_learned_something() {
    let settings = ThrottleSettings {
        max_in_flight: 1,
        ..ThrottleSettings::default()
    };
    let gate = gate(&settings);
    assert!(!gate.must_keep(clock::now()));
    let GateEntry::Admitted(mut slot, _) = enter(&gate, &settings) else {
        panic!("the gate is empty");
    };
    assert!(gate.must_keep(clock::now()));
    let GateEntry::Queued(waiting) = enter(&gate, &settings) else {
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

    let GateEntry::Admitted(mut slot, _) = enter(&gate, &settings) else {
        panic!("the slot is free again");
    };
    let kind = SignalKind::Refused;
    slot.on_response(&Signal { kind, ..accepted });
    assert!(gate.must_keep(clock::now()));
}
