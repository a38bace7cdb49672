//! A bounded table of what is kept for each key, which forgets the keys that nobody uses.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use foldhash::quality::RandomState;

/// Enough that threads seldom meet in one.
const SHARDS: usize = 16;
/// 4096 keys in all: a few hundred bytes each.
const KEYS_PER_SHARD: usize = 256;

/// Of a key only its hash is kept, 64 bits with a seed of its own: two keys that share one are as
/// unlikely as they are harmless.
#[derive(Debug)]
pub(crate) struct Keyed<T> {
    shards: [RwLock<Shard<T>>; SHARDS],
    hasher: RandomState,
    /// Says of a value that it is not as good as a new one, and should be kept if possible.
    matters: fn(&T) -> bool,
}

type Shard<T> = HashMap<u64, Entry<T>, BuildHasherDefault<AsItIs>>;

#[derive(Debug)]
struct Entry<T> {
    value: T,
    /// Since room was made the last time.
    used: AtomicBool,
}

impl<T: Clone> Keyed<T> {
    pub(crate) fn new(matters: fn(&T) -> bool) -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            hasher: RandomState::default(),
            matters,
        }
    }

    /// What is kept for this key, made now if there is nothing yet.
    pub(crate) fn get(&self, key: impl Hash, make: impl FnOnce() -> T) -> T {
        let key = self.hasher.hash_one(key);
        let shard = &self.shards[key as usize % SHARDS];
        if let Some(entry) = read(shard).get(&key) {
            // Written only if it changes: what all threads read stays in all their caches.
            if !entry.used.load(Ordering::Relaxed) {
                entry.used.store(true, Ordering::Relaxed);
            }
            return entry.value.clone();
        }
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        if shard.len() >= KEYS_PER_SHARD && !shard.contains_key(&key) {
            make_room(&mut shard, self.matters);
        }
        let entry = shard.entry(key).or_insert_with(|| Entry {
            value: make(),
            used: AtomicBool::new(false),
        });
        entry.value.clone()
    }
}

/// Forgets what was not used since the last time and does not matter; if that is nothing, one that
/// does not matter; and if all do, any.
fn make_room<T>(shard: &mut Shard<T>, matters: fn(&T) -> bool) {
    shard.retain(|_, entry| std::mem::take(entry.used.get_mut()) || matters(&entry.value));
    if shard.len() >= KEYS_PER_SHARD {
        let spare = shard.iter().find(|(_, entry)| !matters(&entry.value));
        let victim = spare.or(shard.iter().next()).map(|(key, _)| *key);
        victim.map(|key| shard.remove(&key));
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    // Nothing here panics halfway through a change.
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        // The low bits have chosen the shard.
        self.0 = hash.rotate_right(8);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn len<T>(table: &Keyed<T>) -> usize {
        table.shards.iter().map(|shard| read(shard).len()).sum()
    }

    #[test]
    fn a_key_keeps_what_was_made_for_it() {
        let table = Keyed::new(|_| false);
        let first = table.get("a", || Arc::new(1));
        let again = table.get("a", || Arc::new(2));
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(*table.get("b", || Arc::new(3)), 3);
    }

    #[test]
    fn a_million_keys_stay_within_bounds_and_the_used_one_is_kept() {
        let table = Keyed::new(|_| false);
        let hot = table.get("hot", || Arc::new(0));
        for key in 0..1_000_000_u64 {
            table.get(key, || Arc::new(key));
            if key % 1000 == 0 {
                let kept = table.get("hot", || Arc::new(1));
                assert!(Arc::ptr_eq(&hot, &kept), "forgotten at {key}");
            }
        }
        assert!(len(&table) <= SHARDS * KEYS_PER_SHARD);
    }

    #[test]
    fn what_matters_is_kept_though_nobody_uses_it() {
        let table = Keyed::new(|value: &Arc<u64>| **value == 0);
        let kept = table.get("matters", || Arc::new(0));
        for key in 1..100_000_u64 {
            table.get(key, || Arc::new(key));
        }
        assert!(Arc::ptr_eq(&kept, &table.get("matters", || Arc::new(0))));

        // But not at any price.
        let table = Keyed::new(|_| true);
        for key in 0..100_000_u64 {
            table.get(key, || key);
        }
        assert!(len(&table) <= SHARDS * KEYS_PER_SHARD);
    }

    #[test]
    fn a_table_whose_keys_are_all_in_use_stays_within_bounds() {
        let table = Keyed::new(|_| false);
        for round in 0..3 {
            for key in 0..10_000_u64 {
                table.get(key, || round);
                table.get(key, || round);
            }
        }
        let len = len(&table);
        assert!(len <= SHARDS * KEYS_PER_SHARD && len > 1000, "{len}");
    }
}
