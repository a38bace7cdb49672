//! Which status codes are worth another try.

use http::StatusCode;

/// What a status code says about sending the same request again.
///
/// The defaults, each of which [`status`](crate::RetryMiddlewareBuilder::status) can change:
///
/// | status | class |
/// |---|---|
/// | 429, 502, 503, 504 | `Retry` |
/// | 408, 425, 500, and every 5xx that is not registered (520–524, 529 …) | `Conditional` |
/// | 409, if the request has a key and an earlier attempt ended without a clear answer | `Conditional` |
/// | everything else | `Never` |
///
/// ```
/// use reqwest::StatusCode;
/// use reqwest_steady::{RetryMiddleware, StatusClass};
///
/// // A store that answers 404 until a new object has spread to all its nodes.
/// let retry = RetryMiddleware::builder()
///     .status(StatusCode::NOT_FOUND, StatusClass::Conditional)
///     .build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusClass {
    /// The server did not take the request on. A repeatable request is retried; any other only
    /// after [`retry_without_key`](crate::RetryMiddlewareBuilder::retry_without_key).
    Retry,
    /// The request may have had its effect. A repeatable request is retried, any other never.
    Conditional,
    /// The answer is final, or another try would end the same way.
    Never,
}

/// The class of a status by itself, before settings and the server's own word.
pub(crate) fn default_class(status: StatusCode) -> StatusClass {
    match status.as_u16() {
        429 | 502 | 503 | 504 => StatusClass::Retry,
        408 | 425 | 500 => StatusClass::Conditional,
        // Registered, and as permanent as a 4xx: not implemented, version not supported, variant
        // also negotiates, insufficient storage, loop detected, not extended, network authentication.
        501 | 505 | 506 | 507 | 508 | 510 | 511 => StatusClass::Never,
        // RFC 9110 §15: a client treats an unknown code as the x00 of its class.
        500..=599 => StatusClass::Conditional,
        _ => StatusClass::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_the_class_of_the_table() {
        for code in 100..=999 {
            let expected = match code {
                429 | 502 | 503 | 504 => StatusClass::Retry,
                408 | 425 | 500 | 509 | 512..=599 => StatusClass::Conditional,
                _ => StatusClass::Never,
            };
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(default_class(status), expected, "{code}");
        }
    }
}
