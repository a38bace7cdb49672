//! A server without a network, so that only the client is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Extensions, HeaderMap, StatusCode};
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next};

/// A last middleware that responds from memory.
///
/// Unless `empty`, its responses have two extensions, like responses from a socket: the addresses of the connection, and
/// the URL after redirects.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) status: StatusCode,
    pub(crate) empty: bool,
    pub(crate) headers: HeaderMap,
    /// The number of 503s before the first success.
    pub(crate) failures: Arc<AtomicU32>,
    /// Whether every call waits until all current calls have been polled.
    pub(crate) waits: bool,
    pub(crate) waiting: Arc<Waiting>,
}

/// Counts the calls that wait for a response.
#[derive(Default)]
pub(crate) struct Waiting {
    now: AtomicU32,
    pub(crate) most: AtomicU32,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            status: StatusCode::OK,
            empty: false,
            headers: HeaderMap::new(),
            failures: Arc::default(),
            waits: false,
            waiting: Arc::default(),
        }
    }
}

#[derive(Clone)]
struct Addresses;

#[derive(Clone)]
struct LastUrl;

impl Memory {
    fn respond(&self) -> Response {
        let mut response = http::Response::new("ok");
        *response.status_mut() = self.status;
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.fetch_sub(1, Ordering::Relaxed);
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        if !self.headers.is_empty() {
            *response.headers_mut() = self.headers.clone();
        }
        if !self.empty {
            response.extensions_mut().insert(Addresses);
            response.extensions_mut().insert(LastUrl);
        }
        Response::from(response)
    }
}

#[async_trait::async_trait]
impl Middleware for Memory {
    async fn handle(
        &self,
        _: Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        if self.waits {
            let waiting = self.waiting.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.waiting.most.fetch_max(waiting, Ordering::Relaxed);
            tokio::task::yield_now().await;
            self.waiting.now.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(self.respond())
    }
}
