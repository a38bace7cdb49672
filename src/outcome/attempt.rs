//! The number of an attempt, for middleware inside the retry.

use std::num::NonZeroU32;

use http::Extensions;

/// Numbers the attempts of a call, for middleware inside the retry.
///
/// The retry puts it into the extensions of each attempt after the first. Without one, [`of`](Attempt::of)
/// returns the first attempt. The same holds for a client without a retry.
///
/// ```
/// use reqwest_steady::observe::Attempt;
///
/// let extensions = http::Extensions::new(); // as in a middleware's `handle`
/// let attempt = Attempt::of(&extensions);
/// assert_eq!(attempt.number(), 1);
/// assert_eq!(attempt.resend_count(), None); // OpenTelemetry's http.request.resend_count
/// ```
///
/// A middleware inside the retry can read it for each attempt. With `reqwest-tracing`, do the same in
/// `ReqwestOtelSpanBackend::on_request_start` to record the number in the span.
///
/// ```
/// use http::Extensions;
/// use reqwest::{Request, Response};
/// use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};
/// use reqwest_steady::observe::Attempt;
/// use reqwest_steady::RetryMiddleware;
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

    /// Returns the attempt that these extensions belong to.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().copied().unwrap_or(Self::FIRST)
    }

    /// Returns the number of the attempt, counted from 1.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// Returns `None` for the first attempt, then 1, 2, and so on.
    ///
    /// This is the value of OpenTelemetry's `http.request.resend_count`.
    pub fn resend_count(self) -> Option<u32> {
        Some(self.retries()).filter(|count| *count > 0)
    }

    /// Returns the attempt that follows `earlier` others.
    pub(crate) fn after(earlier: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(earlier))
    }

    pub(crate) fn is_retry(self) -> bool {
        self != Self::FIRST
    }

    /// Returns the number of retries up to and including this attempt.
    pub(crate) fn retries(self) -> u32 {
        self.0.get() - 1
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
