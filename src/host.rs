//! The host of a URL, and a bounded table of values by key.
//!
//! Budgets, throttles, events and metrics name a server by its host. Budgets and throttles keep their state of each
//! host in a [`BoundedTable`], so that many hosts cannot exhaust memory.

mod table;

use reqwest::Url;
pub(crate) use table::BoundedTable;
use url::Position;

use crate::hashed::hash_of;

/// Returns the host of a URL, and its port unless it is the default port of the scheme.
pub(crate) fn host_of(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::AfterPort]
}

/// Where the host is in a URL, and the hash of its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPlace {
    start: usize,
    end: usize,
    pub(crate) hash: u64,
}

impl HostPlace {
    pub(crate) fn of(url: &Url) -> Self {
        let start = url[..Position::BeforeHost].len();
        let end = url[..Position::AfterPort].len();
        let hash = hash_of(&url.as_str()[start..end]);
        Self { start, end, hash }
    }

    /// Returns host and port. `url` is the URL given to `of`, or a copy of it.
    pub(crate) fn text(self, url: &Url) -> &str {
        &url.as_str()[self.start..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_shows_its_port_unless_it_is_the_default_and_no_user() {
        for (url, expected) in [
            ("http://a.example:80/b", "a.example"),
            ("http://a.example:0/b", "a.example:0"),
            ("http://a.example:65535/b", "a.example:65535"),
            ("http://user:pass@A.example:8080/b@c", "a.example:8080"),
            ("http://us%40er:p@ss@a.example/", "a.example"),
            ("https://a.example:443", "a.example"),
            ("https://a.example:80", "a.example:80"),
            ("http://[::1]:8080/", "[::1]:8080"),
            ("data:text", ""),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(host_of(&url), expected);
        }
    }
}
