//! The memory of a text that nobody needs any more, for the next one: most calls have one after the other.

use std::cell::Cell;

/// Longer ones do not leave their memory to others.
const KEPT: usize = 4096;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// An empty text with so much room.
pub(super) fn empty_text(room: usize) -> Vec<u8> {
    // A thread that is ending has none any more.
    let mut text = SPARE.try_with(Cell::take).unwrap_or_default();
    text.reserve(room);
    text
}

/// Leaves its memory to the next of this thread.
pub(super) fn leave_text(mut text: Vec<u8>) {
    if text.capacity() <= KEPT {
        text.clear();
        let _ = SPARE.try_with(|spare| spare.set(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_empty_has_room_and_is_not_kept_if_it_was_long() {
        leave_text(Vec::from("secret"));
        let text = empty_text(100);
        assert!(text.is_empty() && text.capacity() >= 100);
        leave_text(Vec::with_capacity(KEPT + 1));
        assert_eq!(empty_text(0).capacity(), 0);
    }
}
