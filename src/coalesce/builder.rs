//! Settings of the coalescing middleware: defaults, and every check.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::flight::Flights;
use super::identity::Ignored;
use crate::coalesce::CoalesceMiddleware;
use crate::config::{ConfigError, Timers, header_name, longer_than_zero};
use crate::log::{coalesce_inside_retry, unknown_extensions};

/// What a [`CoalesceMiddleware`] goes by. Checked, and never changed again.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) max_body: usize,
    pub(crate) max_wait: Duration,
    pub(crate) ignored: Ignored,
    warned_of_extensions: AtomicBool,
    warned_of_order: AtomicBool,
    pub(crate) timers: Timers,
}

impl Settings {
    /// Says so once.
    pub(crate) fn warn_of_unknown_extensions(&self) {
        if !self.warned_of_extensions.swap(true, Ordering::Relaxed) {
            unknown_extensions();
        }
    }

    /// Says so once.
    pub(crate) fn warn_of_order(&self) {
        if !self.warned_of_order.swap(true, Ordering::Relaxed) {
            coalesce_inside_retry();
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_body: 1024 * 1024,
            max_wait: Duration::from_secs(75),
            ignored: Ignored::default(),
            warned_of_extensions: AtomicBool::new(false),
            warned_of_order: AtomicBool::new(false),
            timers: Timers::default(),
        }
    }
}

/// Builds a [`CoalesceMiddleware`]. A value that makes no sense is refused in
/// [`build`](CoalesceMiddlewareBuilder::build).
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::CoalesceMiddleware;
///
/// let coalesce = CoalesceMiddleware::builder()
///     .max_body(64 * 1024)
///     .max_wait(Duration::from_secs(5))
///     .ignore_header("X-Client-Start")
///     .build()?;
///
/// let refused = CoalesceMiddleware::builder().ignore_header("Cookie").build();
/// assert_eq!(
///     refused.unwrap_err().to_string(),
///     "ignore_header (\"Cookie\") should not be a header that selects the answer or carries credentials",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct CoalesceMiddlewareBuilder {
    settings: Settings,
    /// The first setting that could not even be stored.
    refused: Option<ConfigError>,
}

impl CoalesceMiddlewareBuilder {
    /// Answers with a body of more bytes than this are not shared. So much is held in memory for each
    /// answer that several wait for. Default: 1 MiB.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.settings.max_body = bytes;
        self
    }

    /// How long the others wait for one request before the next of them is sent as well; the first
    /// answer is then for all. Who has waited for three goes on alone.
    ///
    /// Default: 75 s. A retry inside may be keeping a pause that the server asked for, of up to 60 s
    /// by default ([`max_server_delay`](crate::RetryMiddlewareBuilder::max_server_delay)), and who is
    /// sent before its end does what the server asked not to do. Without such pauses, a little more
    /// than the longest that an answer should take is a good value.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.settings.max_wait = wait;
        self
    }

    /// Requests that differ in this header only are the same. For headers on which no answer depends;
    /// an answer that names it in `Vary` is not shared.
    ///
    /// Those of tracing are ignored anyway: `traceparent`, `tracestate`, `b3`, `x-b3-*`,
    /// `x-request-id` and `x-correlation-id`. Credentials, and what selects another answer by the
    /// rules of HTTP (`Accept`, `Range`, `If-None-Match` …), can not be ignored: neither `x-amz-*`, nor
    /// a name that ends in `key`, `token`, `secret`, `password`, `signature`, `assertion` or
    /// `credential`, nor a value that is marked as
    /// [sensitive](http::HeaderValue::set_sensitive). Nobody knows credentials in other headers of
    /// your own: do not name them here.
    pub fn ignore_header(mut self, name: impl AsRef<str>) -> Self {
        let setting = "ignore_header";
        let name = name.as_ref();
        let added = header_name(setting, name).and_then(|header| {
            let rule = "should not be a header that selects the answer or carries credentials";
            let ignored = self.settings.ignored.add(header);
            ignored.map_err(|_| ConfigError::new(setting, format_args!("{name:?}"), rule))
        });
        if let Err(error) = added {
            self.refused.get_or_insert(error);
        }
        self
    }

    /// Requests are the same whatever their extensions hold.
    ///
    /// Extensions cannot be compared. A request in which another middleware, or `with_extension`, has
    /// put something is therefore not shared, unless all of it comes from this crate: it may name the
    /// user for whom an inner middleware adds credentials. Call this if nothing of that kind is inside.
    pub fn ignore_extensions(mut self) -> Self {
        self.settings.ignored.extensions = true;
        self
    }

    /// The middleware, or what is wrong with its settings.
    pub fn build(self) -> Result<CoalesceMiddleware, ConfigError> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        longer_than_zero("max_wait", Some(self.settings.max_wait))?;
        Ok(CoalesceMiddleware {
            flights: Flights::new(self.settings.max_wait),
            settings: Arc::new(self.settings),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_makes_no_sense_is_refused_by_name_and_value() {
        let builder = CoalesceMiddleware::builder;
        let always = "should not be a header that selects the answer or carries credentials";
        for (builder, said) in [
            (
                builder().max_wait(Duration::ZERO),
                "max_wait (0ns) should be longer than zero".to_owned(),
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
    fn credentials_and_what_selects_the_answer_can_not_be_ignored() {
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
            assert!(builder.max_wait(wait).build().is_ok());
        }
    }
}
