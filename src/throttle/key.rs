//! What has a throttle of its own.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use reqwest::{Request, Url};

use crate::host::Host;

/// Which requests share one throttle: those with the same key.
///
/// ```
/// use reqwest_steady::{KeyBy, ThrottleMiddleware};
///
/// // Each tenant has a quota of its own at this service:
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
    /// The host, and the port if it is not the scheme's own.
    #[default]
    Host,
    /// The same, and so many segments of the path: with 2, `/v1/orders/7` and `/v1/orders/8` share a
    /// throttle, and `/v1/users` has another.
    HostAndPath(usize),
    /// What a function says; see [`KeyBy::with`].
    With(KeyFn),
}

impl KeyBy {
    /// Asks a function for the key of each request.
    pub fn with(key: impl Fn(&Request) -> String + Send + Sync + 'static) -> Self {
        Self::With(KeyFn(Arc::new(key)))
    }

    pub(super) fn key<'r>(&self, request: &'r Request) -> Key<'r> {
        let url = request.url();
        match self {
            Self::Host => Key::Url { url, path: "" },
            Self::HostAndPath(segments) => Key::Url {
                url,
                path: prefix(url.path(), *segments),
            },
            Self::With(KeyFn(key)) => Key::Text(key(request)),
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
    // The first one is where the first segment begins.
    match slashes.nth(segments) {
        Some(end) => &path[..end],
        None => path.trim_end_matches('/'),
    }
}

/// Longer texts do not leave their memory to others.
const KEPT_TEXT: usize = 256;

/// The key of one request. Its text is made only for a key that is new.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key<'r> {
    Url { url: &'r Url, path: &'r str },
    Text(String),
}

impl Key<'_> {
    /// The same for as long as there is a gate for it.
    pub(super) fn to_owned(&self) -> GateKey {
        let mut key = GateKey::default();
        self.clone_into(&mut key);
        key
    }

    /// The same, in the memory of another that is not needed any more.
    pub(super) fn clone_into(&self, key: &mut GateKey) {
        if key.text.capacity() > KEPT_TEXT {
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

/// The key of a gate. A function of the user's may have made it of anything, of an API key perhaps:
/// such a text is not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct GateKey {
    text: String,
    /// How much of the text is the host. `None` if a function has made it.
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

    /// The text, if it may be shown.
    pub(super) fn public(&self) -> Option<&str> {
        self.host.map(|_| self.text.as_str())
    }

    /// The host of all requests with this key, unless a function may have mixed them.
    pub(super) fn host(&self) -> Option<&str> {
        self.host.map(|end| &self.text[..end])
    }
}

impl fmt::Debug for GateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.public().unwrap_or(".."))
    }
}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Url { url, path } => {
                let (host, port) = Host(url).parts();
                // The port is of one length, so it need not be told where the host ends.
                state.write(host.as_bytes());
                state.write_u16(port);
                // Most have none, and hashing nothing takes its time, too.
                if !path.is_empty() {
                    path.hash(state);
                }
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
