//! Runs whole simulations: tests of the middlewares, and of the simulation itself.

// Tests read tokio's paused clock themselves.
#![allow(clippy::disallowed_methods)]

mod herd;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../tests/steady/support/scripted.rs"]
mod scripted;
mod simulation;
