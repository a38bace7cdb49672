//! The name by which a server is known: in budgets, throttles, events and metrics.

use std::fmt;

use reqwest::Url;

/// The host of a URL, and the port if it is not the scheme's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host<'u>(pub(crate) &'u Url);

impl<'u> Host<'u> {
    /// Its parts, to tell it from others.
    pub(crate) fn parts(self) -> (&'u str, u16) {
        let host = self.0.host_str().unwrap_or_default();
        (host, self.0.port().unwrap_or_default())
    }
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.host_str().unwrap_or_default())?;
        match self.0.port() {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}
