//! The crate beside what is real: TLS libraries, proxies, nginx, Redis, Prometheus, and the crates that it is used with
//! or compared to.

// Tests read tokio's paused clock themselves.
#![allow(clippy::disallowed_methods)]

#[allow(dead_code, reason = "the crate's own tests use the rest")]
#[path = "../../../tests/steady/support/mod.rs"]
mod support;

mod fleet;
mod identity;
mod metrics;
mod migration;
#[cfg(unix)]
mod nginx;
mod proxy;
mod secrets;
mod spans;
mod tls;
