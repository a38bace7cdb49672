//! What takes the place of the secrets that a letter was kept without.

use std::fmt;

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;

use super::{DeadLetter, Redacted};

/// Everything that could mean something else in a query.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Fresh credentials for one server, to [send a dead letter again](DeadLetter::replay).
///
/// They go only to places that were redacted, and only in letters for that host: a token never goes to
/// another server.
///
/// ```
/// use reqwest_steady::Credentials;
///
/// let payments = Credentials::for_host("api.example.com")
///     .header("authorization", "Bearer 4711")
///     .parameter("api_key", "0815");
/// // A middleware inside the client signs each request, or the cookie store adds its cookies:
/// let storage = Credentials::for_host("storage.example.com:8443")
///     .added_by_client("x-signature")
///     .added_by_client("cookie");
/// ```
#[derive(Clone)]
pub struct Credentials {
    host: String,
    /// `None` for a value that cannot stand in a header.
    headers: Vec<(String, Option<HeaderValue>)>,
    parameters: Vec<(String, String)>,
    user_info: Option<(String, String)>,
    added: Vec<String>,
}

impl Credentials {
    /// Credentials for this host, with `:port` after it if that is not the port of the URL's scheme.
    pub fn for_host(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            headers: Vec::new(),
            parameters: Vec::new(),
            user_info: None,
            added: Vec::new(),
        }
    }

    /// The value of a header. Called again with the same name, it adds a line.
    ///
    /// A value that cannot stand in a header is an error when a letter needs it.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref()).ok().map(sensitive);
        self.headers.push((name.into(), value));
        self
    }

    /// The value of a query parameter, without percent-encoding.
    #[must_use]
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// The name and password of a URL. reqwest makes an `authorization` header of them before any
    /// middleware sees the request, so they fill that place as well, unless there is a
    /// [header](Credentials::header) for it.
    #[must_use]
    pub fn user_info(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user_info = Some((name.into(), password.into()));
        self
    }

    /// A header or parameter that needs no value here, because the client or one of its middlewares adds
    /// it.
    #[must_use]
    pub fn added_by_client(mut self, name: impl Into<String>) -> Self {
        self.added.push(name.into());
        self
    }

    /// Whether they may be sent to where this URL leads.
    pub(super) fn are_for(&self, url: &Url) -> bool {
        self.base(url.scheme()).is_some_and(|own| {
            own.host() == url.host() && own.port_or_known_default() == url.port_or_known_default()
        })
    }

    /// Read as a part of such a URL, the host is written the same way as there, and the scheme's own port
    /// is none. `None` if it is no host, or more than that.
    fn base(&self, scheme: &str) -> Option<Url> {
        let own = Url::parse(&format!("{scheme}://{}", self.host)).ok()?;
        let is_host_only = own.host().is_some()
            && own.path().len() <= 1
            && own.query().is_none()
            && own.fragment().is_none()
            && own.username().is_empty()
            && own.password().is_none();
        is_host_only.then_some(own)
    }

    pub(super) fn fill(&self, place: &Redacted) -> Option<Fill<'_>> {
        match place {
            Redacted::UserInfo => self.user_info.as_ref().map(Fill::UserInfo),
            Redacted::Parameter(name) => {
                let mut found = self.parameters.iter().rev();
                match found.find(|(own, _)| own.eq_ignore_ascii_case(name)) {
                    Some((_, value)) => Some(Fill::Parameter(value)),
                    None => self.is_added(name).then_some(Fill::ByClient),
                }
            }
            Redacted::Header(name) => {
                let lines: Vec<_> = (self.headers.iter())
                    .filter(|(own, _)| own.eq_ignore_ascii_case(name.as_str()))
                    .map(|(_, value)| value.as_ref())
                    .collect();
                if !lines.is_empty() {
                    return Some(Fill::Header(lines));
                }
                if self.is_added(name.as_str()) {
                    return Some(Fill::ByClient);
                }
                let is_theirs = *name == http::header::AUTHORIZATION;
                (self.user_info.as_ref().filter(|_| is_theirs)).map(Fill::UserInfo)
            }
        }
    }

    fn is_added(&self, name: &str) -> bool {
        (self.added.iter()).any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// What goes into one place.
pub(super) enum Fill<'a> {
    UserInfo(&'a (String, String)),
    Parameter(&'a str),
    /// One value for each line. `None` cannot stand in a header.
    Header(Vec<Option<&'a HeaderValue>>),
    ByClient,
}

impl DeadLetter {
    /// What fills this place, if these credentials have something for it and may go where the letter
    /// goes.
    pub(super) fn fill<'a>(
        &self,
        place: &Redacted,
        credentials: &[&'a Credentials],
    ) -> Option<Fill<'a>> {
        let mut own = credentials.iter().filter(|each| each.are_for(&self.url));
        own.find_map(|each| each.fill(place))
    }
}

pub(super) fn encoded(value: &str) -> String {
    utf8_percent_encode(value, VALUE).to_string()
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Names, and no values.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        let parameters: Vec<_> = self.parameters.iter().map(|(name, _)| name).collect();
        f.debug_struct("Credentials")
            .field(
                "host",
                &self.base("http").map_or("not a host", |_| &self.host),
            )
            .field("headers", &headers)
            .field("parameters", &parameters)
            .field("user_info", &self.user_info.is_some())
            .field("added_by_client", &self.added)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_for_one_host_and_port() {
        for (host, url, fits) in [
            ("api.example.com", "https://api.example.com/a?b", true),
            ("API.example.com", "http://api.example.com/", true),
            ("api.example.com:443", "https://api.example.com/", true),
            ("api.example.com", "https://api.example.com:8443/", false),
            (
                "api.example.com:8443",
                "https://api.example.com:8443/",
                true,
            ),
            ("api.example.com:8443", "https://api.example.com/", false),
            ("bücher.example", "https://xn--bcher-kva.example/", true),
            ("[::1]:80", "http://[0:0::1]/", true),
            ("example.com", "https://api.example.com/", false),
            (
                "api.example.com",
                "https://api.example.com.evil.org/",
                false,
            ),
            (
                "evil.org@api.example.com",
                "https://api.example.com/",
                false,
            ),
            ("api.example.com/a", "https://api.example.com/a", false),
            ("api.example.com?", "https://api.example.com/", false),
            ("", "https://api.example.com/", false),
            ("", "mailto:a@b", false),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(
                Credentials::for_host(host).are_for(&url),
                fits,
                "{host} {url}"
            );
        }
    }

    #[test]
    fn no_value_is_shown() {
        let credentials = Credentials::for_host("api.example.com")
            .header("authorization", "hidden")
            .parameter("token", "hidden")
            .user_info("hidden", "hidden");
        let shown = format!("{credentials:?}");
        assert!(!shown.contains("hidden"), "{shown}");
        assert!(shown.contains("authorization") && shown.contains("token"));
        // What should not have been given at all.
        let whole = Credentials::for_host("https://me:hidden@api.example.com");
        let shown = format!("{whole:?}");
        assert!(
            shown.contains("not a host") && !shown.contains("hidden"),
            "{shown}"
        );
    }
}
