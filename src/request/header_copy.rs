//! A cheap copy of request headers.

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};

/// A copy of headers in one allocation. Most copies are never read, because most calls are not retried.
///
/// A clone of a `HeaderMap` would cost 1,200 to 1,700 instructions and 5 allocations on each GET. That breaks the
/// promised cost of a call without retries.
pub(crate) struct HeaderCopy {
    /// For each header, its two lengths in 8 bytes: the low half has that of the name, the high half that of the value.
    /// Then the name and the value.
    text: Vec<u8>,
    /// The number of name-value pairs in `text`.
    lines: usize,
}

/// Marks a sensitive value, in the highest bit of the lengths. No value is long enough to need that bit.
const SENSITIVE: u64 = 1 << 63;

/// The usual size of a header in `text`.
const USUAL: usize = 64;

impl HeaderCopy {
    #[inline]
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let lines = headers.len();
        let mut text = Vec::with_capacity(lines * USUAL);
        for (name, value) in headers {
            let name = name.as_str().as_bytes();
            let mut lengths = (value.len() as u64) << 32 | name.len() as u64;
            if value.is_sensitive() {
                lengths |= SENSITIVE;
            }
            text.extend_from_slice(&lengths.to_le_bytes());
            text.extend_from_slice(name);
            text.extend_from_slice(value.as_bytes());
        }
        Self { text, lines }
    }

    /// Builds the headers again, in their order. All values share one buffer.
    pub(crate) fn to_header_map(&self) -> HeaderMap {
        // Fails if there are more lines than a map can have names.
        let mut headers = HeaderMap::try_with_capacity(self.lines).unwrap_or_default();
        let mut text = Bytes::copy_from_slice(&self.text);
        while text.has_remaining() {
            let lengths = text.get_u64_le();
            let name_length = lengths as u32 as usize;
            let value_length = ((lengths & !SENSITIVE) >> 32) as usize;
            // Both are valid, because they come from a `HeaderMap`.
            let name = HeaderName::from_bytes(&text[..name_length]);
            text.advance(name_length);
            let value = HeaderValue::from_maybe_shared(text.split_to(value_length));
            if let (Ok(name), Ok(mut value)) = (name, value) {
                value.set_sensitive(lengths & SENSITIVE != 0);
                headers.append(name, value);
            }
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_restores_names_values_order_and_marks() {
        let mut headers = HeaderMap::new();
        let mut secret = HeaderValue::from_static("hidden");
        secret.set_sensitive(true);
        for (name, value) in [
            ("accept", HeaderValue::from_static("a")),
            ("x-own", HeaderValue::from_bytes(b"\xff\t ~").unwrap()),
            ("authorization", secret),
            ("accept", HeaderValue::from_static("b, c")),
            ("x-empty", HeaderValue::from_static("")),
        ] {
            headers.append(name, value);
        }
        let copy = HeaderCopy::of(&headers);
        let back = copy.to_header_map();
        assert_eq!(back, headers);
        let all = |headers: &HeaderMap| -> Vec<_> {
            let all = headers.iter().map(|(name, value)| {
                let shown = (value.as_bytes().to_vec(), value.is_sensitive());
                (name.to_string(), shown)
            });
            all.collect()
        };
        assert_eq!(all(&back), all(&headers));
        assert_eq!(all(&copy.to_header_map()), all(&headers), "the second time");
        assert!(back["authorization"].is_sensitive() && !back["accept"].is_sensitive());

        let none = HeaderCopy::of(&HeaderMap::new()).to_header_map();
        assert!(none.is_empty());
    }
}
