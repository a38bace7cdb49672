//! The part of a body that was read into memory.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// A chunk below this size is copied to the end of the chunk before it.
const SMALL_CHUNK: usize = 4096;

/// Chunks of a body, in about as much memory as they have bytes.
///
/// Small chunks are joined: the owner of a chunk takes a hundred times the memory of the smallest one.
#[derive(Default)]
pub(super) struct Chunks {
    /// The first chunk, which is often the only one. Never copied, never empty.
    first: Option<Bytes>,
    /// Large chunks, and joined small ones, after the first.
    rest: VecDeque<Bytes>,
    /// Small chunks that came after `rest`.
    tail: BytesMut,
    /// The sum of all lengths.
    length: usize,
}

impl Chunks {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn push(&mut self, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        self.length = self.length.saturating_add(chunk.len());
        if self.first.is_none() {
            self.first = Some(chunk);
        } else if chunk.len() < SMALL_CHUNK {
            self.tail.extend_from_slice(&chunk);
        } else {
            self.close_tail();
            self.rest.push_back(chunk);
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.rest.push_back(tail.freeze());
        }
    }

    /// Returns the chunks in order. None of them is empty.
    pub(super) fn into_deque(mut self) -> VecDeque<Bytes> {
        self.close_tail();
        if let Some(first) = self.first {
            self.rest.push_front(first);
        }
        self.rest
    }

    /// Returns everything in one piece. A single chunk is not copied.
    pub(super) fn into_bytes(self) -> Bytes {
        match self.first {
            Some(only) if only.len() == self.length => only,
            None => Bytes::new(),
            _ => {
                let mut all = BytesMut::with_capacity(self.length);
                all.extend(self.into_deque());
                all.freeze()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(sizes: &[usize]) -> (usize, Vec<usize>) {
        let mut chunks = Chunks::default();
        for size in sizes {
            chunks.push(vec![b'x'; *size].into());
        }
        let length = chunks.len();
        let chunks = chunks.into_deque();
        (length, chunks.iter().map(Bytes::len).collect())
    }

    #[test]
    fn small_chunks_become_one_and_empty_ones_none() {
        for (sizes, expected) in [
            (&[][..], &[][..]),
            (&[0, 0, 0], &[]),
            (&[1], &[1]),
            (&[0, 1, 0, 1, 0, 1], &[1, 2]),
            (&[1, 4095, 4095, 4096, 1, 1], &[1, 8190, 4096, 2]),
            (&[4096, 4096], &[4096, 4096]),
        ] {
            let sum = sizes.iter().sum();
            assert_eq!(chunks(sizes), (sum, expected.to_vec()), "{sizes:?}");
        }
        assert_eq!(chunks(&[1; 100_000]), (100_000, vec![1, 99_999]));
    }

    #[test]
    fn a_body_in_one_chunk_is_not_copied() {
        let body = Bytes::from_static(b"whole");
        let mut chunks = Chunks::default();
        chunks.push(Bytes::new());
        chunks.push(body.clone());
        assert_eq!(chunks.into_bytes().as_ptr(), body.as_ptr());
    }
}
