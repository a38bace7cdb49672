//! What a worker holds from a store until it uses it or it expires.

use super::Time;

/// Tokens or retries that a worker holds from the store.
#[derive(Debug, Default)]
pub(super) struct Holding {
    pub(super) left: u32,
    /// When `left` moves to `unused`.
    pub(super) expires: Time,
    /// What expired. The next ask gives it back to the store.
    pub(super) unused: u32,
}

impl Holding {
    /// Adds what the store granted. All that is held then expires at `expires`.
    pub(super) fn add(&mut self, granted: u32, expires: Time) {
        self.left = self.left.saturating_add(granted);
        self.expires = expires;
    }

    /// Undoes the use of one.
    pub(super) fn put_back(&mut self) {
        self.left = self.left.saturating_add(1);
    }

    pub(super) fn expire(&mut self, now: Time) {
        if self.left > 0 && now >= self.expires {
            self.unused = self.unused.saturating_add(self.left);
            self.left = 0;
        }
    }

    /// Returns what the next ask hands back.
    pub(super) fn take_unused(&mut self) -> u32 {
        std::mem::take(&mut self.unused)
    }
}
