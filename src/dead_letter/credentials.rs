//! Fresh credentials, which replace the redacted secrets of a letter at its replay.

use std::fmt;

use http::HeaderValue;
use reqwest::Url;
use url::Position;

use super::Redacted;

/// Holds fresh credentials for one host, to [replay a dead letter](crate::dead_letter::DeadLetter::replay).
///
/// They replace only what was redacted, and only in letters for this host. So a token is never sent to another
/// server.
///
/// ```
/// use reqwest_steady::dead_letter::Credentials;
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
    /// The value is `None` if it is invalid in a header.
    headers: Vec<(String, Option<HeaderValue>)>,
    parameters: Vec<(String, String)>,
    user_info: Option<(String, String)>,
    /// Names of headers and parameters that the client adds itself.
    added: Vec<String>,
}

impl Credentials {
    /// Creates empty credentials for a host. Append `:port` if it is not the default port of the scheme.
    pub fn for_host(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            headers: Vec::new(),
            parameters: Vec::new(),
            user_info: None,
            added: Vec::new(),
        }
    }

    /// Adds the value of a header. A second call with the same name adds another line.
    ///
    /// If a letter needs a value that is invalid in a header, its replay fails with
    /// [`ReplayError::Invalid`](crate::dead_letter::ReplayError::Invalid).
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref()).ok().map(sensitive);
        self.headers.push((name.into(), value));
        self
    }

    /// Adds the value of a query parameter, without percent-encoding.
    #[must_use]
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// Sets the user name and password of the URL.
    ///
    /// reqwest turns them into an `authorization` header before any middleware sees the request. So they also
    /// replace that header, unless there is a [header](Credentials::header) for it.
    #[must_use]
    pub fn user_info(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user_info = Some((name.into(), password.into()));
        self
    }

    /// Marks a header or parameter as one that the client or a middleware adds itself.
    ///
    /// A replay then needs no value for it.
    #[must_use]
    pub fn added_by_client(mut self, name: impl Into<String>) -> Self {
        self.added.push(name.into());
        self
    }

    /// Returns whether the URL has the host and port of these credentials.
    pub(super) fn are_for(&self, url: &Url) -> bool {
        self.base(url.scheme()).is_some_and(|own| {
            own.host() == url.host() && own.port_or_known_default() == url.port_or_known_default()
        })
    }

    /// Parses the host as a URL of this scheme, so that it can be compared with the host of a letter.
    ///
    /// Both sides then agree on default ports and international names. Returns `None` if the text is not exactly
    /// a host with an optional port.
    fn base(&self, scheme: &str) -> Option<Url> {
        let own = Url::parse(&format!("{scheme}://{}", self.host)).ok()?;
        let before = &own[Position::AfterScheme..Position::BeforeHost];
        let after = &own[Position::AfterPort..];
        let is_host_only = own.has_host() && before == "://" && matches!(after, "" | "/");
        is_host_only.then_some(own)
    }

    /// Returns the replacement for a redacted place, if there is one.
    pub(super) fn fill(&self, place: &Redacted) -> Option<Fill<'_>> {
        let user_info = self.user_info.as_ref().map(Fill::UserInfo);
        match place {
            Redacted::UserInfo => user_info,
            Redacted::Parameter(name) => {
                let mut found = self.parameters.iter().rev();
                let found = found.find(|(own, _)| own.eq_ignore_ascii_case(name));
                let given = found.map(|(_, value)| Fill::Parameter(value));
                given.or_else(|| self.by_client(name))
            }
            Redacted::Header(name) => {
                let lines: Vec<_> = (self.headers.iter())
                    .filter(|(own, _)| own.eq_ignore_ascii_case(name.as_str()))
                    .map(|(_, value)| value.as_ref())
                    .collect();
                let given = (!lines.is_empty()).then_some(Fill::Header(lines));
                let user_info = user_info.filter(|_| *name == http::header::AUTHORIZATION);
                (given.or_else(|| self.by_client(name.as_str()))).or(user_info)
            }
        }
    }

    fn by_client(&self, name: &str) -> Option<Fill<'_>> {
        let is_added = (self.added.iter()).any(|own| own.eq_ignore_ascii_case(name));
        is_added.then_some(Fill::ByClient)
    }
}

/// The replacement for one redacted place.
pub(super) enum Fill<'a> {
    UserInfo(&'a (String, String)),
    Parameter(&'a str),
    /// One value per line. `None` is an invalid value.
    Header(Vec<Option<&'a HeaderValue>>),
    /// The client adds the value itself.
    ByClient,
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Shows names and no values.
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
        // A whole URL is invalid here, and may contain a password.
        let whole = Credentials::for_host("https://me:hidden@api.example.com");
        let shown = format!("{whole:?}");
        assert!(
            shown.contains("not a host") && !shown.contains("hidden"),
            "{shown}"
        );
    }
}
