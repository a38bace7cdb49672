//! Finds secrets in a request by their names, and redacts them.
//!
//! The query is changed as text and not parsed and rebuilt, so that a signature over the other parameters stays
//! valid.

mod names;

use std::borrow::Cow;
use std::fmt;

use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use reqwest::Url;

#[cfg(feature = "serde")]
use crate::config::text;

/// Replaces a secret in a URL. It needs no percent-encoding.
pub(crate) const PLACEHOLDER: &str = "REDACTED";

/// Decides which headers and query parameters are secret, by their names.
///
/// A header or parameter is secret if a word of its name says so, as in `Authorization`, `X-Api-Key`, `access_token` or
/// `userPassword`. A header whose value is marked as [sensitive](HeaderValue::is_sensitive) is always secret. The
/// idempotency key is never secret, because a dead letter could not be replayed without it. Add other names here.
///
/// ```
/// use reqwest_steady::dead_letter::Secrets;
///
/// let secrets = Secrets::default()
///     .header("x-tenant")     // a secret, though its name does not say so
///     .parameter("ticket")
///     .keep("page_token");    // no secret, though its name says so
/// ```
///
/// A parameter named `code` is secret, because OAuth uses it for authorization codes. So are `device_code`,
/// `verification_code` and a few more, but not other names such as `country_code`. If your `code` is not secret, use
/// `keep("code")`. Otherwise give it again before a replay, with [`Credentials`](crate::dead_letter::Credentials).
///
/// Bodies are not searched, and a letter keeps them unchanged. That includes the form of an OAuth token request. Use a
/// client without dead letters for such calls, or one with `dead_letter_max_body(0)`.
///
/// The user info of a URL is always secret. The path never is, because it has no names. A header or parameter that
/// contains a URL with a secret is secret as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "a table of settings")
)]
pub struct Secrets {
    /// Headers that are secret in addition to those with a telling name.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "header", deserialize_with = "text::list")
    )]
    headers: Vec<String>,
    /// Parameters that are secret in addition to those with a telling name.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "parameter", deserialize_with = "text::list")
    )]
    parameters: Vec<String>,
    /// Names that are not secret, unless the other lists have them.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "keep", deserialize_with = "text::list")
    )]
    kept: Vec<String>,
}

