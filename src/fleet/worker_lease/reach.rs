//! How far a worker reaches beyond its fair share.
//!
//! A worker may use what the others leave, but nothing tells how much that is. So a worker that wants more
//! reaches further with each good lease, and less far when the store has little left. Otherwise all workers
//! of a busy fleet would ask for tokens that are not there, and share in ever smaller parts.

/// First step after a shrink, in fair shares.
const FIRST_STEP: f64 = 0.05;
/// Good leases to ignore after a shrink where shares are small: each refused ask would cost as much as a
/// request.
const CALM: u32 = 2;

#[derive(Debug)]
pub(super) struct Reach {
    /// In fair shares, at least 1.
    factor: f64,
    step: f64,
    calm: u32,
    /// Whether it has shrunk since the last good lease.
    is_cut: bool,
}

impl Reach {
    pub(super) fn new() -> Self {
        Self {
            factor: 1.0,
            step: FIRST_STEP,
            calm: 0,
            is_cut: false,
        }
    }

    /// Returns the reach in fair shares.
    pub(super) fn factor(&self, workers: f64) -> f64 {
        self.factor.min(workers)
    }

    /// The lease was good and more is wanted. Each step in a row is larger.
    pub(super) fn grow(&mut self, workers: f64) {
        self.is_cut = false;
        if self.calm > 0 {
            self.calm -= 1;
            return;
        }
        self.factor = (self.factor + self.step).min(workers).max(1.0);
        self.step = (self.step * 2.0).min(workers);
    }

    /// The lease had less than half a fair share.
    pub(super) fn shrink(&mut self, shares_are_small: bool) {
        // Several in a row count once, because the worker asks again before there is more.
        if !std::mem::replace(&mut self.is_cut, true) {
            self.factor = (self.factor * 0.8).max(1.0);
        }
        self.step = FIRST_STEP;
        self.calm = if shares_are_small { CALM } else { 0 };
    }
}
