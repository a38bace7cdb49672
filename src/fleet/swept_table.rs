//! A table that forgets what is over. Otherwise each key ever used would stay.

use std::collections::HashMap;

/// The first sweep happens at this many keys.
const FIRST_SWEEP: usize = 64;

#[derive(Debug, Default)]
pub(super) struct SweptTable<T> {
    entries: HashMap<String, T>,
    /// Number of keys at which the next sweep happens, if that is more than [`FIRST_SWEEP`].
    sweep_at: usize,
}

impl<T: Default> SweptTable<T> {
    /// Returns the entry of a key. It is new if there was none or if that is over.
    ///
    /// Sweeps when the table has doubled, so that the cost per key is small.
    pub(super) fn entry(&mut self, key: &str, is_over: impl Fn(&T) -> bool) -> &mut T {
        if self.entries.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.entries.retain(|_, entry| !is_over(entry));
            self.sweep_at = self.entries.len() * 2;
        }
        let entry = self.entries.entry(key.to_owned()).or_default();
        if is_over(entry) {
            *entry = T::default();
        }
        entry
    }

    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.entries.get(key)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_expired_are_forgotten() {
        let mut expires = SweptTable::<u32>::default();
        for now in 0..10_000 {
            *expires.entry(&now.to_string(), |expires| *expires <= now) = now + 100;
        }
        assert!(expires.len() < 256);
        assert_eq!(expires.entry("9999", |expires| *expires <= 10_000), &10_099);
        assert_eq!(expires.entry("9999", |expires| *expires <= 10_099), &0);
    }
}
