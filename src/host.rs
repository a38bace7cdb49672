//! The name by which budgets, throttles, events and metrics know a server, and a bounded table by host.

mod table;

use std::fmt;

use reqwest::Url;
pub(crate) use table::BoundedTable;
use url::Position;

/// The host of a URL, and the port if it is not the scheme's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host<'u>(pub(crate) &'u Url);

impl<'u> Host<'u> {
    /// What it is told apart by in tables: every call looks there, and this is quicker than the text.
    pub(crate) fn parts(self) -> (&'u str, u16) {
        let host = self.0.host_str().unwrap_or_default();
        (host, self.0.port().unwrap_or_default())
    }

    /// Returns the host and its port, without the user info of the URL.
    pub(crate) fn as_str(self) -> &'u str {
        &self.0[Position::BeforeHost..Position::AfterPort]
    }
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_shown_with_its_port_unless_that_goes_without_saying_and_without_a_user() {
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
            assert_eq!(Host(&url).to_string(), expected);
        }
    }
}
