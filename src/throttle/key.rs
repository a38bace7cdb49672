//! Keys: which requests share one gate.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use reqwest::Request;
use url::Position;

use crate::hashed::hash_of;
use crate::host::host_of;

/// Selects which requests share the limits of a throttle.
///
/// ```
/// use reqwest_steady::{KeyBy, ThrottleMiddleware};
///
/// // This service has one quota per tenant:
/// let throttle = ThrottleMiddleware::builder()
///     .key_by(KeyBy::from_fn(|request| {
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
    /// The key that a function returns; see [`KeyBy::from_fn`].
    FromFn(KeyFn),
}

impl KeyBy {
    /// Uses a function that returns the key of each request.
    pub fn from_fn(key: impl Fn(&Request) -> String + Send + Sync + 'static) -> Self {
        Self::FromFn(KeyFn(Arc::new(key)))
    }

    pub(super) fn key<'r>(&self, request: &'r Request) -> GateKey<'r> {
        let url = request.url();
        let host = host_of(url);
        match self {
            Self::Host => GateKey::new(host, Some(host.len())),
            Self::HostAndPath(segments) => {
                // In a URL, the path follows the host.
                let length = host.len() + prefix(url.path(), *segments).len();
                let text = &url[Position::BeforeHost..][..length];
                GateKey::new(text, Some(host.len()))
            }
            Self::FromFn(KeyFn(key)) => GateKey::new(key(request), None),
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

/// The key of a gate, or of a request, which borrows the text from its URL.
///
/// A key from a user's function may contain a secret, like an API key, so it is never shown.
pub(super) struct GateKey<'r> {
    pub(super) text: Cow<'r, str>,
    /// The length of the host at the start of `text`. `None` if a user's function made the key.
    host: Option<usize>,
}

impl<'r> GateKey<'r> {
    pub(super) fn new(text: impl Into<Cow<'r, str>>, host: Option<usize>) -> Self {
        let text = text.into();
        Self { text, host }
    }

    pub(super) fn to_owned(&self) -> GateKey<'static> {
        GateKey::new((*self.text).to_owned(), self.host)
    }

    /// Writes the key over another one, and reuses its memory unless that is much.
    pub(super) fn clone_into(&self, key: &mut GateKey<'static>) {
        let text = key.text.to_mut();
        if text.capacity() > 256 {
            *text = String::new();
        }
        (*self.text).clone_into(text);
        key.host = self.host;
    }

    pub(super) fn hash(&self) -> u64 {
        hash_of(&*self.text)
    }

    pub(super) fn host_hash(&self) -> u64 {
        hash_of(self.host().unwrap_or_default())
    }

    /// Whether the text may be shown.
    pub(super) fn is_public(&self) -> bool {
        self.host.is_some()
    }

    /// Returns the host of all requests with this key. `None` if a user's function made the key.
    pub(super) fn host(&self) -> Option<&str> {
        self.host.map(|end| &self.text[..end])
    }
}

impl fmt::Debug for GateKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if self.is_public() { &self.text } else { ".." };
        shown.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_host_and_as_much_of_the_path_as_asked_for() {
        let key = |by: KeyBy, url: &str| {
            let request = Request::new(http::Method::GET, url.parse().unwrap());
            by.key(&request).text.into_owned()
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
        assert_eq!(key(KeyBy::from_fn(|_| "mine".into()), url), "mine");
    }
}
