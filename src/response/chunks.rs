//! The beginning of a body, read into memory.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Chunks below this size are joined.
const SMALL_CHUNK: usize = 4096;

/// Chunks of a body, in about as much memory as they have bytes.
///
/// Small chunks are copied and joined, because each `Bytes` needs about a hundred bytes besides its content.
#[derive(Default)]
pub(super) struct Chunks {
    /// The first chunk, which is often the only one. Never copied, never empty.
    first: Option<Bytes>,
    /// Large chunks and joined small ones, in order, after the first.
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

    /// Returns the beginning in one piece, at most this many bytes. Only what is not in the first chunk is copied.
    pub(super) fn start(&mut self, limit: usize) -> Bytes {
        let limit = limit.min(self.length);
        if self.first.as_ref().is_none_or(|first| first.len() < limit) {
            let length = self.length;
            let mut rest = std::mem::take(self).into_deque();
            let mut start = BytesMut::with_capacity(limit);
            while let Some(chunk) = rest.front_mut().filter(|_| start.len() < limit) {
                start.extend_from_slice(&chunk.split_to(chunk.len().min(limit - start.len())));
                if chunk.is_empty() {
                    rest.pop_front();
                }
            }
            *self = Self {
                first: (!start.is_empty()).then(|| start.freeze()),
                rest,
                tail: BytesMut::new(),
                length,
            };
        }
        let first = self.first.as_ref();
        first.map_or_else(Bytes::new, |first| first.slice(..limit))
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
    fn the_start_is_in_one_piece_and_nothing_is_lost() {
        let text: Vec<u8> = (0..20_000_u32).map(|number| number as u8).collect();
        for size in [1, 7, 4095, 5000, 20_000] {
            for limit in [0, 1, 6, 7, 8, 4096, 19_999, 20_000, usize::MAX] {
                let mut chunks = Chunks::default();
                for chunk in text.chunks(size) {
                    chunks.push(Bytes::copy_from_slice(chunk));
                }
                let start = chunks.start(limit);
                assert_eq!(start, &text[..limit.min(text.len())], "{size}, {limit}");
                assert_eq!(chunks.len(), text.len());
                let all: Vec<u8> = chunks.into_deque().into_iter().flatten().collect();
                assert_eq!(all, text, "{size}, {limit}");
            }
        }
        assert_eq!(Chunks::default().start(7), "");
    }

    #[test]
    fn a_body_in_one_chunk_is_not_copied() {
        let body = Bytes::from_static(b"whole");
        let mut chunks = Chunks::default();
        chunks.push(Bytes::new());
        chunks.push(body.clone());
        assert_eq!(chunks.start(3).as_ptr(), body.as_ptr());
        assert_eq!(chunks.into_bytes().as_ptr(), body.as_ptr());
    }
}
