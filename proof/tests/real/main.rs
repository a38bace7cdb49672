//! Tests with real counterparts: TLS libraries, proxies, nginx, Redis, Prometheus, and crates that users combine or
//! compare with this one.

// Tests read tokio's paused clock themselves.
#![allow(clippy::disallowed_methods)]

#[allow(dead_code, reason = "the crate's own tests use the rest")]
#[path = "../../../tests/steady/support/mod.rs"]
mod support;

mod fleet;
mod gzip;
mod identity;
mod metrics;
mod migration;
#[cfg(unix)]
mod nginx;
mod proxy;
mod secrets;
mod spans;
mod tls;
