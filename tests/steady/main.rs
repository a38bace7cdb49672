//! What users rely on, one file for each behaviour.
//!
//! Most of it runs against a scripted server in virtual time: half an hour of waiting takes a
//! millisecond. Sockets are used only where a wire shows what nothing else can.

// Tests read tokio's paused clock themselves.
#![allow(clippy::disallowed_methods)]

mod support;

mod admit;
mod after_an_attempt;
mod between;
mod bodies;
mod cancellation;
mod coalesce;
mod dead_letters;
mod decide;
mod fleet;
mod herd;
mod hostile;
mod http2;
mod keys;
#[cfg(feature = "metrics")]
mod metrics;
mod migration;
#[cfg(unix)]
mod nginx;
mod observe;
mod passages;
mod properties;
mod proxy;
mod queue_time;
mod report;
mod runtime;
mod schedule;
#[cfg(all(feature = "dead-letter-file", feature = "metrics", feature = "tracing"))]
mod secrets;
mod security;
mod simulation;
mod throttle;
mod throttle_and_retry;
mod tls;
mod wire;
mod wiremock_server;
