//! The key that lets a server recognise a repeated request.

use std::convert::Infallible;
use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::Url;

use super::without_fragment;
use crate::entropy::Uuid;

const MAX_LENGTH: usize = 255;

/// Where keys are written, unless the middleware was told another name.
pub(crate) const DEFAULT_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Names one operation, so that a server can tell a repeated request from a second one.
///
/// One call keeps one key, byte for byte, on all its attempts. Its text is never shown by `Debug`
/// and never logged. A key that is set as a plain header, quoted or not, is held to the same rule.
///
/// ```
/// use reqwest_steady::IdempotencyKey;
///
/// let own = IdempotencyKey::new("order-4711")?;        // from your own records: survives a restart
/// let random = IdempotencyKey::random();               // a UUID, one for each call
/// assert_ne!(own, random);
/// assert!(IdempotencyKey::new("two words").is_err());
/// # Ok::<(), reqwest_steady::InvalidKey>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    text: String,
    header: HeaderValue,
}

impl IdempotencyKey {
    /// A key from your own text: 1 to 255 visible ASCII characters.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidKey> {
        let text = text.into();
        check(text.as_bytes())?;
        Ok(Self::from_visible_ascii(text))
    }

    /// A new random key: a UUID of version 4.
    pub fn random() -> Self {
        Self::from_visible_ascii(Uuid::random().to_string())
    }

    /// A key computed from what is sent: the SHA-256 of method, URL and body, in hexadecimal. The
    /// same payload gives the same key, in every process.
    ///
    /// That makes two equal orders one order: use it where equal payloads mean the same operation.
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
            // With its length, so that no two ways to divide the same bytes meet.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finalize();
        let hex = hash.iter().map(|byte| format!("{byte:02x}"));
        Self::from_visible_ascii(hex.collect())
    }

    /// The same key in the form of the IETF draft: a structured-field string, in quotes.
    ///
    /// Some servers demand the quotes and some refuse them; the default is without.
    ///
    /// ```
    /// use reqwest_steady::IdempotencyKey;
    ///
    /// let key = IdempotencyKey::new("order-4711")?.quoted();
    /// assert_eq!(key.header_value(), "\"order-4711\"");
    /// # Ok::<(), reqwest_steady::InvalidKey>(())
    /// ```
    #[must_use]
    pub fn quoted(mut self) -> Self {
        // Neither step fails for visible ASCII.
        if let Ok(text) = sfv::StringRef::from_str(&self.text) {
            let quoted = sfv::ItemSerializer::new().bare_item(text).finish();
            if let Ok(header) = HeaderValue::try_from(quoted) {
                self.header = sensitive(header);
            }
        }
        self
    }

    /// The key's text, without quotes: what to keep in your own records.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The key as it stands in the header, marked as sensitive.
    pub fn header_value(&self) -> &HeaderValue {
        &self.header
    }

    fn from_visible_ascii(text: String) -> Self {
        // Every visible ASCII character may stand in a header.
        let header = HeaderValue::from_str(&text).expect("visible ASCII is a valid header");
        Self {
            header: sensitive(header),
            text,
        }
    }
}

fn sensitive(mut header: HeaderValue) -> HeaderValue {
    header.set_sensitive(true);
    header
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyKey(..)")
    }
}

impl TryFrom<&str> for IdempotencyKey {
    type Error = InvalidKey;

    fn try_from(text: &str) -> Result<Self, InvalidKey> {
        Self::new(text)
    }
}

impl TryFrom<String> for IdempotencyKey {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Self, InvalidKey> {
        Self::new(text)
    }
}

/// A key that no server could read back. The request was not sent.
///
/// The message says what is wrong, but not the key itself, which is as private as a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidKey(Fault);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    Empty,
    TooLong(usize),
    BadByte { byte: u8, position: usize },
    BadQuotes,
    SeveralLines(usize),
}

impl InvalidKey {
    pub(crate) fn several_lines(lines: usize) -> Self {
        Self(Fault::SeveralLines(lines))
    }
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Fault::Empty => f.write_str("the idempotency key is empty"),
            Fault::TooLong(length) => write!(
                f,
                "the idempotency key has {length} characters, at most {MAX_LENGTH} are allowed"
            ),
            Fault::BadByte { byte, position } => write!(
                f,
                "the idempotency key has the byte {byte:#04x} at position {position}, \
                 only visible ASCII (0x21 to 0x7e) is allowed"
            ),
            Fault::BadQuotes => {
                f.write_str("the idempotency key begins with a quote, but is no quoted string")
            }
            Fault::SeveralLines(lines) => write!(
                f,
                "the idempotency key stands in {lines} lines of the header, only one is allowed"
            ),
        }
    }
}

impl std::error::Error for InvalidKey {}

impl From<Infallible> for InvalidKey {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

fn check(text: &[u8]) -> Result<(), InvalidKey> {
    if text.is_empty() {
        return Err(InvalidKey(Fault::Empty));
    }
    if let Some(position) = text.iter().position(|byte| !byte.is_ascii_graphic()) {
        return Err(InvalidKey(Fault::BadByte {
            byte: text[position],
            position,
        }));
    }
    if text.len() > MAX_LENGTH {
        return Err(InvalidKey(Fault::TooLong(text.len())));
    }
    Ok(())
}

/// Holds a key that was set as a plain header to the same rule. Between quotes there may be spaces.
pub(crate) fn check_header(value: &HeaderValue) -> Result<(), InvalidKey> {
    let text = value.as_bytes();
    // With the mark it is a key of ours, and such a key may begin with a quote.
    if !text.starts_with(b"\"") || (value.is_sensitive() && check(text).is_ok()) {
        return check(text);
    }
    let item = sfv::Parser::new(text).parse::<sfv::Item>().ok();
    let quoted = item.as_ref().and_then(|item| item.bare_item.as_string());
    match quoted.map(|text| text.as_str().len()) {
        None => Err(InvalidKey(Fault::BadQuotes)),
        Some(0) => Err(InvalidKey(Fault::Empty)),
        Some(1..=MAX_LENGTH) => Ok(()),
        Some(length) => Err(InvalidKey(Fault::TooLong(length))),
    }
}

/// Whether there is a key in this header. It has to be a valid one, in a single line.
pub(crate) fn has_key(headers: &HeaderMap, header: &HeaderName) -> Result<bool, InvalidKey> {
    // Few names are compared faster than one is hashed.
    if headers.keys_len() <= 8 && headers.keys().all(|name| name != header) {
        return Ok(false);
    }
    let Some(value) = headers.get(header) else {
        return Ok(false);
    };
    match headers.get_all(header).iter().count() {
        1 => check_header(value).map(|()| true),
        lines => Err(InvalidKey(Fault::SeveralLines(lines))),
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
    fn a_plain_header_is_held_to_the_same_rule() {
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
