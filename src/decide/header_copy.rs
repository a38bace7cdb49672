//! Headers in one piece.

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};

/// A copy of headers that most of the time is never read.
///
/// To clone them one by one takes an allocation for each name and value that nobody has cloned before.
/// Here all of them take one, and are taken apart again when they are needed.
pub(crate) struct HeaderCopy(Bytes);

/// The lengths of a name and its value stand before them.
const LENGTHS: usize = 2 * size_of::<u32>();

/// The highest bit of a value's length: it is not to be shown. No header is anywhere near so long.
const SENSITIVE: u32 = 1 << 31;

impl HeaderCopy {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let sizes = headers.iter().map(|(name, value)| size(name, value));
        let mut copy = Vec::with_capacity(sizes.sum());
        for (name, value) in headers {
            let name = name.as_str().as_bytes();
            let mut length = value.len() as u32;
            if value.is_sensitive() {
                length |= SENSITIVE;
            }
            copy.extend_from_slice(&(name.len() as u32).to_le_bytes());
            copy.extend_from_slice(&length.to_le_bytes());
            copy.extend_from_slice(name);
            copy.extend_from_slice(value.as_bytes());
        }
        Self(copy.into())
    }

    /// Adds them to others, in their order. Values share one allocation.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        let mut rest = self.0.clone();
        while rest.len() >= LENGTHS {
            let name_length = rest.get_u32_le() as usize;
            let value_length = rest.get_u32_le();
            let name = rest.split_to(name_length);
            let value = rest.split_to((value_length & !SENSITIVE) as usize);
            // They were a name and a value before, so they are now.
            let name = HeaderName::from_bytes(&name);
            if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_maybe_shared(value)) {
                value.set_sensitive(value_length & SENSITIVE != 0);
                headers.append(name, value);
            }
        }
    }
}

fn size(name: &HeaderName, value: &HeaderValue) -> usize {
    LENGTHS + name.as_str().len() + value.len()
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
        let mut back = HeaderMap::new();
        HeaderCopy::of(&headers).add_to(&mut back);
        assert_eq!(back, headers);
        let all = |headers: &HeaderMap| -> Vec<_> {
            let all = headers.iter().map(|(name, value)| {
                let shown = (value.as_bytes().to_vec(), value.is_sensitive());
                (name.to_string(), shown)
            });
            all.collect()
        };
        assert_eq!(all(&back), all(&headers));
        assert!(back["authorization"].is_sensitive() && !back["accept"].is_sensitive());

        let mut none = HeaderMap::new();
        HeaderCopy::of(&none.clone()).add_to(&mut none);
        assert!(none.is_empty());
    }
}
