//! Hashes of texts with a random seed, and maps whose keys carry such a hash.
//!
//! So a text is hashed once, however many maps know it.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::LazyLock;

use foldhash::quality::RandomState;

static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// Returns the hash of a text. It differs from process to process, so an attacker cannot choose texts that collide.
#[inline]
pub(crate) fn hash_of(text: impl AsRef<[u8]>) -> u64 {
    let mut hasher = SEED.build_hasher();
    hasher.write(text.as_ref());
    hasher.finish()
}

/// Returns the hash of a value that is no text.
pub(crate) fn hash_of_value(value: &impl Hash) -> u64 {
    SEED.hash_one(value)
}

/// A map from keys whose `Hash` writes one `u64`, which comes from [`hash_of`].
pub(crate) type HashedMap<K, V> = HashMap<K, V, BuildHasherDefault<PassThroughHasher>>;

/// Passes on the hash that a key carries.
#[derive(Debug, Default)]
pub(crate) struct PassThroughHasher(u64);

impl Hasher for PassThroughHasher {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the `Hash` of a key writes one `u64`")
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
