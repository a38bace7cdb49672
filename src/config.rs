//! Invalid settings: the error that names them, and the checks that several builders share. Also how settings are held
//! while calls use them, and how they are written in files.

#[cfg(feature = "serde")]
pub(crate) mod choice;
mod current;
#[cfg(feature = "schema")]
pub(crate) mod schema;
mod shown;
#[cfg(feature = "serde")]
pub(crate) mod text;
mod timers;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use http::HeaderName;

pub(crate) use current::Current;
pub(crate) use shown::{ShownSettings, Written, or_none};
pub(crate) use timers::Timers;

/// Reports an invalid setting. The message names the setting and its value.
///
/// Builders return it from `build`. It is also the source of the [`SteadyError`](crate::SteadyError) of a call that
/// fails before anything is sent, in these cases:
///
/// - The body of `body_with`, `multipart_with` or `file` was replaced.
/// - The `Content-Type` or `Content-Length` of the request belongs to another body.
/// - The `attempt_timeout` of the request is zero.
/// - A download is not a `GET`, has a `Range` header or a streaming body, or has an invalid setting.
/// - The runtime has no timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    setting: Cow<'static, str>,
    value: String,
    rule: String,
}

impl ConfigError {
    pub(crate) fn new(
        setting: &'static str,
        value: impl fmt::Display,
        rule: impl fmt::Display,
    ) -> Self {
        Self {
            setting: Cow::Borrowed(setting),
            value: value.to_string(),
            rule: rule.to_string(),
        }
    }

    /// Names the setting by its place in [`SteadySettings`](crate::SteadySettings).
    pub(crate) fn within(mut self, section: &str) -> Self {
        // A space in a name separates a section from its setting: `backoff base` becomes `retry.backoff.base`.
        self.setting = format!("{section}.{}", self.setting.replace(' ', ".")).into();
        self
    }
}

impl ConfigError {
    /// Returns the name of the setting, as in its builder.
    ///
    /// Errors of [`Steady`](crate::Steady) and its builder, and of
    /// [`SteadySettings::check`](crate::SteadySettings::check), have the place in the settings: `retry.deadline`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use reqwest_steady::RetryMiddleware;
    ///
    /// let error = RetryMiddleware::builder().deadline(Duration::ZERO).build().unwrap_err();
    /// assert_eq!(error.setting(), "deadline");
    /// assert_eq!(error.value(), "0s");
    /// assert_eq!(error.to_string(), "deadline (0s) should be longer than zero");
    /// ```
    pub fn setting(&self) -> &str {
        &self.setting
    }

    /// Returns the invalid value, as text.
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {}", self.setting, self.value, self.rule)
    }
}

impl std::error::Error for ConfigError {}

/// Refuses a value that breaks the rule of its setting.
pub(crate) fn ensure(
    is_valid: bool,
    setting: &'static str,
    value: impl fmt::Debug,
    rule: impl fmt::Display,
) -> Result<(), ConfigError> {
    if is_valid {
        return Ok(());
    }
    Err(ConfigError::new(setting, format_args!("{value:?}"), rule))
}

/// Refuses a duration of zero.
pub(crate) fn longer_than_zero(
    setting: &'static str,
    value: Option<Duration>,
) -> Result<(), ConfigError> {
    let zero = Duration::ZERO;
    let rule = "should be longer than zero";
    ensure(value != Some(zero), setting, Written(zero), rule)
}

/// Refuses another value for a setting that cannot change while the client runs. Both are as files have them.
pub(crate) fn fixed_while_running(
    setting: &'static str,
    old: impl ToString,
    new: impl ToString,
) -> Result<(), ConfigError> {
    let (old, new) = (old.to_string(), new.to_string());
    if new == old {
        return Ok(());
    }
    let rule = format!("cannot replace {old} while the client runs: build a new client");
    Err(ConfigError::new(setting, new, rule))
}

/// Parses the name of a header.
pub(crate) fn header_name(setting: &'static str, name: &str) -> Result<HeaderName, ConfigError> {
    let rule = "should be a valid header name";
    name.parse()
        .map_err(|_| ConfigError::new(setting, format_args!("{name:?}"), rule))
}

/// Returns whether a header has one of these names. A `*` stands for the rest of a name, or for its beginning.
pub(crate) fn is_listed(header: &HeaderName, patterns: &str) -> bool {
    let name = header.as_str();
    patterns
        .split(' ')
        .any(|pattern| match pattern.split_once('*') {
            Some((start, end)) => name.starts_with(start) && name.ends_with(end),
            None => name == pattern,
        })
}

/// The effect of headers with credentials, in [`RESERVED`] and in error messages.
pub(crate) const CREDENTIALS: &str = "carries credentials";

/// Headers with a meaning in HTTP, by their effect, as patterns for [`is_listed`].
///
/// A number or key in one of them would break the message, redirect it, replace credentials or change its meaning.
/// `dead_letter::Secrets` has the names that servers invented for credentials.
const RESERVED: [(&str, &str); 5] = [
    (
        // RFC 9112 §6 and §7, RFC 9110 §7.6.1 and §10.1.1, RFC 9113 §8.2.2.
        "frames messages or controls connections",
        "connection content-length expect http2-settings keep-alive proxy-connection sec-* te \
         trailer transfer-encoding upgrade",
    ),
    (
        // RFC 9110 §7.2, §7.6.2 and §7.6.3, RFC 7239, and what gateways and frameworks interpret.
        "routes or rewrites requests",
        "forwarded host max-forwards via x-forwarded-* x-http-method x-http-method-override \
         x-method-override x-original-url x-real-ip x-rewrite-url",
    ),
    (
        // RFC 9110 §11, RFC 6265 §5.4, RFC 9449, RFC 9421.
        CREDENTIALS,
        "authorization cookie dpop proxy-* signature signature-input",
    ),
    // RFC 9110 §8, RFC 9530.
    ("describes the body", "content-* repr-digest"),
    (
        // RFC 9110 §12.5, §13.1 and §14.2, RFC 9111 §5.
        "selects the response",
        "accept accept-* cache-control if-* pragma range",
    ),
];

/// Parses the name of a header that a setting writes into each request. Reserved names are invalid.
pub(crate) fn unreserved_header_name(
    setting: &'static str,
    name: &str,
) -> Result<HeaderName, ConfigError> {
    let header = header_name(setting, name)?;
    match (RESERVED.iter()).find(|(_, patterns)| is_listed(&header, patterns)) {
        None => Ok(header),
        Some((effect, _)) => Err(reserved(setting, name, effect)),
    }
}

/// Returns the error of a setting that names a reserved header.
pub(crate) fn reserved(
    setting: &'static str,
    name: &str,
    effect: impl fmt::Display,
) -> ConfigError {
    ConfigError::new(
        setting,
        format_args!("{name:?}"),
        format_args!("should not be a reserved header: this one {effect}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_with_a_meaning_in_http_are_reserved_and_no_others() {
        for (_, patterns) in RESERVED {
            for pattern in patterns.split(' ') {
                let name = pattern.replace('*', "anything").to_uppercase();
                let refused = unreserved_header_name("attempt_header", &name).unwrap_err();
                assert!(refused.to_string().contains(&name), "{refused}");
            }
        }
        for name in [
            "attempt",
            "Idempotency-Key",
            "PayPal-Request-Id",
            "X-Amz-Client-Token",
            "x-attempt",
            "x-ms-client-request-id",
            "x-request-id",
        ] {
            assert!(
                unreserved_header_name("attempt_header", name).is_ok(),
                "{name}"
            );
        }
    }
}
