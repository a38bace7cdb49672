//! Who waits for a turn, first in, first out; a repeated attempt before those never tried.
//!
//! Everybody can leave from anywhere, and every step takes the same time however many wait.

use std::task::Waker;
use std::time::Duration;

use super::controller::{SendRecord, Time};
use crate::outcome::RefusalReason;
use slab::Slab;

/// A place in the queue. Valid until it is given back with [`Queue::remove`].
pub(super) type Place = usize;

/// An empty queue keeps room for so many.
const KEPT_ROOM: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiters: Slab<Waiter>,
    again: Line,
    fresh: Line,
}

/// One who waits, or has been told and does not know yet.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) waker: Option<Waker>,
    pub(super) state: State,
    /// Waiting longer makes no sense.
    pub(super) limit: Limit,
    since: Time,
    again: bool,
    before: Option<Place>,
    behind: Option<Place>,
}

/// The last moment to go, and which limit set it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) at: Time,
    pub(super) reason: RefusalReason,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Waiting,
    Granted(Option<SendRecord>),
    Refused(RefusalReason),
}

#[derive(Debug, Default)]
struct Line {
    first: Option<Place>,
    last: Option<Place>,
    len: usize,
}

impl Queue {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.again.len + self.fresh.len
    }

    /// How many wait in the same line as this one would.
    pub(super) fn len_of(&self, again: bool) -> usize {
        if again {
            self.again.len
        } else {
            self.fresh.len
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whose turn is next. A probe takes a call that was never tried, if there is one, or a single
    /// call would spend all its retries on probing.
    pub(super) fn next(&self, probing: bool) -> Option<Place> {
        if probing {
            self.fresh.first.or(self.again.first)
        } else {
            self.again.first.or(self.fresh.first)
        }
    }

    pub(super) fn get(&mut self, place: Place) -> &mut Waiter {
        &mut self.waiters[place]
    }

    /// How long the one waits that waits longest. Mostly nobody does, and then nobody asks.
    #[cold]
    pub(super) fn longest_wait(&self, now: Time) -> Duration {
        let firsts = [self.again.first, self.fresh.first];
        let wait = |place: Place| now.saturating_sub(self.waiters[place].since);
        firsts
            .into_iter()
            .flatten()
            .map(wait)
            .max()
            .unwrap_or_default()
    }

    pub(super) fn push(&mut self, again: bool, now: Time, limit: Limit) -> Place {
        let line = if again {
            &mut self.again
        } else {
            &mut self.fresh
        };
        let before = line.last;
        let place = self.waiters.insert(Waiter {
            waker: None,
            state: State::Waiting,
            limit,
            since: now,
            again,
            before,
            behind: None,
        });
        line.last = Some(place);
        line.len += 1;
        match before {
            Some(before) => self.waiters[before].behind = Some(place),
            None => line.first = Some(place),
        }
        place
    }

    /// Ends the waiting of one, who still has to be told.
    pub(super) fn settle(&mut self, place: Place, state: State) -> Option<Waker> {
        self.unlink(place);
        let waiter = &mut self.waiters[place];
        waiter.state = state;
        waiter.waker.take()
    }

    /// Gives a place back.
    pub(super) fn remove(&mut self, place: Place) -> State {
        let state = self.waiters[place].state;
        if let State::Waiting = state {
            self.unlink(place);
        }
        self.waiters.remove(place);
        if self.waiters.is_empty() && self.waiters.capacity() > KEPT_ROOM {
            self.waiters = Slab::with_capacity(KEPT_ROOM);
        }
        state
    }

    /// Refuses all whose limit comes before this.
    pub(super) fn refuse_before(&mut self, end: Time, wakers: &mut Vec<Waker>) {
        for first in [self.again.first, self.fresh.first] {
            let mut next = first;
            while let Some(place) = next {
                let waiter = &self.waiters[place];
                next = waiter.behind;
                if waiter.limit.at < end {
                    let reason = waiter.limit.reason;
                    wakers.extend(self.settle(place, State::Refused(reason)));
                }
            }
        }
    }

    fn unlink(&mut self, place: Place) {
        let Waiter {
            again,
            before,
            behind,
            ..
        } = self.waiters[place];
        let line = if again {
            &mut self.again
        } else {
            &mut self.fresh
        };
        match before {
            Some(before) => self.waiters[before].behind = behind,
            None => line.first = behind,
        }
        match behind {
            Some(behind) => self.waiters[behind].before = before,
            None => line.last = before,
        }
        line.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limit(seconds: u64) -> Limit {
        Limit {
            at: Duration::from_secs(seconds),
            reason: RefusalReason::WaitTooLong,
        }
    }

    #[test]
    fn first_in_is_first_out_and_anybody_may_leave() {
        let mut queue = Queue::default();
        let fresh: Vec<_> = (0..5)
            .map(|_| queue.push(false, Time::ZERO, limit(1)))
            .collect();
        let again: Vec<_> = (0..2)
            .map(|_| queue.push(true, Time::ZERO, limit(1)))
            .collect();
        assert_eq!((queue.len_of(false), queue.len_of(true)), (5, 2));
        queue.remove(fresh[0]);
        queue.remove(fresh[2]);
        queue.remove(fresh[4]);
        let mut order = Vec::new();
        while let Some(place) = queue.next(false) {
            queue.settle(place, State::Granted(None));
            assert!(matches!(queue.remove(place), State::Granted(None)));
            order.push(place);
        }
        assert_eq!(order, [again[0], again[1], fresh[1], fresh[3]]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_probe_takes_one_that_was_never_tried() {
        let mut queue = Queue::default();
        let again = queue.push(true, Time::ZERO, limit(1));
        assert_eq!(queue.next(true), Some(again));
        let fresh = queue.push(false, Time::ZERO, limit(1));
        assert_eq!(queue.next(true), Some(fresh));
        assert_eq!(queue.next(false), Some(again));
    }

    #[test]
    fn those_whose_limit_comes_first_are_refused() {
        let mut queue = Queue::default();
        let places: Vec<_> = (0..6)
            .map(|at| queue.push(at % 2 == 0, Time::ZERO, limit(at)))
            .collect();
        queue.refuse_before(Duration::from_secs(3), &mut Vec::new());
        assert_eq!(queue.len(), 3);
        for (at, place) in places.into_iter().enumerate() {
            let refused = matches!(queue.remove(place), State::Refused(_));
            assert_eq!(refused, at < 3);
        }
    }

    #[test]
    fn an_empty_queue_gives_its_memory_back() {
        let mut queue = Queue::default();
        let places: Vec<_> = (0..10_000)
            .map(|_| queue.push(false, Time::ZERO, limit(1)))
            .collect();
        for place in places {
            queue.remove(place);
        }
        assert!(queue.waiters.capacity() <= 2 * KEPT_ROOM);
    }
}
