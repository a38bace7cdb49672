//! Which attempt of a call an inner middleware is looking at.

use std::num::NonZeroU32;

use http::Extensions;

/// The number of an attempt within its call, for middleware that sits inside the retry.
///
/// The first attempt leaves no mark in the extensions: [`of`](Attempt::of) says 1 for it, as for a
/// client that has no retry at all.
///
/// ```
/// use reqwest_steady::Attempt;
///
/// let extensions = http::Extensions::new(); // what a middleware's `handle` is given
/// let attempt = Attempt::of(&extensions);
/// assert_eq!(attempt.number(), 1);
/// assert_eq!(attempt.resend_count(), None); // OpenTelemetry's http.request.resend_count
/// ```
///
/// A middleware inside the retry reads it for each attempt. With `reqwest-tracing`, do the same in
/// `ReqwestOtelSpanBackend::on_request_start` to put the number into the span.
///
/// ```
/// use http::Extensions;
/// use reqwest::{Request, Response};
/// use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};
/// use reqwest_steady::{Attempt, RetryMiddleware};
///
/// struct ResendCount;
///
/// #[async_trait::async_trait]
/// impl Middleware for ResendCount {
///     async fn handle(&self, mut request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
///         if let Some(count) = Attempt::of(extensions).resend_count() {
///             request.headers_mut().insert("x-resend-count", count.into());
///         }
///         next.run(request, extensions).await
///     }
/// }
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::default())
///     .with(ResendCount)
///     .build();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(NonZeroU32);

impl Attempt {
    pub(crate) const FIRST: Self = Self(NonZeroU32::MIN);

    /// The attempt that these extensions travel with.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().copied().unwrap_or(Self::FIRST)
    }

    /// 1 for the first attempt, 2 for the first retry, and so on.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// How often this request was sent before: `None` on the first attempt, then 1, 2 …, which is
    /// what OpenTelemetry wants in `http.request.resend_count`.
    pub fn resend_count(self) -> Option<u32> {
        match self.retries() {
            0 => None,
            count => Some(count),
        }
    }

    /// The one after so many others.
    pub(crate) fn after(earlier: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(earlier))
    }

    pub(crate) fn is_retry(self) -> bool {
        self != Self::FIRST
    }

    /// How many retries were made up to and with this attempt.
    pub(crate) fn retries(self) -> u32 {
        self.0.get() - 1
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
