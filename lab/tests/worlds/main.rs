//! Tests that run whole simulated worlds: what the middlewares do in them, and what the simulation itself does.

// Tests read tokio's paused clock themselves.
#![allow(clippy::disallowed_methods)]

mod herd;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../tests/steady/support/scripted.rs"]
mod scripted;
mod simulation;
