//! The hosts that are counted apart, found without a lock: every event of every call looks here.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::host::HostMetrics;

/// The places of the first part; each has twice as many as the one before, and is made when that is full.
const FIRST_PART: usize = 256;
const PARTS: usize = 24;
/// A host is in one of so many places of each part.
const NEIGHBOURS: usize = 8;

/// A host takes the first of its places that is free, and nobody is ever removed: where a search comes to
/// a free place, it is over.
pub(super) struct Known {
    parts: [OnceLock<Box<[Place]>>; PARTS],
    hasher: RandomState,
    /// How many there are. One at a time is added.
    len: Mutex<usize>,
    /// There are as many as there may be: nobody has to look again.
    full: AtomicBool,
}

type Place = OnceLock<Box<HostMetrics>>;

thread_local! {
    /// Part and place of the host that this thread found last, in whichever `Known` that was: the events of
    /// one call come one after the other.
    static LAST: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

impl Known {
    fn get(&self, host: &str) -> Option<&HostMetrics> {
        self.last(host).or_else(|| self.search(host))
    }

    /// The host that this thread found last, if it is this one.
    #[inline(always)]
    pub(super) fn last(&self, host: &str) -> Option<&HostMetrics> {
        let (part, place) = LAST.try_with(Cell::get).ok()?;
        let last = self.parts.get(part)?.get()?.get(place)?.get()?;
        (last.host() == host).then_some(last)
    }

    pub(super) fn search(&self, host: &str) -> Option<&HostMetrics> {
        let found = self.find(host);
        // If there is none, the next event need not look at the last: it is not the one.
        let place = found.map_or((PARTS, 0), |(place, _)| place);
        // A thread that is ending remembers nothing.
        let _ = LAST.try_with(|last| last.set(place));
        found.map(|(_, found)| found)
    }

    /// With its part and place.
    #[inline]
    fn find(&self, host: &str) -> Option<((usize, usize), &HostMetrics)> {
        let hash = self.hash(host);
        for (number, part) in self.parts.iter().enumerate() {
            let part = part.get()?;
            for place in neighbours(part, hash) {
                let found = part[place].get()?;
                if found.host() == host {
                    return Some(((number, place), found));
                }
            }
        }
        None
    }

    /// Whether there are as many as there may be. Who is not found after this is none of them.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Adds one, unless there are as many as there may be.
    pub(super) fn add(&self, host: &str, max: usize) -> Option<&HostMetrics> {
        let mut len = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been quicker.
        if let Some(known) = self.get(host) {
            return Some(known);
        }
        if *len >= max {
            self.full.store(true, Ordering::Release);
            return None;
        }
        let place = self.free_place(host)?;
        *len += 1;
        Some(place.get_or_init(|| Box::new(HostMetrics::new(host))))
    }

    pub(super) fn len(&self) -> usize {
        *self.len.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free_place(&self, host: &str) -> Option<&Place> {
        let hash = self.hash(host);
        let parts = self.parts.iter().enumerate();
        let mut places = parts.flat_map(|(number, part)| {
            let new = || (0..FIRST_PART << number).map(|_| Place::new()).collect();
            let part = part.get_or_init(new);
            neighbours(part, hash).map(move |place| &part[place])
        });
        places.find(|place| place.get().is_none())
    }

    fn hash(&self, host: &str) -> usize {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(host.as_bytes());
        hasher.finish() as usize
    }
}

impl Default for Known {
    fn default() -> Self {
        Self {
            parts: [const { OnceLock::new() }; PARTS],
            hasher: RandomState::default(),
            len: Mutex::default(),
            full: AtomicBool::new(false),
        }
    }
}

/// The places of a part where a host may be.
fn neighbours(part: &[Place], hash: usize) -> impl Iterator<Item = usize> + use<> {
    // The size is a power of two.
    let mask = part.len() - 1;
    (0..NEIGHBOURS).map(move |step| hash.wrapping_add(step) & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_is_found_again_however_many_there_are() {
        let known = Known::default();
        let name = |number: u32| format!("host-{number}.example.com");
        for number in 0..2000 {
            assert!(known.get(&name(number)).is_none());
            let added = known.add(&name(number), 2000).expect("there is room");
            let again = known.add(&name(number), 2000).expect("it is there");
            assert!(std::ptr::eq(added, again));
        }
        assert!(known.add(&name(2000), 2000).is_none());
        assert!(known.get(&name(2000)).is_none());
        assert_eq!(known.len(), 2000);
        for number in 0..2000 {
            let found = known.get(&name(number)).expect("it was added");
            assert_eq!(found.host(), name(number));
        }
    }

    #[test]
    fn what_a_thread_found_last_is_not_taken_for_another() {
        let (one, other) = (Known::default(), Known::default());
        for host in ["a", "b"] {
            one.add(host, 2);
        }
        other.add("a", 1);
        for _ in 0..3 {
            for host in ["a", "b", "b", "a"] {
                assert_eq!(one.get(host).unwrap().host(), host);
            }
            let found = other.get("a").expect("it was added");
            assert!(!std::ptr::eq(found, one.get("a").unwrap()));
            assert!(other.get("b").is_none() && one.get("c").is_none());
        }
        // Full is what was found to be full.
        assert!(!other.is_full() && other.add("b", 1).is_none() && other.is_full());
    }

    #[test]
    fn threads_that_add_the_same_host_share_it() {
        let known = Known::default();
        std::thread::scope(|scope| {
            let add = || {
                known
                    .add("a", 1)
                    .map(std::ptr::from_ref)
                    .map(|it| it as usize)
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(add)).collect();
            let mut found = threads.into_iter().map(|thread| thread.join().unwrap());
            let first = found.next().unwrap();
            assert!(first.is_some() && found.all(|other| other == first));
        });
        assert_eq!(known.len(), 1);
    }
}
