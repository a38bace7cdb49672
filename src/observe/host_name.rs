//! The names of hosts, for those who keep one as long as a call runs.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// What this thread was asked for last: most calls go where the one before went.
    static LAST: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// The same text, to keep. Nothing is allocated for a host that has been named just before.
pub(crate) fn host_name(host: &str) -> Arc<str> {
    let name = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        match &*last {
            Some(last) if **last == *host => Arc::clone(last),
            _ => Arc::clone(last.insert(host.into())),
        }
    });
    // A thread that is ending remembers nothing.
    name.unwrap_or_else(|_| host.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_was_asked_for_and_shared_if_it_is_that_of_the_one_before() {
        let [first, second, other, third] = ["a", "a", "b", "a"].map(host_name);
        assert_eq!([&*first, &*second, &*other, &*third], ["a", "a", "b", "a"]);
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &third));
    }
}
