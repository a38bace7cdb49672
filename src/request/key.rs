//! Idempotency keys: how they are made, written and checked.

use std::convert::Infallible;
use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::Url;

use super::without_fragment;
use crate::entropy::Uuid;

const MAX_LENGTH: usize = 255;

/// The header of keys, unless the middleware has another name for it.
pub(crate) const DEFAULT_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Identifies one operation, so that a server recognises a repeated request.
///
/// All attempts of a call send the same key. `Debug` does not show its text, and the crate never logs it. Keys that you
/// set as a plain header, quoted or not, must follow the same rules.
///
/// ```
/// use reqwest_steady::IdempotencyKey;
///
/// let own = IdempotencyKey::new("order-4711")?;        // from your records: survives a restart
/// let random = IdempotencyKey::random();               // a UUID, one for each call
/// assert_ne!(own, random);
/// assert!(IdempotencyKey::new("two words").is_err());
/// # Ok::<(), reqwest_steady::InvalidKeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// Visible ASCII.
    header: HeaderValue,
    /// The text of the key, if the header has it in quotes.
    unquoted: Option<Box<str>>,
}

impl IdempotencyKey {
    /// Creates a key from a text.
    ///
    /// # Errors
    ///
    /// Fails unless the text has 1 to 255 visible ASCII characters.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidKeyError> {
        let text = text.into();
        check(text.as_bytes())?;
        Ok(Self::from_visible_ascii(text))
    }

    /// Creates a random key: a UUID of version 4.
    pub fn random() -> Self {
        Self::from_visible_ascii(Uuid::random().to_string())
    }

    /// Computes a key from method, URL and body.
    ///
    /// The key is their SHA-256 in hexadecimal. Equal requests get the same key in every process. Use it only where
    /// equal requests mean the same operation: otherwise two equal orders become one order.
    ///
    /// ```
    /// use reqwest::{Method, Url};
    /// use reqwest_steady::IdempotencyKey;
    ///
    /// let url = Url::parse("https://api.example.com/reports")?;
    /// let first = IdempotencyKey::from_content(&Method::POST, &url, b"2026-11");
    /// let second = IdempotencyKey::from_content(&Method::POST, &url, b"2026-11");
    /// assert_eq!(first, second);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_content(method: &Method, url: &Url, body: impl AsRef<[u8]>) -> Self {
        let url = without_fragment(url);
        let mut hash = hmac_sha256::Hash::new();
        for part in [method.as_str().as_bytes(), url.as_bytes(), body.as_ref()] {
            // The length separates the parts, so that bytes cannot move from one part to the next.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finalize();
        let hex = hash.iter().map(|byte| format!("{byte:02x}"));
        Self::from_visible_ascii(hex.collect())
    }

    /// Puts the header value in quotes.
    ///
    /// The IETF draft wants this form, a structured-field string. Some servers require quotes and some reject them.
    ///
    /// Default: no quotes.
    ///
    /// ```
    /// use reqwest_steady::IdempotencyKey;
    ///
    /// let key = IdempotencyKey::new("order-4711")?.quoted();
    /// assert_eq!(key.header_value(), "\"order-4711\"");
    /// # Ok::<(), reqwest_steady::InvalidKeyError>(())
    /// ```
    #[must_use]
    pub fn quoted(mut self) -> Self {
        let unquoted: Box<str> = self.as_str().into();
        let text = sfv::StringRef::from_str(&unquoted).expect("visible ASCII is a valid string");
        self.header = header_of(sfv::ItemSerializer::new().bare_item(text).finish());
        self.unquoted = Some(unquoted);
        self
    }

    /// Returns the text of the key without quotes, for your records.
    pub fn as_str(&self) -> &str {
        match &self.unquoted {
            Some(unquoted) => unquoted,
            None => self.header.to_str().expect("a key is visible ASCII"),
        }
    }

    /// Returns the header value of the key, marked as sensitive.
    pub fn header_value(&self) -> &HeaderValue {
        &self.header
    }

    fn from_visible_ascii(text: String) -> Self {
        Self {
            header: header_of(text),
            unquoted: None,
        }
    }
}

fn header_of(key: String) -> HeaderValue {
    let mut header = HeaderValue::try_from(key).expect("visible ASCII is a valid header");
    header.set_sensitive(true);
    header
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyKey(..)")
    }
}

impl TryFrom<&str> for IdempotencyKey {
    type Error = InvalidKeyError;

    fn try_from(text: &str) -> Result<Self, InvalidKeyError> {
        Self::new(text)
    }
}

impl TryFrom<String> for IdempotencyKey {
    type Error = InvalidKeyError;

    fn try_from(text: String) -> Result<Self, InvalidKeyError> {
        Self::new(text)
    }
}

/// Reports an invalid idempotency key. The request was not sent.
///
/// The message says what is wrong, but does not contain the key, because it is as private as a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidKeyError(
    /// Follows "the idempotency key" in the message.
    String,
);

impl InvalidKeyError {
    fn new(fault: impl Into<String>) -> Self {
        Self(fault.into())
    }

    pub(crate) fn several_lines(lines: usize) -> Self {
        Self::new(format!(
            "stands in {lines} lines of the header, only one is allowed"
        ))
    }
}

impl fmt::Display for InvalidKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the idempotency key {}", self.0)
    }
}

impl std::error::Error for InvalidKeyError {}

impl From<Infallible> for InvalidKeyError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

fn check(text: &[u8]) -> Result<(), InvalidKeyError> {
    if let Some(position) = text.iter().position(|byte| !byte.is_ascii_graphic()) {
        let byte = text[position];
        return Err(InvalidKeyError::new(format!(
            "has the byte {byte:#04x} at position {position}, only visible ASCII (0x21 to 0x7e) is allowed"
        )));
    }
    check_length(text.len())
}