impl Secrets {
    /// Creates the default rules, which only look at names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a header secret.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>) -> Self {
        self.headers.push(name.into());
        self
    }

    /// Makes a query parameter secret.
    #[must_use]
    pub fn parameter(mut self, name: impl Into<String>) -> Self {
        self.parameters.push(name.into());
        self
    }

    /// Keeps a header or parameter whose name looks secret but is not.
    ///
    /// This does not override [`header`](Secrets::header), [`parameter`](Secrets::parameter), or a header value that is
    /// marked as sensitive.
    #[must_use]
    pub fn keep(mut self, name: impl Into<String>) -> Self {
        self.kept.push(name.into());
        self
    }

    /// Iterates over the headers that were made secret.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(String::as_str)
    }

    /// Iterates over the query parameters that were made secret.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(String::as_str)
    }

    /// Iterates over the names that are kept although they look secret.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(String::as_str)
    }

    /// Returns whether a header is secret. `key_header` is the header of the idempotency key.
    pub(crate) fn is_secret_header(
        &self,
        name: &HeaderName,
        value: &HeaderValue,
        key_header: &HeaderName,
    ) -> bool {
        let text = value.to_str().unwrap_or_default();
        // This crate marks keys as sensitive, so the name of the key's header comes first.
        name != key_header
            && (value.is_sensitive() || self.is_secret(name.as_str(), text, &self.headers))
    }

    /// Returns whether the name of a header stands for credentials, and not for the key of an operation.
    pub(crate) fn names_credentials(&self, name: &HeaderName) -> bool {
        let name = name.as_str();
        let is_kept = self.kept.iter().any(|kept| kept.eq_ignore_ascii_case(name));
        !is_kept && names::sounds_secret(name) && !names::sounds_like_operation(name)
    }

    /// Returns whether a header or parameter is secret. `name` is percent-decoded, and `named` has the names that the
    /// user added.
    fn is_secret(&self, name: &str, value: &str, named: &[String]) -> bool {
        let is_in = |list: &[String]| list.iter().any(|entry| entry.eq_ignore_ascii_case(name));
        is_in(named)
            || (!is_in(&self.kept)
                && (names::sounds_secret(name) || self.is_url_with_secret(value)))
    }

    /// Returns whether a value is a URL, or a part of one, that contains a secret. `Referer` is an example.
    fn is_url_with_secret(&self, value: &str) -> bool {
        let mut text = value.to_owned();
        // A URL inside another URL is percent-encoded, perhaps twice.
        for _ in 0..3 {
            let url = Url::parse(text.trim());
            if url.is_ok_and(|url| !url.username().is_empty() || url.password().is_some()) {
                return true;
            }
            let found = text.split(['?', '#']).skip(1).any(|part| {
                let is_secret = |name: &str, value: &str| {
                    (!value.is_empty() && names::sounds_secret(name)).then(String::new)
                };
                rewrite_query(part, is_secret).is_some()
            });
            let decoded = decoded(&text);
            if found || decoded == text {
                return found;
            }
            text = decoded;
        }
        false
    }

    /// Removes user info, the fragment and the values of secret parameters from a URL.
    ///
    /// Returns the rest, which is otherwise unchanged, and the redacted places.
    pub(crate) fn redact_url(&self, url: &Url) -> (Url, Vec<Redacted>) {
        let mut url = url.clone();
        let mut places = Vec::new();
        url.set_fragment(None);
        if !url.username().is_empty() || url.password().is_some() {
            // Both succeed for a URL that has user info.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            places.push(Redacted::UserInfo);
        }
        let query = url.query().and_then(|query| {
            rewrite_query(query, |name, value| {
                if value.is_empty() || !self.is_secret(name, value, &self.parameters) {
                    return None;
                }
                let place = Redacted::Parameter(name.to_owned());
                if !places.contains(&place) {
                    places.push(place);
                }
                Some(PLACEHOLDER.to_owned())
            })
        });
        if let Some(query) = query {
            url.set_query(Some(&query));
        }
        (url, places)
    }
}

/// Names a place in a dead letter from which a secret was removed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Redacted {
    /// The user name and password in the URL.
    UserInfo,
    /// The value of a header.
    Header(HeaderName),
    /// The value of a query parameter. The name is percent-decoded.
    Parameter(String),
}

impl fmt::Display for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserInfo => f.write_str("user info"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Parameter(name) => write!(f, "parameter {}", name.escape_debug()),
        }
    }
}

/// Replaces the values for which `change` returns a new one, and keeps every other byte.
///
/// `change` gets the decoded name and the raw value. Returns `None` if nothing changes.
pub(crate) fn rewrite_query(
    query: &str,
    mut change: impl FnMut(&str, &str) -> Option<String>,
) -> Option<String> {
    let mut changed = false;
    let parts = query.split('&').map(|part| {
        // Some servers also split at semicolons. But a secret may contain one, so a changed value ends only at
        // the next `&`.
        let semicolons = part.match_indices(';').map(|(place, _)| place + 1);
        for start in std::iter::once(0).chain(semicolons) {
            let pair = part[start..].split(';').next().unwrap_or_default();
            let Some((name, _)) = pair.split_once('=') else {
                continue;
            };
            let (before, value) = part.split_at(start + name.len() + 1);
            if let Some(new) = change(&decoded(name), value) {
                changed = true;
                return Cow::Owned(format!("{before}{new}"));
            }
        }
        Cow::Borrowed(part)
    });
    let text = parts.collect::<Vec<_>>().join("&");
    changed.then_some(text)
}

/// Removes a parameter from a query.
pub(crate) fn without_parameter(query: &str, name: &str) -> String {
    let others = query.split('&').filter(|pair| {
        let own = pair.split('=').next().unwrap_or_default();
        decoded(own) != name
    });
    others.collect::<Vec<_>>().join("&")
}

/// Decodes a name in a query.
fn decoded(name: &str) -> String {
    let spaced = name.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
