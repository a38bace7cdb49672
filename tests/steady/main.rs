//! What users rely on, one file per behaviour.
//!
//! Most tests run against a scripted server in virtual time: half an hour of waiting takes a
//! millisecond. They use sockets only where a real connection is needed.

// Tests read tokio's paused clock themselves.
#![allow(clippy::disallowed_methods)]

mod support;

mod admit;
mod after_an_attempt;
mod between;
mod bodies;
mod bundle;
mod cancellation;
mod coalesce;
mod dead_letters;
mod decide;
mod download;
mod effect;
mod fleet;
mod hostile;
mod http2;
mod inspect;
mod keys;
mod line;
mod observe;
mod passages;
mod properties;
mod queue_time;
mod readme;
mod report;
mod runtime;
mod schedule;
mod security;
mod settings;
mod shared_backoff;
mod state;
mod throttle;
mod throttle_and_retry;
mod uploads;
mod wire;
mod wiremock_server;
