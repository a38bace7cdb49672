//! Makes the three loops middlewares of reqwest-middleware.
//!
//! This is the only module that knows its trait. Another one could make them layers of tower.

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};

use crate::coalesce::CoalesceMiddleware;
use crate::retry::RetryMiddleware;
use crate::throttle::ThrottleMiddleware;
use crate::upstream::{BoxFuture, Upstream};

impl Upstream for Next<'_> {
    fn send<'a>(
        &'a mut self,
        request: Request,
        extensions: &'a mut Extensions,
    ) -> BoxFuture<'a, Result<Response>> {
        self.clone().run(request, extensions)
    }
}

/// Implements `Middleware` by the method `run`, without the second copy of the request that `#[async_trait]` keeps
/// in its future.
macro_rules! forward_to_run {
    ($($middleware:ty),+) => {$(
        impl Middleware for $middleware {
            fn handle<'s, 'e, 'n, 'a>(
                &'s self,
                request: Request,
                extensions: &'e mut Extensions,
                next: Next<'n>,
            ) -> BoxFuture<'a, Result<Response>>
            where
                's: 'a,
                'e: 'a,
                'n: 'a,
                Self: 'a,
            {
                Box::pin(self.run(request, extensions, next))
            }
        }
    )+};
}

forward_to_run!(CoalesceMiddleware, RetryMiddleware, ThrottleMiddleware);
