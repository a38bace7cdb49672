//! Keys: which requests share one gate.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use reqwest::{Request, Url};

use crate::host::Host;

/// Selects which requests share one gate: those with the same key.
///
/// ```
/// use reqwest_steady::{KeyBy, ThrottleMiddleware};
///
/// // This service has one quota per tenant:
/// let throttle = ThrottleMiddleware::builder()
///     .key_by(KeyBy::with(|request| {
///         let tenant = request.headers().get("x-tenant");
///         let tenant = tenant.and_then(|name| name.to_str().ok());
///         tenant.unwrap_or_default().to_owned()
///     }))
///     .build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum KeyBy {
    /// The host, and the port if it is not the default of the scheme.
    #[default]
    Host,
    /// The host, the port and this many segments of the path.
    ///
    /// With 2, `/v1/orders/7` and `/v1/orders/8` share a gate, and `/v1/users` has another.
    HostAndPath(usize),
    /// The key that a function returns; see [`KeyBy::with`].
    With(KeyFn),
}

impl KeyBy {
    /// Uses a function that returns the key of each request.
    pub fn with(key: impl Fn(&Request) -> String + Send + Sync + 'static) -> Self {
        Self::With(KeyFn(Arc::new(key)))
    }

    pub(super) fn key<'r>(&self, request: &'r Request) -> RequestKey<'r> {
        let url = request.url();
        match self {
            Self::Host => RequestKey::Url { url, path: "" },
            Self::HostAndPath(segments) => RequestKey::Url {
                url,
                path: prefix(url.path(), *segments),
            },
            Self::With(KeyFn(key)) => RequestKey::Text(key(request)),
        }
    }
}

/// A function from requests to keys.
#[derive(Clone)]
pub struct KeyFn(Arc<dyn Fn(&Request) -> String + Send + Sync>);

impl fmt::Debug for KeyFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFn(..)")
    }
}

fn prefix(path: &str, segments: usize) -> &str {
    let mut slashes = path.match_indices('/').map(|(at, _)| at);
    // The first segment begins at the first slash.
    match slashes.nth(segments) {
        Some(end) => &path[..end],
        None => path.trim_end_matches('/'),
    }
}

/// The memory of longer texts is not reused.
const MAX_REUSED: usize = 256;

/// The key of one request. It becomes a [`GateKey`] only for a new gate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestKey<'r> {
    Url { url: &'r Url, path: &'r str },
    Text(String),
}

impl RequestKey<'_> {
    pub(super) fn to_owned(&self) -> GateKey {
        let mut key = GateKey::default();
        self.clone_into(&mut key);
        key
    }

    /// Writes the key over another one, and reuses its memory.
    pub(super) fn clone_into(&self, key: &mut GateKey) {
        if key.text.capacity() > MAX_REUSED {
            key.text = String::new();
        }
        key.text.clear();
        match self {
            Self::Url { url, path } => {
                let host = Host(url).as_str();
                key.text.reserve(host.len() + path.len());
                key.text.push_str(host);
                key.text.push_str(path);
                key.host = Some(host.len());
            }
            Self::Text(text) => {
                key.text.push_str(text);
                key.host = None;
            }
        }
    }
}

/// The key of a gate.
///
/// A key from a user's function may contain a secret, like an API key, so it is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct GateKey {
    text: String,
    /// The length of the host at the start of `text`. `None` if a user's function made the key.
    host: Option<usize>,
}

impl GateKey {
    #[cfg(test)]
    pub(super) fn shown(text: &str) -> Self {
        Self {
            text: text.into(),
            host: Some(text.len()),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text if it may be shown.
    pub(super) fn public(&self) -> Option<&str> {
        self.host.map(|_| self.text.as_str())
    }

    /// Returns the host of all requests with this key. `None` if a user's function made the key.
    pub(super) fn host(&self) -> Option<&str> {
        self.host.map(|end| &self.text[..end])
    }
}

impl fmt::Debug for GateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.public().unwrap_or(".."))
    }
}

impl Hash for RequestKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Url { url, path } => {
                let (host, port) = Host(url).parts();
                // The port has a fixed length, so nothing needs to mark the end of the host.
                state.write(host.as_bytes());
                state.write_u16(port);
                path.hash(state);
            }
            Self::Text(text) => text.hash(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_host_and_as_much_of_the_path_as_asked_for() {
        let key = |by: KeyBy, url: &str| {
            let request = Request::new(http::Method::GET, url.parse().unwrap());
            by.key(&request).to_owned().text
        };
        let url = "https://user:secret@api.example.com/v1/orders/7?page=2#top";
        assert_eq!(key(KeyBy::Host, url), "api.example.com");
        assert_eq!(key(KeyBy::Host, "http://[::1]:8080/"), "[::1]:8080");
        for (segments, expected) in [
            (0, "api.example.com"),
            (1, "api.example.com/v1"),
            (2, "api.example.com/v1/orders"),
            (3, "api.example.com/v1/orders/7"),
            (9, "api.example.com/v1/orders/7"),
        ] {
            assert_eq!(key(KeyBy::HostAndPath(segments), url), expected);
        }
        // With and without a slash at the end.
        let by = || KeyBy::HostAndPath(2);
        assert_eq!(key(by(), "http://a/v1/"), key(by(), "http://a/v1"));
        assert_eq!(key(KeyBy::with(|_| "mine".into()), url), "mine");
    }
}
