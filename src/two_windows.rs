//! A counter over two adjoining windows of time: the current one and the one before it.
//!
//! It counts what happened recently, in constant memory. Time comes in as an argument, from zero.
//! What a window counts, and how both windows combine, is up to the user of the counter.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct TwoWindows {
    length: Duration,
    /// Start of the current window. Later than now if only the previous window has begun.
    start: Duration,
    /// Zero, unless something happened between `start - length` and `start`.
    pub(crate) previous: u32,
    pub(crate) current: u32,
}

/// How [`TwoWindows::advance`] has moved the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// The current window still lasts.
    Same,
    /// The current window became the previous one.
    Next,
    /// Both windows were over and are empty now.
    Restarted,
}

impl TwoWindows {
    /// Creates empty windows of which the current one begins at `start`.
    pub(crate) fn new(length: Duration, start: Duration) -> Self {
        Self {
            length,
            start,
            previous: 0,
            current: 0,
        }
    }

    pub(crate) fn start(&self) -> Duration {
        self.start
    }

    /// Drops what is too old. The new window follows the old one, or begins now after a restart.
    pub(crate) fn advance(&mut self, now: Duration) -> Advance {
        let age = now.saturating_sub(self.start);
        if age < self.length {
            return Advance::Same;
        }
        let current = std::mem::take(&mut self.current);
        if age < self.length * 2 {
            self.previous = current;
            self.start += self.length;
            Advance::Next
        } else {
            self.previous = 0;
            self.start = now;
            Advance::Restarted
        }
    }

    /// Moves the start of the current window and keeps what was counted.
    pub(crate) fn start_at(&mut self, start: Duration) {
        self.start = start;
    }

    /// Returns the larger of both counts.
    pub(crate) fn max(&self) -> u32 {
        self.current.max(self.previous)
    }

    /// Returns the sum of both counts.
    pub(crate) fn sum(&self) -> u32 {
        self.current.saturating_add(self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_window_is_followed_by_the_next_and_forgotten_after_two() {
        let mut windows = TwoWindows::new(millis(500), Duration::ZERO);
        windows.current = 3;
        assert_eq!(windows.advance(millis(499)), Advance::Same);
        assert_eq!((windows.previous, windows.current), (0, 3));
        assert_eq!(windows.advance(millis(999)), Advance::Next);
        assert_eq!((windows.previous, windows.current), (3, 0));
        assert_eq!(windows.start(), millis(500));
        windows.current = 2;
        assert_eq!((windows.max(), windows.sum()), (3, 5));
        assert_eq!(windows.advance(millis(1500)), Advance::Restarted);
        assert_eq!((windows.previous, windows.current), (0, 0));
        assert_eq!(windows.start(), millis(1500));
    }

    #[test]
    fn nothing_moves_before_the_start() {
        let mut windows = TwoWindows::new(millis(500), millis(1000));
        assert_eq!(windows.advance(millis(10)), Advance::Same);
        windows.start_at(millis(2000));
        assert_eq!(windows.advance(millis(2499)), Advance::Same);
        assert_eq!(windows.advance(millis(2500)), Advance::Next);
    }
}
