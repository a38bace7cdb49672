//! Headers in one piece.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// A copy of headers that most of the time is never read.
///
/// To clone them one by one takes an allocation for each name and value that nobody has cloned before.
/// Here all of them take one, and are taken apart again when they are needed.
pub(crate) struct HeaderCopy {
    text: Text,
    lines: usize,
}

enum Text {
    Own(Vec<u8>),
    /// With the headers that were put together from it.
    Shared(Bytes),
}

/// The lengths of a name and its value stand before them. The highest bit of the second says that the value
/// is not to be shown: no header is anywhere near so long.
const LENGTHS: usize = size_of::<u64>();
const SENSITIVE: u64 = 1 << 63;

/// Where a header is.
struct Line {
    name: Range<usize>,
    value: Range<usize>,
    sensitive: bool,
}

/// Most headers are no longer than this, with their names and lengths.
const USUAL: usize = 64;

impl HeaderCopy {
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
        Self {
            text: Text::Own(text),
            lines,
        }
    }

    /// All of them, in their order. Values share the text.
    pub(crate) fn put_together(&mut self) -> HeaderMap {
        // There may be more values than a map can have names.
        let room = HeaderMap::try_with_capacity(self.lines);
        let mut headers = room.unwrap_or_default();
        let text = match std::mem::replace(&mut self.text, Text::Own(Vec::new())) {
            Text::Own(text) => text.into(),
            Text::Shared(text) => text,
        };
        for line in lines(&text) {
            // They were a name and a value before, so they are now.
            let name = HeaderName::from_bytes(&text[line.name]);
            let value = HeaderValue::from_maybe_shared(text.slice(line.value));
            if let (Ok(name), Ok(mut value)) = (name, value) {
                value.set_sensitive(line.sensitive);
                headers.append(name, value);
            }
        }
        self.text = Text::Shared(text);
        headers
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = Line> + '_ {
    let mut start = 0;
    std::iter::from_fn(move || {
        let (lengths, _) = text[start..].split_first_chunk::<LENGTHS>()?;
        let lengths = u64::from_le_bytes(*lengths);
        let name = start + LENGTHS;
        let value = name + lengths as u32 as usize;
        start = value + ((lengths & !SENSITIVE) >> 32) as usize;
        Some(Line {
            name: name..value,
            value: value..start,
            sensitive: lengths & SENSITIVE != 0,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_comes_back_as_it_was() {
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
        let mut copy = HeaderCopy::of(&headers);
        let back = copy.put_together();
        assert_eq!(back, headers);
        let all = |headers: &HeaderMap| -> Vec<_> {
            let all = headers.iter().map(|(name, value)| {
                let shown = (value.as_bytes().to_vec(), value.is_sensitive());
                (name.to_string(), shown)
            });
            all.collect()
        };
        assert_eq!(all(&back), all(&headers));
        assert_eq!(all(&copy.put_together()), all(&headers), "the second time");
        assert!(back["authorization"].is_sensitive() && !back["accept"].is_sensitive());

        let none = HeaderCopy::of(&HeaderMap::new()).put_together();
        assert!(none.is_empty());
    }
}
