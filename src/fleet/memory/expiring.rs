//! A table that forgets expired keys, as Redis does. Otherwise each key ever used would stay.

use std::collections::HashMap;

/// The first sweep happens at this many keys.
const FIRST_SWEEP: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Expiring<T> {
    entries: HashMap<String, ExpiringEntry<T>>,
    /// Number of keys at which the next sweep happens, if that is more than [`FIRST_SWEEP`].
    sweep_at: usize,
}

#[derive(Debug, Default)]
pub(super) struct ExpiringEntry<T> {
    pub(super) value: T,
    /// In microseconds.
    expires: f64,
}

impl<T: Default> Expiring<T> {
    /// Returns the entry of a key. It is new if there was none or if it had expired.
    pub(super) fn get(&mut self, key: &str, now: f64) -> &mut ExpiringEntry<T> {
        self.sweep_if_due(now);
        let entry = self.entries.entry(key.to_owned()).or_default();
        if entry.expires <= now {
            *entry = ExpiringEntry::default();
        }
        entry
    }

    /// Sweeps when the table has doubled, so that the cost per key is small.
    fn sweep_if_due(&mut self, now: f64) {
        if self.entries.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.entries.retain(|_, entry| entry.expires > now);
            self.sweep_at = self.entries.len() * 2;
        }
    }
}

impl<T> ExpiringEntry<T> {
    pub(super) fn keep_until(&mut self, until: f64) {
        self.expires = self.expires.max(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_expired_are_forgotten() {
        let mut table = Expiring::<u32>::default();
        for number in 0..10_000 {
            let now = f64::from(number);
            let entry = table.get(&number.to_string(), now);
            entry.value = number;
            entry.keep_until(now + 100.0);
        }
        assert!(table.entries.len() < 2 * FIRST_SWEEP);
        assert_eq!(table.get("9999", 10_000.0).value, 9999);
        assert_eq!(table.get("9999", 10_099.0).value, 0);
    }
}
