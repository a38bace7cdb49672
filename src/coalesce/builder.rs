//! Builds the coalescing middleware.

use std::time::Duration;

use super::CoalesceMiddleware;
use crate::config::ConfigError;
use crate::settings::CoalesceSettings;

/// Builds a [`CoalesceMiddleware`].
///
/// [`build`](CoalesceMiddlewareBuilder::build) refuses invalid settings.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::CoalesceMiddleware;
///
/// let coalesce = CoalesceMiddleware::builder()
///     .max_body(64 * 1024)
///     .leader_timeout(Duration::from_secs(5))
///     .ignore_header("X-Client-Start")
///     .build()?;
///
/// let refused = CoalesceMiddleware::builder().ignore_header("Cookie").build();
/// assert_eq!(
///     refused.unwrap_err().to_string(),
///     "ignore_header (\"Cookie\") should not be a header that selects the response or carries credentials",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct CoalesceMiddlewareBuilder {
    pub(super) data: CoalesceSettings,
}

impl CoalesceMiddlewareBuilder {
    /// Sets everything.
    ///
    /// Methods that are called later change single settings. See [`settings`](crate::settings).
    pub fn settings(mut self, settings: CoalesceSettings) -> Self {
        self.data = settings;
        self
    }

    /// Limits the size of shared bodies, in bytes.
    ///
    /// A response with a longer body is not shared. Each response that several callers wait for takes up to
    /// this much memory.
    ///
    /// Default: 1 MiB.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.data.max_body = bytes;
        self
    }

    /// Limits how long waiting callers wait for one request.
    ///
    /// After that time another of them sends its request as well, and all share the first response. A
    /// caller that has waited for three requests sends its own.
    ///
    /// A retry inside may be waiting as long as the server asked for, by default up to 60 s
    /// ([`max_server_delay`](crate::RetryMiddlewareBuilder::max_server_delay)). A shorter `leader_timeout` would
    /// send a request before the end of that pause. Without such pauses, choose a little more than the
    /// longest time that a response should take.
    ///
    /// Default: 75 s.
    pub fn leader_timeout(mut self, wait: Duration) -> Self {
        self.data.leader_timeout = wait;
        self
    }

    /// Does not compare this header.
    ///
    /// Use it for headers that never change the response. A response that names the header in `Vary` is
    /// not shared. Tracing headers are always ignored: `traceparent`, `tracestate`, `b3`, `x-b3-*`,
    /// `x-request-id` and `x-correlation-id`.
    ///
    /// Do not name custom headers with credentials here: this crate recognizes only common names.
    /// A value that is marked as [sensitive](http::HeaderValue::set_sensitive) is always compared.
    ///
    /// # Errors
    ///
    /// `build` refuses headers that carry credentials or select a response (`Accept`, `Range`,
    /// `If-None-Match` …). Those include `x-amz-*` and all names that end in `key`, `token`, `secret`, `password`,
    /// `signature`, `assertion` or `credential`.
    pub fn ignore_header(mut self, name: impl AsRef<str>) -> Self {
        self.data.ignore_header.push(name.as_ref().to_owned());
        self
    }

    /// Sets whether requests with unknown extensions are shared.
    ///
    /// Extensions cannot be compared: they can name the user for which an inner middleware adds
    /// credentials. So a request with extensions from another middleware or from `with_extension` is not
    /// shared. Set `true` if no inner middleware acts on them.
    ///
    /// Default: `false`.
    pub fn ignore_extensions(mut self, ignore: bool) -> Self {
        self.data.ignore_extensions = ignore;
        self
    }

    /// Builds the middleware.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for the first invalid setting.
    pub fn build(self) -> Result<CoalesceMiddleware, ConfigError> {
        CoalesceMiddleware::new(self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_makes_no_sense_is_refused_by_name_and_value() {
        let builder = CoalesceMiddleware::builder;
        let always = "should not be a header that selects the response or carries credentials";
        for (builder, said) in [
            (
                builder().leader_timeout(Duration::ZERO),
                "leader_timeout (0s) should be longer than zero".to_owned(),
            ),
            (
                builder().ignore_header("two words"),
                "ignore_header (\"two words\") should be a valid header name".to_owned(),
            ),
            (
                builder().ignore_header("Authorization"),
                format!("ignore_header (\"Authorization\") {always}"),
            ),
            (
                builder().ignore_header("proxy-authorization"),
                format!("ignore_header (\"proxy-authorization\") {always}"),
            ),
            (
                builder().ignore_header("COOKIE").ignore_header("fine"),
                format!("ignore_header (\"COOKIE\") {always}"),
            ),
            (
                builder().ignore_header("range"),
                format!("ignore_header (\"range\") {always}"),
            ),
        ] {
            assert_eq!(builder.build().unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn credentials_and_selecting_headers_cannot_be_ignored() {
        for name in [
            "accept",
            "accept-charset",
            "accept-encoding",
            "accept-language",
            "api-key",
            "cf-access-jwt-assertion",
            "dpop",
            "idempotency-key",
            "ocp-apim-subscription-key",
            "origin",
            "private-token",
            "signature",
            "x-access-token",
            "x-amz-date",
            "x-amz-security-token",
            "x-api-key",
            "x-auth-key",
            "x-auth-token",
            "x-client-secret",
            "x-consul-token",
            "x-csrf-token",
            "x-forwarded-user",
            "x-functions-key",
            "x-goog-api-key",
            "x-goog-iap-jwt-assertion",
            "x-vault-token",
            "x-xsrf-token",
        ] {
            let builder = CoalesceMiddleware::builder().ignore_header(name);
            assert!(builder.build().is_err(), "{name}");
        }
        for name in ["x-client-start", "user-agent", "x-session"] {
            let builder = CoalesceMiddleware::builder().ignore_header(name);
            assert!(builder.build().is_ok(), "{name}");
        }
    }

    #[test]
    fn the_smallest_and_the_largest_values_are_fine() {
        for (bytes, wait) in [(0, Duration::from_nanos(1)), (usize::MAX, Duration::MAX)] {
            let builder = CoalesceMiddleware::builder().max_body(bytes);
            assert!(builder.leader_timeout(wait).build().is_ok());
        }
    }
}
