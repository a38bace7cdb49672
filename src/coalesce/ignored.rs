//! Which parts of a request do not count when two requests are compared.

use http::header::{HeaderName, HeaderValue};

/// Whether this header is for tracing. It places a request in a log and does nothing else.
///
/// `baggage` is not in the list: applications put tenants or features there, and the response may depend on them.
fn is_for_tracing(name: &str) -> bool {
    matches!(
        name,
        "traceparent"
            | "tracestate"
            | "x-request-id"
            | "x-correlation-id"
            | "b3"
            | "x-b3-traceid"
            | "x-b3-spanid"
            | "x-b3-parentspanid"
            | "x-b3-sampled"
            | "x-b3-flags"
    )
}

/// Headers that always count: credentials, and those by which HTTP selects a response
/// (RFC 9110 §7.2, §12.5, §13.1, §14.2).
const NEVER_IGNORED: [&str; 18] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "dpop",
    "x-forwarded-user",
    "x-remote-user",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "host",
    "origin",
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
];

/// AWS spreads its signature over several headers that begin like this.
const NEVER_IGNORED_START: &str = "x-amz-";

/// Credentials in custom headers nearly always end like this: `x-api-key`, `ocp-apim-subscription-key`,
/// `private-token`, `x-csrf-token`, `cf-access-jwt-assertion`.
const NEVER_IGNORED_ENDS: [&str; 7] = [
    "key",
    "token",
    "secret",
    "password",
    "signature",
    "assertion",
    "credential",
];

/// What the comparison of two requests leaves out, besides headers for tracing.
#[derive(Clone, Debug, Default)]
pub(super) struct Ignored {
    /// Names in lower case, from the user. None of them always counts.
    headers: Vec<Box<str>>,
    /// Whether unknown extensions are left out, too.
    pub(super) extensions: bool,
}

impl Ignored {
    /// Adds a header, or returns it if it always counts.
    pub(super) fn add(&mut self, name: HeaderName) -> Result<(), HeaderName> {
        if always_counts(name.as_str()) {
            return Err(name);
        }
        self.headers.push(name.as_str().into());
        Ok(())
    }

    /// Whether the comparison leaves this header out. A sensitive value always counts.
    pub(super) fn has(&self, name: &str, value: &HeaderValue) -> bool {
        let by_user = || self.headers.iter().any(|ignored| **ignored == *name);
        (is_for_tracing(name) || by_user()) && !value.is_sensitive()
    }

    /// Whether the list has this name, in any letter case.
    pub(super) fn has_name(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        is_for_tracing(&name) || self.headers.contains(&name.into())
    }
}

fn always_counts(name: &str) -> bool {
    NEVER_IGNORED.contains(&name)
        || name.starts_with(NEVER_IGNORED_START)
        || NEVER_IGNORED_ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracing_headers_are_ignored_unless_their_value_is_sensitive() {
        let ignored = Ignored::default();
        let mut value = HeaderValue::from_static("1");
        for name in [
            "traceparent",
            "tracestate",
            "x-request-id",
            "x-correlation-id",
            "b3",
            "x-b3-traceid",
            "x-b3-spanid",
            "x-b3-parentspanid",
            "x-b3-sampled",
            "x-b3-flags",
        ] {
            assert!(ignored.has(name, &value), "{name}");
            assert!(ignored.has_name(&name.to_uppercase()), "{name}");
        }
        assert!(!ignored.has("baggage", &value));
        value.set_sensitive(true);
        assert!(!ignored.has("b3", &value));
    }
}
