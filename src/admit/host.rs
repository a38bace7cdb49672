//! The name by which a server is known: in budgets, throttles, events and metrics.

use std::fmt;

use reqwest::Url;

const LONGEST_PORT: &str = ":65535";

/// The host of a URL, and the port if it is not the scheme's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host<'u>(pub(crate) &'u Url);

impl<'u> Host<'u> {
    /// Its parts, to tell it from others.
    pub(crate) fn parts(self) -> (&'u str, u16) {
        let host = self.0.host_str().unwrap_or_default();
        (host, self.0.port().unwrap_or_default())
    }

    /// What `to_string` makes, and a path behind it, in one allocation: every call that is observed
    /// needs it.
    pub(crate) fn text(self, path: &str) -> String {
        let host = self.0.host_str().unwrap_or_default();
        let mut text = String::with_capacity(host.len() + LONGEST_PORT.len() + path.len());
        text.push_str(host);
        if let Some(port) = self.0.port() {
            push_port(&mut text, port);
        }
        text.push_str(path);
        text
    }
}

/// Formatting it takes longer than all the rest.
fn push_port(text: &mut String, port: u16) {
    text.push(':');
    let digits = [10_000, 1_000, 100, 10, 1].map(|place| (port / place % 10) as u8);
    let leading = digits.iter().take_while(|digit| **digit == 0).count();
    // A port of 0 is a digit as well.
    for digit in &digits[leading.min(4)..] {
        text.push(char::from(b'0' + digit));
    }
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_shown_in_full_unless_it_goes_without_saying() {
        for port in (0..=u16::MAX).filter(|port| *port != 80) {
            let url = Url::parse(&format!("http://a.example:{port}/b")).unwrap();
            assert_eq!(Host(&url).text("/b"), format!("a.example:{port}/b"));
        }
        for (url, expected) in [
            ("http://a.example:80/b", "a.example"),
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
