//! A sliding window of credits and debits, in constant memory, without a lock per operation.
//!
//! One atomic holds the net of all live slots. A ring behind a lock, taken once per slot, holds the net of
//! each closed slot and what the atomic was when the open slot began. So an operation changes one word, and
//! the difference is the net of a slot when it closes.
//!
//! `models/` runs this file under loom. It also runs the file with typical mistakes and expects loom to find
//! each.

use std::sync::PoisonError;

use super::sync::{AtomicI64, AtomicU64, Mutex, Ordering};

/// Entries live for at least `SLOTS - 1` slots, and at most for one more.
#[derive(Debug)]
pub(crate) struct SlidingWindow<const SLOTS: usize> {
    /// The net of all live slots.
    live: AtomicI64,
    /// When the open slot ends. Slot n ends at (n + 1) · width, so this is also its number.
    end: AtomicU64,
    width: u64,
    ring: Mutex<Ring<SLOTS>>,
}

#[derive(Debug)]
struct Ring<const SLOTS: usize> {
    /// The net of each closed slot, at its number modulo `SLOTS`.
    nets: [i64; SLOTS],
    /// Value of `live` when the open slot began.
    opened_at: i64,
}

/// End of the slot of a debit. Giving back credits this slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotEnd(u64);

impl<const SLOTS: usize> SlidingWindow<SLOTS> {
    /// Times count from zero in any unit. A slot lasts `width`.
    pub(crate) fn new(width: u64) -> Self {
        Self {
            live: AtomicI64::new(0),
            end: AtomicU64::new(width),
            width,
            ring: Mutex::new(Ring {
                nets: [0; SLOTS],
                opened_at: 0,
            }),
        }
    }

    /// Adds to the open slot.
    pub(crate) fn add(&self, now: u64, amount: i64) {
        self.roll_if_due(now);
        self.live.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes from the open slot, unless the net would fall below `floor`.
    pub(crate) fn try_take(&self, now: u64, amount: i64, floor: i64) -> Option<SlotEnd> {
        self.roll_if_due(now);
        // Before the debit: if a slot closes in between, the debit lives longer than its refund. In the
        // other order, a refund would outlive its debit and create credit.
        let slot = SlotEnd(self.end.load(Ordering::Relaxed));
        // Checks and debits in one step.
        self.live
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
                let rest = live - amount;
                (rest >= floor).then_some(rest)
            })
            .ok()
            .map(|_| slot)
    }

    /// Undoes a debit completely. Reads no clock, so that `Drop` may call it.
    pub(crate) fn give_back(&self, slot: SlotEnd, amount: i64) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let age = (self.end.load(Ordering::Relaxed) - slot.0) / self.width;
        if age >= SLOTS as u64 {
            // The debit has expired already.
            return;
        }
        if age > 0 {
            ring.nets[self.index(slot.0)] += amount;
            ring.opened_at += amount;
        }
        self.live.fetch_add(amount, Ordering::Relaxed);
    }

    /// Returns the net of all live slots.
    pub(crate) fn net(&self, now: u64) -> i64 {
        self.roll_if_due(now);
        self.live.load(Ordering::Relaxed)
    }

    fn roll_if_due(&self, now: u64) {
        // Acquire: a thread that sees the new end also sees `live` without expired slots.
        if now >= self.end.load(Ordering::Acquire) {
            self.roll(now);
        }
    }

    fn roll(&self, now: u64) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have rolled meanwhile.
        let end = self.end.load(Ordering::Relaxed);
        if now < end {
            return;
        }
        let passed = (now - end) / self.width + 1;
        if passed >= SLOTS as u64 {
            // All slots have expired.
            self.live.swap(0, Ordering::Relaxed);
            ring.nets = [0; SLOTS];
            ring.opened_at = 0;
        } else {
            let open = self.index(end);
            let mut expired = 0;
            for offset in 1..=passed as usize {
                expired += std::mem::take(&mut ring.nets[(open + offset) % SLOTS]);
            }
            let before = self.live.fetch_sub(expired, Ordering::Relaxed);
            ring.nets[open] = before - ring.opened_at;
            ring.opened_at = before - expired;
        }
        // Last, so that no thread takes expired slots for live.
        self.end.store(end + passed * self.width, Ordering::Release);
    }

    fn index(&self, end: u64) -> usize {
        ((end / self.width - 1) % SLOTS as u64) as usize
    }
}
