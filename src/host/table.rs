//! A bounded table of what is kept for each key, which forgets the keys that nobody uses.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use tokio::time::Instant;

use crate::clock;

/// Enough that threads seldom meet in one.
const SHARDS: usize = 16;
/// 4096 keys in all: a few hundred bytes each.
const KEYS_PER_SHARD: usize = 256;

/// Of a key only its hash is kept, 64 bits with a seed of its own: two keys that share one are as
/// unlikely as they are harmless.
#[derive(Debug)]
pub(crate) struct BoundedTable<T> {
    shards: [RwLock<Shard<T>>; SHARDS],
    hasher: RandomState,
    matters: Matters<T>,
}

/// Says of a value that it is not as good as a new one, and should be kept if possible.
type Matters<T> = fn(&T, Instant) -> bool;

#[derive(Debug)]
struct Shard<T> {
    /// Where in `entries` a key is.
    places: HashMap<u64, usize, BuildHasherDefault<AsItIs>>,
    entries: Vec<Entry<T>>,
    /// Goes round and round: where to look next for somebody to forget.
    hand: usize,
}

#[derive(Debug)]
struct Entry<T> {
    key: u64,
    value: T,
    /// Since the hand came by the last time.
    used: AtomicBool,
}

impl<T: Clone> BoundedTable<T> {
    pub(crate) fn new(matters: Matters<T>) -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            hasher: RandomState::default(),
            matters,
        }
    }

    /// What is kept for this key. If there is nothing yet, it is made new, or of what was kept for a key
    /// that is forgotten for it.
    pub(crate) fn get(
        &self,
        key: impl Hash,
        new: impl FnOnce(Instant) -> T,
        renew: impl FnOnce(&mut T, Instant),
    ) -> T {
        let key = self.hasher.hash_one(key);
        let shard = &self.shards[key as usize % SHARDS];
        if let Some(entry) = read(shard).find(key) {
            // Written only if it changes: what all threads read stays in all their caches.
            if !entry.used.load(Ordering::Relaxed) {
                entry.used.store(true, Ordering::Relaxed);
            }
            return entry.value.clone();
        }
        let now = clock::now();
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = shard.find(key) {
            // Another thread was quicker.
            return entry.value.clone();
        }
        if shard.entries.len() < KEYS_PER_SHARD {
            return shard.add(key, new(now));
        }
        let place = shard.spare(|value| (self.matters)(value, now));
        shard.replace(place, key, |value| renew(value, now))
    }
}

impl<T: Clone> Shard<T> {
    fn find(&self, key: u64) -> Option<&Entry<T>> {
        let place = self.places.get(&key)?;
        self.entries.get(*place)
    }

    fn add(&mut self, key: u64, value: T) -> T {
        self.places.insert(key, self.entries.len());
        self.entries.push(Entry {
            key,
            value: value.clone(),
            used: AtomicBool::new(false),
        });
        value
    }

    /// Whom to forget: one that was not used for a whole round of the hand and does not matter; if there
    /// is none, one that does not matter; and if all do, any. It takes a step or two, unless most are in
    /// use or matter.
    fn spare(&mut self, matters: impl Fn(&T) -> bool) -> usize {
        for _ in 0..2 * self.entries.len() {
            let place = self.step();
            let entry = &mut self.entries[place];
            if !std::mem::take(entry.used.get_mut()) && !matters(&entry.value) {
                return place;
            }
        }
        self.step()
    }

    fn step(&mut self) -> usize {
        let place = self.hand;
        self.hand = (place + 1) % self.entries.len();
        place
    }

    fn replace(&mut self, place: usize, key: u64, renew: impl FnOnce(&mut T)) -> T {
        let entry = &mut self.entries[place];
        self.places.remove(&entry.key);
        // Nobody finds it until it is another.
        renew(&mut entry.value);
        entry.key = key;
        self.places.insert(key, place);
        entry.value.clone()
    }
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Self {
            places: HashMap::default(),
            entries: Vec::new(),
            hand: 0,
        }
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

    fn len<T>(table: &BoundedTable<T>) -> usize {
        table
            .shards
            .iter()
            .map(|shard| read(shard).entries.len())
            .sum()
    }

    fn get<T: Clone>(table: &BoundedTable<T>, key: impl Hash, make: impl Fn() -> T) -> T {
        table.get(key, |_| make(), |old, _| *old = make())
    }

    #[test]
    fn a_key_keeps_what_was_made_for_it() {
        let table = BoundedTable::new(|_, _| false);
        let first = get(&table, "a", || Arc::new(1));
        let again = get(&table, "a", || Arc::new(2));
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(*get(&table, "b", || Arc::new(3)), 3);
    }

    #[test]
    fn a_million_keys_stay_within_bounds_and_the_used_one_is_kept() {
        let table = BoundedTable::new(|_, _| false);
        let hot = get(&table, "hot", || Arc::new(0));
        for key in 0..1_000_000_u64 {
            get(&table, key, || Arc::new(key));
            if key % 1000 == 0 {
                let kept = get(&table, "hot", || Arc::new(1));
                assert!(Arc::ptr_eq(&hot, &kept), "forgotten at {key}");
            }
        }
        assert!(len(&table) <= SHARDS * KEYS_PER_SHARD);
    }

    #[test]
    fn what_matters_is_kept_though_nobody_uses_it() {
        let table = BoundedTable::new(|value: &Arc<u64>, _| **value == 0);
        let kept = get(&table, "matters", || Arc::new(0));
        for key in 1..100_000_u64 {
            get(&table, key, || Arc::new(key));
        }
        assert!(Arc::ptr_eq(&kept, &get(&table, "matters", || Arc::new(0))));

        // But not at any price.
        let table = BoundedTable::new(|_, _| true);
        for key in 0..100_000_u64 {
            get(&table, key, || key);
        }
        assert!(len(&table) <= SHARDS * KEYS_PER_SHARD);
    }

    #[test]
    fn a_table_whose_keys_are_all_in_use_stays_within_bounds() {
        let table = BoundedTable::new(|_, _| false);
        for round in 0..3 {
            for key in 0..10_000_u64 {
                get(&table, key, || round);
                get(&table, key, || round);
            }
        }
        let len = len(&table);
        assert!(len <= SHARDS * KEYS_PER_SHARD && len > 1000, "{len}");
    }
}
