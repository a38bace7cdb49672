//! Which parts of a request do not count when two requests are compared.

use http::HeaderValue;

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
///
/// AWS spreads its signature over several headers. Credentials in custom headers nearly always have one of these
/// endings: `x-api-key`, `ocp-apim-subscription-key`, `private-token`, `x-csrf-token`, `cf-access-jwt-assertion`.
pub(super) const NEVER_IGNORED: &str = "accept accept-charset accept-encoding accept-language authorization \
    cookie dpop host if-match if-modified-since if-none-match if-range if-unmodified-since origin \
    proxy-authorization range x-amz-* x-forwarded-user x-remote-user \
    *assertion *credential *key *password *secret *signature *token";

/// What the comparison of two requests leaves out, besides headers for tracing.
#[derive(Clone, Debug, Default)]
pub(super) struct Ignored {
    /// Names in lower case, from the user. None of them always counts.
    pub(super) headers: Vec<Box<str>>,
    /// Whether unknown extensions are left out, too.
    pub(super) extensions: bool,
}

impl Ignored {
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
