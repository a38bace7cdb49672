//! Downloads over real connections: broken at every byte, over TLS, a gigabyte long, and from real servers.

// Tests measure real time.
#![allow(clippy::disallowed_methods)]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../real/identity.rs"]
mod identity;
#[allow(dead_code, reason = "the crate's own tests use the rest")]
#[path = "../../../tests/steady/support/mod.rs"]
mod support;

mod every_byte;
mod gigabyte;
mod range_server;
mod real_servers;
mod tls;

use std::time::Duration;

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, RequestBuilder};
use reqwest_steady::download::{DownloadExt, DownloadRequest};
use reqwest_steady::{Backoff, ClientBuilderExt, Steady};

/// A client with retry and throttle. Its connections are not used again, so each request has its own.
fn client(inner: reqwest::ClientBuilder) -> ClientWithMiddleware {
    let inner = inner.pool_max_idle_per_host(0).build().unwrap();
    ClientBuilder::new(inner)
        .with_steady(Steady::default())
        .build()
}

/// Almost without waits before resumes.
fn quick(request: RequestBuilder) -> DownloadRequest {
    let backoff = Backoff::exponential(Duration::from_nanos(1)).cap(Duration::from_millis(1));
    request.download().backoff(backoff)
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}
