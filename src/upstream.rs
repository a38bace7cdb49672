//! The trait that sends one attempt.
//!
//! The three loops take whatever sends, so they know nothing of the middleware trait: see `adapters`.

use std::pin::Pin;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::Result;

/// A future behind a pointer, as middlewares return it.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Sends one attempt. The rest of a middleware chain is one; a tower service can be another.
pub(crate) trait Upstream: Send {
    /// Sends the request, and returns when the response headers arrive.
    fn send<'a>(
        &'a mut self,
        request: Request,
        extensions: &'a mut Extensions,
    ) -> BoxFuture<'a, Result<Response>>;
}
