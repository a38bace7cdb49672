//! A bounded table of values by key, which evicts keys that are no longer used.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::time::Instant;

use crate::clock;

/// Enough hosts for one process, at a few hundred bytes each.
const MAX_KEYS: usize = 4096;
/// How many entries an eviction looks at. It holds the lock meanwhile.
const MAX_STEPS: usize = 512;

/// A concurrent table of bounded size with CLOCK (second chance) eviction.
///
/// It is ordered and not hashed: most clients talk to a few hosts, and a few comparisons take less than one hash.
#[derive(Debug)]
pub(crate) struct BoundedTable<T> {
    entries: RwLock<Entries<T>>,
    must_keep: MustKeep<T>,
}

/// Whether a value differs from a new one, so that evicting it would lose something.
type MustKeep<T> = fn(&T, Instant) -> bool;

#[derive(Debug)]
struct Entries<T> {
    /// Maps each key to its position in `list`.
    index: BTreeMap<Arc<str>, usize>,
    /// At most [`MAX_KEYS`] entries. None is ever removed, only replaced.
    list: Vec<Entry<T>>,
    /// The clock hand: the position in `list` that eviction looks at next.
    hand: usize,
}

#[derive(Debug)]
struct Entry<T> {
    key: Arc<str>,
    value: T,
    /// Whether the key was read since the hand last passed.
    used: AtomicBool,
}

impl<T: Clone> BoundedTable<T> {
    pub(crate) fn new(must_keep: MustKeep<T>) -> Self {
        Self {
            entries: RwLock::default(),
            must_keep,
        }
    }

    /// Returns the value of this key. A new key gets a value from `new`, and a full table evicts another key for it.
    pub(crate) fn get(&self, key: &str, new: impl FnOnce(Instant) -> T) -> T {
        if let Some(entry) = self.read().find(key) {
            // Stores only if it changes something, so that the cache line stays shared between threads.
            if !entry.used.load(Ordering::Relaxed) {
                entry.used.store(true, Ordering::Relaxed);
            }
            return entry.value.clone();
        }
        let now = clock::now();
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.find(key) {
            // Another thread added it between the two locks.
            return entry.value.clone();
        }
        let value = new(now);
        entries.add(key.into(), value.clone(), |value| {
            (self.must_keep)(value, now)
        });
        value
    }

    fn read(&self) -> RwLockReadGuard<'_, Entries<T>> {
        // A panic leaves no entry half changed.
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Entries<T> {
    fn find(&self, key: &str) -> Option<&Entry<T>> {
        let position = self.index.get(key)?;
        self.list.get(*position)
    }

    fn add(&mut self, key: Arc<str>, value: T, must_keep: impl Fn(&T) -> bool) {
        let entry = Entry {
            key: key.clone(),
            value,
            used: AtomicBool::new(false),
        };
        let position = self.list.len();
        if position < MAX_KEYS {
            self.list.push(entry);
            self.index.insert(key, position);
            return;
        }
        let position = self.victim(must_keep);
        let evicted = std::mem::replace(&mut self.list[position], entry);
        self.index.remove(&evicted.key);
        self.index.insert(key, position);
    }

    /// Returns the position of the entry to evict, and advances the hand.
    ///
    /// Prefers an entry that was not used for a whole round of the hand and need not be kept. If it finds none within
    /// its steps, it evicts the next one.
    fn victim(&mut self, must_keep: impl Fn(&T) -> bool) -> usize {
        for _ in 0..MAX_STEPS {
            let position = self.advance();
            let entry = &mut self.list[position];
            if !std::mem::take(entry.used.get_mut()) && !must_keep(&entry.value) {
                return position;
            }
        }
        self.advance()
    }

    /// Moves the hand on, and returns where it was.
    fn advance(&mut self) -> usize {
        let position = self.hand;
        self.hand = (position + 1) % self.list.len();
        position
    }
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self {
            index: BTreeMap::new(),
            list: Vec::new(),
            hand: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len<T: Clone>(table: &BoundedTable<T>) -> usize {
        table.read().list.len()
    }

    fn get<T: Clone>(table: &BoundedTable<T>, key: impl ToString, make: impl Fn() -> T) -> T {
        table.get(&key.to_string(), |_| make())
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
        assert!(len(&table) <= MAX_KEYS);
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
        assert!(len(&table) <= MAX_KEYS);
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
        assert!(len <= MAX_KEYS && len > 1000, "{len}");
    }
}