fn check_length(length: usize) -> Result<(), InvalidKeyError> {
    match length {
        0 => Err(InvalidKeyError::new("is empty")),
        1..=MAX_LENGTH => Ok(()),
        _ => Err(InvalidKeyError::new(format!(
            "has {length} characters, at most {MAX_LENGTH} are allowed"
        ))),
    }
}

/// Checks a key that was set as a plain header. Between quotes it may contain spaces.
pub(crate) fn check_header(value: &HeaderValue) -> Result<(), InvalidKeyError> {
    let text = value.as_bytes();
    // A sensitive value comes from `idempotency_key`, and its text may begin with a quote.
    if !text.starts_with(b"\"") || (value.is_sensitive() && check(text).is_ok()) {
        return check(text);
    }
    let item = sfv::Parser::new(text).parse::<sfv::Item>().ok();
    let quoted = item.as_ref().and_then(|item| item.bare_item.as_string());
    match quoted {
        Some(text) => check_length(text.as_str().len()),
        None => Err(InvalidKeyError::new(
            "begins with a quote, but is no quoted string",
        )),
    }
}

/// Whether this header holds a key.
///
/// # Errors
///
/// Fails if the key is invalid, or if there is more than one line.
pub(crate) fn has_key(headers: &HeaderMap, header: &HeaderName) -> Result<bool, InvalidKeyError> {
    // Cheaper than the hash of a name, and than all values of all names.
    if !headers.keys().any(|name| name == header) {
        return Ok(false);
    }
    let mut values = headers.get_all(header).iter();
    match (values.next(), values.count()) {
        (None, _) => Ok(false),
        (Some(value), 0) => check_header(value).map(|()| true),
        (Some(_), others) => Err(InvalidKeyError::several_lines(others + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_1_to_255_visible_ascii_characters() {
        assert_eq!(IdempotencyKey::new("~").unwrap().as_str(), "~");
        assert!(IdempotencyKey::new("k".repeat(255)).is_ok());
        for (text, said) in [
            (String::new(), "the idempotency key is empty"),
            (
                "k".repeat(256),
                "the idempotency key has 256 characters, at most 255 are allowed",
            ),
            (
                "a b".into(),
                "the idempotency key has the byte 0x20 at position 1, \
                 only visible ASCII (0x21 to 0x7e) is allowed",
            ),
            (
                "a\r\nX: y".into(),
                "the idempotency key has the byte 0x0d at position 1, \
                 only visible ASCII (0x21 to 0x7e) is allowed",
            ),
            (
                "schlüssel".into(),
                "the idempotency key has the byte 0xc3 at position 4, \
                 only visible ASCII (0x21 to 0x7e) is allowed",
            ),
        ] {
            assert_eq!(IdempotencyKey::new(text).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn a_random_key_is_a_uuid_of_version_4_and_never_the_same() {
        let keys: std::collections::HashSet<_> = (0..1000)
            .map(|_| IdempotencyKey::random().as_str().to_owned())
            .collect();
        assert_eq!(keys.len(), 1000);
        for key in keys {
            let fields: Vec<_> = key.split('-').map(str::len).collect();
            assert_eq!(fields, [8, 4, 4, 4, 12], "{key}");
            let digits = key.chars().filter(|digit| *digit != '-');
            assert!(
                { digits }.all(|digit| matches!(digit, '0'..='9' | 'a'..='f')),
                "{key}"
            );
            let (version, variant) = (key.as_bytes()[14], key.as_bytes()[19]);
            assert!(version == b'4' && b"89ab".contains(&variant), "{key}");
        }
    }

    #[test]
    fn a_content_key_depends_on_every_part_and_on_where_one_ends() {
        let key = |method: &str, url: &str, body: &str| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            IdempotencyKey::from_content(&method, &Url::parse(url).unwrap(), body)
        };
        let base = key("POST", "http://a/b", "c");
        // Computed elsewhere: a new version of this crate must not change the keys of the same payloads.
        assert_eq!(
            base.as_str(),
            "1b8a5f2da104d5e314ac5f7a3751577c4ef2ed72798f5a7e92c9c84c6f2d0d46"
        );
        assert_eq!(base, key("POST", "http://a/b", "c"));
        assert_eq!(base, key("POST", "http://a/b#fragment", "c"));
        assert_ne!(base, key("PATCH", "http://a/b", "c"));
        assert_ne!(base, key("POST", "http://a/bc", ""));
        assert_ne!(base, key("POST", "http://a/b", "cc"));
    }

    #[test]
    fn quoting_is_a_structured_string_and_happens_once() {
        let key = IdempotencyKey::new(r#"a"b\c"#).unwrap().quoted().quoted();
        assert_eq!(key.header_value(), r#""a\"b\\c""#);
        assert_eq!(key.as_str(), r#"a"b\c"#);
    }

    #[test]
    fn a_plain_header_follows_the_same_rules() {
        let check = |text: &str| check_header(&HeaderValue::from_str(text).unwrap());
        assert!(check("order-1").is_ok());
        assert!(check("\"order-1\"").is_ok());
        assert!(check(&format!("\"{}\"", "k".repeat(255))).is_ok());
        assert!(check("\"two words\"").is_ok());
        assert!(check("a\"b").is_ok());
        for bad in ["", "\"\"", "\"", "\"a", "\"a\"b\"", "two words"] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check(&"k".repeat(256)).is_err());
        assert!(check(&format!("\"{}\"", "k".repeat(256))).is_err());
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = IdempotencyKey::new("secret-1").unwrap();
        assert!(!format!("{key:?} {:?}", key.header_value()).contains("secret"));
    }
}
