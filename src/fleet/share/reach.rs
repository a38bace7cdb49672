//! How far beyond its fair share a worker reaches.
//!
//! What the others do not use may be used, but nobody tells how much that is. So a worker that wants more
//! reaches further with each lease that is granted in full, and less far when the store has little left: or
//! all workers of a busy fleet would ask for tokens that are not there, and share in smaller and smaller parts.

/// In fair shares, for the first lease that was granted in full after one that was not.
const FIRST_STEP: f64 = 0.05;
/// Where shares are a few tokens, so many leases after one that was not granted are no sign yet: each that is
/// refused would cost as much as a request.
const CALM: u32 = 2;

#[derive(Debug)]
pub(super) struct Reach {
    factor: f64,
    step: f64,
    calm: u32,
    /// Since there was enough last.
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

    /// So many fair shares.
    pub(super) fn factor(&self, workers: f64) -> f64 {
        self.factor.min(workers)
    }

    /// There was enough, and more is wanted. Each time in a row it reaches further.
    pub(super) fn further(&mut self, workers: f64) {
        self.is_cut = false;
        if self.calm > 0 {
            self.calm -= 1;
            return;
        }
        self.factor = (self.factor + self.step).min(workers).max(1.0);
        self.step = (self.step * 2.0).min(workers);
    }

    /// There was less than half a fair share.
    pub(super) fn less_far(&mut self, shares_are_small: bool) {
        // Several in a row are one sign: it is asked again before there is more.
        if !std::mem::replace(&mut self.is_cut, true) {
            self.factor = (self.factor * 0.8).max(1.0);
        }
        self.step = FIRST_STEP;
        self.calm = if shares_are_small { CALM } else { 0 };
    }
}
