//! A bounded table of values by key, which evicts keys that are no longer used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use tokio::time::Instant;

use crate::clock;
use crate::hashed::HashedMap;

/// Enough that threads seldom wait for the same lock.
const SHARDS: usize = 16;
/// 4096 keys in all, at a few hundred bytes each.
const KEYS_PER_SHARD: usize = 256;

/// A concurrent table of bounded size with CLOCK (second chance) eviction.
///
/// Keys are hashes from [`hash_of`](crate::hashed::hash_of). Two texts with the same hash share a value: this is
/// unlikely and harmless.
#[derive(Debug)]
pub(crate) struct BoundedTable<T> {
    shards: [RwLock<Shard<T>>; SHARDS],
    must_keep: MustKeep<T>,
}

/// Whether a value differs from a new one, so that evicting it would lose something.
type MustKeep<T> = fn(&T, Instant) -> bool;

#[derive(Debug)]
struct Shard<T> {
    /// Maps each key to its position in `entries`.
    index: HashedMap<u64, usize>,
    /// At most [`KEYS_PER_SHARD`] entries. None is ever removed, only replaced.
    entries: Vec<Entry<T>>,
    /// The clock hand: the position in `entries` that eviction looks at next.
    hand: usize,
}

#[derive(Debug)]
struct Entry<T> {
    key: u64,
    value: T,
    /// Whether the key was read since the hand last passed.
    used: AtomicBool,
}

impl<T: Clone> BoundedTable<T> {
    pub(crate) fn new(must_keep: MustKeep<T>) -> Self {
        Self {
            shards: std::array::from_fn(|_| {
                RwLock::new(Shard {
                    index: HashedMap::default(),
                    entries: Vec::new(),
                    hand: 0,
                })
            }),
            must_keep,
        }
    }

    /// Returns the value of this key.
    ///
    /// A new key gets a value from `new`. If the table is full, it evicts a key and passes its value to `renew`.
    pub(crate) fn get(
        &self,
        key: u64,
        new: impl FnOnce(Instant) -> T,
        renew: impl FnOnce(&mut T, Instant),
    ) -> T {
        let shard = &self.shards[key as usize % SHARDS];
        if let Some(entry) = read(shard).find(key) {
            // Stores only if it changes something, so that the cache line stays shared between threads.
            if !entry.used.load(Ordering::Relaxed) {
                entry.used.store(true, Ordering::Relaxed);
            }
            return entry.value.clone();
        }
        let now = clock::now();
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = shard.find(key) {
            // Another thread added it between the two locks.
            return entry.value.clone();
        }
        if shard.entries.len() < KEYS_PER_SHARD {
            return shard.add(key, new(now));
        }
        let victim = shard.victim(|value| (self.must_keep)(value, now));
        shard.replace(victim, key, |value| renew(value, now))
    }

    /// Returns the value of this key, if it has one. Adds nothing, and does not count as a use.
    pub(crate) fn peek(&self, key: u64) -> Option<T> {
        let shard = read(&self.shards[key as usize % SHARDS]);
        shard.find(key).map(|entry| entry.value.clone())
    }

    /// Returns all values, in no order. Adds nothing, and does not count as a use.
    ///
    /// It locks one shard at a time. So it may miss a value that is added or evicted meanwhile.
    pub(crate) fn values(&self) -> Vec<T> {
        let mut values = Vec::new();
        for shard in &self.shards {
            let shard = read(shard);
            values.extend(shard.entries.iter().map(|entry| entry.value.clone()));
        }
        values
    }
}

impl<T> BoundedTable<T> {
    /// Changes all values, one shard after the other.
    pub(crate) fn update_all(&self, mut update: impl FnMut(&mut T)) {
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            for entry in &mut shard.entries {
                update(&mut entry.value);
            }
        }
    }
}

impl<T: Clone> Shard<T> {
    fn find(&self, key: u64) -> Option<&Entry<T>> {
        let position = self.index.get(&key)?;
        self.entries.get(*position)
    }

    fn add(&mut self, key: u64, value: T) -> T {
        self.index.insert(key, self.entries.len());
        self.entries.push(Entry {
            key,
            value: value.clone(),
            used: AtomicBool::new(false),
        });
        value
    }

    /// Returns the position of the entry to evict, and advances the hand.
    ///
    /// Prefers an entry that was not used for a whole round of the hand and need not be kept. The second round finds
    /// any entry that need not be kept. If all must be kept, it evicts the next one.
    fn victim(&mut self, must_keep: impl Fn(&T) -> bool) -> usize {
        for _ in 0..2 * self.entries.len() {
            let position = self.advance();
            let entry = &mut self.entries[position];
            if !std::mem::take(entry.used.get_mut()) && !must_keep(&entry.value) {
                return position;
            }
        }
        self.advance()
    }

    /// Moves the hand on, and returns where it was.
    fn advance(&mut self) -> usize {
        let position = self.hand;
        self.hand = (position + 1) % self.entries.len();
        position
    }

    fn replace(&mut self, position: usize, key: u64, renew: impl FnOnce(&mut T)) -> T {
        let entry = &mut self.entries[position];
        // Removed first: if `renew` panics, no key leads to a half-changed value.
        self.index.remove(&entry.key);
        renew(&mut entry.value);
        entry.key = key;
        self.index.insert(key, position);
        entry.value.clone()
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    // A panic leaves no entry half changed.
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::hashed::hash_of;

    fn len<T: Clone>(table: &BoundedTable<T>) -> usize {
        table.values().len()
    }

    fn get<T: Clone>(table: &BoundedTable<T>, key: impl ToString, make: impl Fn() -> T) -> T {
        table.get(hash_of(key.to_string()), |_| make(), |old, _| *old = make())
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
                assert!(Arc::ptr_eq(&hot, &kept), "evicted at {key}");
            }
        }
        assert!(len(&table) <= SHARDS * KEYS_PER_SHARD);
    }

    #[test]
    fn what_must_be_kept_is_kept_though_it_is_not_used() {
        let table = BoundedTable::new(|value: &Arc<u64>, _| **value == 0);
        let kept = get(&table, "kept", || Arc::new(0));
        for key in 1..100_000_u64 {
            get(&table, key, || Arc::new(key));
        }
        assert!(Arc::ptr_eq(&kept, &get(&table, "kept", || Arc::new(0))));

        // Unless all must be kept.
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

    #[test]
    fn a_look_finds_values_and_adds_none() {
        let table = BoundedTable::new(|_, _| false);
        assert_eq!((table.peek(hash_of("a")), table.values()), (None, vec![]));
        for key in 0..100 {
            get(&table, key, || key);
        }
        assert_eq!(table.peek(hash_of("7")), Some(7));
        assert_eq!(table.peek(hash_of("100")), None);
        let mut values = table.values();
        values.sort_unstable();
        assert_eq!(values, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_look_keeps_no_key_from_eviction() {
        let table = BoundedTable::new(|_, _| false);
        // Keys of one shard, so that the order of eviction is known.
        let key = |number: usize| (number * SHARDS) as u64;
        for number in 0..=KEYS_PER_SHARD {
            table.get(key(number), |_| number, |old, _| *old = number);
            table.values();
            let has_first = table.peek(key(0)).is_some();
            assert_eq!(has_first, number < KEYS_PER_SHARD, "{number}");
        }
    }
}
