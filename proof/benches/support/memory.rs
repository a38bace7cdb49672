//! A server without a network, so that nothing but the client is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Extensions, HeaderMap, StatusCode};
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next};

/// A last middleware that answers from memory.
///
/// Its answers carry two extensions, as every answer that reqwest read from a socket does (the
/// connection's addresses, and the URL after redirects), unless `empty`.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) status: StatusCode,
    pub(crate) empty: bool,
    pub(crate) headers: HeaderMap,
    /// So many 503s come first.
    pub(crate) failures: Arc<AtomicU32>,
    /// Every call waits until all that are there have been polled.
    pub(crate) waits: bool,
    pub(crate) waiting: Arc<Waiting>,
}

/// How many wait for an answer at once.
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
    fn answer(&self) -> Response {
        let mut answer = http::Response::new("ok");
        *answer.status_mut() = self.status;
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.fetch_sub(1, Ordering::Relaxed);
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        if !self.headers.is_empty() {
            *answer.headers_mut() = self.headers.clone();
        }
        if !self.empty {
            answer.extensions_mut().insert(Addresses);
            answer.extensions_mut().insert(LastUrl);
        }
        Response::from(answer)
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
        Ok(self.answer())
    }
}
