//! The name by which a server is known: in budgets, throttles, events and metrics.

use std::fmt;

use reqwest::Url;

/// The host of a URL, and the port if it is not the scheme's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host<'u>(pub(crate) &'u Url);

impl<'u> Host<'u> {
    /// What it is told apart by in tables: every call looks there, and this is quicker than the text.
    pub(crate) fn parts(self) -> (&'u str, u16) {
        let host = self.0.host_str().unwrap_or_default();
        (host, self.0.port().unwrap_or_default())
    }

    /// A part of the URL's own text. Whoever is let in there has no part in it.
    pub(crate) fn as_str(self) -> &'u str {
        let host = self.0.host_str().unwrap_or_default();
        let Some(port) = self.0.port() else {
            return host;
        };
        // The port follows the host, in as many digits as it takes.
        let whole = self.0.as_str();
        let start = host.as_ptr() as usize - whole.as_ptr() as usize;
        let digits = port.checked_ilog10().unwrap_or_default() as usize + 1;
        let end = start + host.len() + 1 + digits;
        whole.get(start..end).unwrap_or(host)
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
