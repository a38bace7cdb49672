//! The queue of a gate: first in, first out, and retries ahead of first attempts.
//!
//! A waiter can leave from anywhere, and every step takes constant time. The waiters are in a slab; two
//! linked lists through it keep the order.

use std::task::Waker;
use std::time::Duration;

use super::gate::Grant;
use crate::clock::Time;
use crate::outcome::RefusalReason;
use slab::Slab;

/// Identifies a waiter. Valid until [`WaitQueue::remove`].
pub(super) type WaiterId = usize;

/// An empty queue keeps memory for this many waiters.
const KEPT_CAPACITY: usize = 64;

#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    waiters: Slab<Waiter>,
    /// First attempts, then retries: `is_retry` is the index.
    lines: [WaitLine; 2],
}

/// A call that waits, or that was admitted or refused and has not noticed yet.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) waker: Option<Waker>,
    pub(super) state: WaiterState,
    pub(super) limit: WaitLimit,
    since: Time,
    is_retry: bool,
    /// Neighbours in its line, while the state is `Waiting`.
    previous: Option<WaiterId>,
    next: Option<WaiterId>,
}

/// How long a call may wait, and the reason for its refusal after that.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimit {
    pub(super) at: Time,
    pub(super) reason: RefusalReason,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum WaiterState {
    Waiting,
    Admitted(Grant),
    Refused(RefusalReason),
}

/// The waiters in one order. Only those whose state is `Waiting`.
#[derive(Debug, Default)]
struct WaitLine {
    first: Option<WaiterId>,
    last: Option<WaiterId>,
    len: usize,
}

impl WaitQueue {
    /// Returns how many calls wait.
    pub(super) fn len(&self) -> usize {
        self.lines.iter().map(|line| line.len).sum()
    }

    /// Returns how many retries wait, or how many first attempts.
    pub(super) fn line_len(&self, is_retry: bool) -> usize {
        self.lines[usize::from(is_retry)].len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the next waiter. A probe takes a first attempt if there is one: otherwise one call would
    /// spend all its retries on probes.
    pub(super) fn next(&self, probing: bool) -> Option<WaiterId> {
        let [first_attempts, retries] = &self.lines;
        if probing {
            first_attempts.first.or(retries.first)
        } else {
            retries.first.or(first_attempts.first)
        }
    }

    pub(super) fn get(&mut self, id: WaiterId) -> &mut Waiter {
        &mut self.waiters[id]
    }

    /// Returns the age of the oldest waiter, or zero if the queue is empty.
    pub(super) fn longest_wait(&self, now: Time) -> Duration {
        if self.is_empty() {
            return Duration::ZERO;
        }
        let firsts = self.lines.iter().filter_map(|line| line.first);
        let waits = firsts.map(|id| now.saturating_sub(self.waiters[id].since));
        waits.max().unwrap_or_default()
    }

    pub(super) fn push(&mut self, is_retry: bool, now: Time, limit: WaitLimit) -> WaiterId {
        let line = &mut self.lines[usize::from(is_retry)];
        let previous = line.last;
        let id = self.waiters.insert(Waiter {
            waker: None,
            state: WaiterState::Waiting,
            limit,
            since: now,
            is_retry,
            previous,
            next: None,
        });
        line.last = Some(id);
        line.len += 1;
        match previous {
            Some(previous) => self.waiters[previous].next = Some(id),
            None => line.first = Some(id),
        }
        id
    }

    /// Admits or refuses a waiter, and returns its waker.
    pub(super) fn finish(&mut self, id: WaiterId, state: WaiterState) -> Option<Waker> {
        self.unlink(id);
        let waiter = &mut self.waiters[id];
        waiter.state = state;
        waiter.waker.take()
    }

    /// Removes a waiter, and returns its last state.
    pub(super) fn remove(&mut self, id: WaiterId) -> WaiterState {
        let state = self.waiters[id].state;
        if let WaiterState::Waiting = state {
            self.unlink(id);
        }
        self.waiters.remove(id);
        if self.waiters.is_empty() && self.waiters.capacity() > KEPT_CAPACITY {
            self.waiters = Slab::with_capacity(KEPT_CAPACITY);
        }
        state
    }

    /// Refuses all waiters whose limit ends before this time.
    pub(super) fn refuse_before(&mut self, end: Time, wakers: &mut Vec<Waker>) {
        for is_retry in [true, false] {
            let mut next = self.lines[usize::from(is_retry)].first;
            while let Some(id) = next {
                let waiter = &self.waiters[id];
                next = waiter.next;
                if waiter.limit.at < end {
                    let reason = waiter.limit.reason;
                    wakers.extend(self.finish(id, WaiterState::Refused(reason)));
                }
            }
        }
    }

    fn unlink(&mut self, id: WaiterId) {
        let Waiter {
            is_retry,
            previous,
            next,
            ..
        } = self.waiters[id];
        let line = &mut self.lines[usize::from(is_retry)];
        match previous {
            Some(previous) => self.waiters[previous].next = next,
            None => line.first = next,
        }
        match next {
            Some(next) => self.waiters[next].previous = previous,
            None => line.last = previous,
        }
        line.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limit(seconds: u64) -> WaitLimit {
        WaitLimit {
            at: Duration::from_secs(seconds),
            reason: RefusalReason::WaitTooLong,
        }
    }

    #[test]
    fn first_in_is_first_out_and_any_waiter_may_leave() {
        let mut queue = WaitQueue::default();
        let fresh: Vec<_> = (0..5)
            .map(|_| queue.push(false, Time::ZERO, limit(1)))
            .collect();
        let again: Vec<_> = (0..2)
            .map(|_| queue.push(true, Time::ZERO, limit(1)))
            .collect();
        assert_eq!((queue.line_len(false), queue.line_len(true)), (5, 2));
        queue.remove(fresh[0]);
        queue.remove(fresh[2]);
        queue.remove(fresh[4]);
        let mut order = Vec::new();
        while let Some(id) = queue.next(false) {
            queue.finish(id, WaiterState::Admitted(Grant::default()));
            assert!(matches!(queue.remove(id), WaiterState::Admitted(_)));
            order.push(id);
        }
        assert_eq!(order, [again[0], again[1], fresh[1], fresh[3]]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_probe_takes_a_first_attempt() {
        let mut queue = WaitQueue::default();
        let again = queue.push(true, Time::ZERO, limit(1));
        assert_eq!(queue.next(true), Some(again));
        let fresh = queue.push(false, Time::ZERO, limit(1));
        assert_eq!(queue.next(true), Some(fresh));
        assert_eq!(queue.next(false), Some(again));
    }

    #[test]
    fn waiters_with_earlier_limits_are_refused() {
        let mut queue = WaitQueue::default();
        let ids: Vec<_> = (0..6)
            .map(|at| queue.push(at % 2 == 0, Time::ZERO, limit(at)))
            .collect();
        queue.refuse_before(Duration::from_secs(3), &mut Vec::new());
        assert_eq!(queue.len(), 3);
        for (at, id) in ids.into_iter().enumerate() {
            let refused = matches!(queue.remove(id), WaiterState::Refused(_));
            assert_eq!(refused, at < 3);
        }
    }

    #[test]
    fn an_empty_queue_gives_its_memory_back() {
        let mut queue = WaitQueue::default();
        let ids: Vec<_> = (0..10_000)
            .map(|_| queue.push(false, Time::ZERO, limit(1)))
            .collect();
        for id in ids {
            queue.remove(id);
        }
        assert!(queue.waiters.capacity() <= 2 * KEPT_CAPACITY);
    }
}
