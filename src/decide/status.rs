//! The default class of each status code.

use http::StatusCode;

/// Says whether a status allows a retry.
///
/// [`status`](crate::RetryMiddlewareBuilder::status) changes the class of a status.
///
/// Default:
///
/// | status | class |
/// |---|---|
/// | 429, 502, 503, 504 | `Retry` |
/// | 408, 425, 500, and every unregistered 5xx (520 to 524, 529 …) | `Conditional` |
/// | 409, if the request has a key and an earlier attempt may have taken effect | `Conditional` |
/// | everything else | `Never` |
///
/// ```
/// use reqwest::StatusCode;
/// use reqwest_steady::{RetryMiddleware, StatusClass};
///
/// // This store returns 404 until a new object has reached all its nodes.
/// let retry = RetryMiddleware::builder()
///     .status(StatusCode::NOT_FOUND, StatusClass::Conditional)
///     .build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum StatusClass {
    /// The server did not accept the request. Idempotent requests are retried. Others are retried only with
    /// [`retry_without_key`](crate::RetryMiddlewareBuilder::retry_without_key).
    Retry,
    /// The request may have taken effect. Only idempotent requests are retried.
    Conditional,
    /// The response is final: a retry would end the same way.
    Never,
}

#[cfg(feature = "serde")]
impl crate::config::choice::Choice for StatusClass {
    const FORMS: &'static str = "\"retry\", \"conditional\" or \"never\"";
}

/// Returns the class of a status before settings and directives.
pub(crate) fn default_class(status: StatusCode) -> StatusClass {
    match status.as_u16() {
        429 | 502 | 503 | 504 => StatusClass::Retry,
        408 | 425 | 500 => StatusClass::Conditional,
        // Registered and permanent: not implemented, version not supported, variant also negotiates,
        // insufficient storage, loop detected, not extended, network authentication required.
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
