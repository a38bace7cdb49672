//! Recent outcomes: tells a server in trouble from failures by chance.

/// The pace is cut this often for strain, until a run of `CALM` successes.
const MAX_STRAIN_CUTS: u32 = 3;
const CALM: u64 = 100;

#[derive(Debug, Default)]
pub(super) struct FailureHistory {
    /// One bit for each of the last 32 outcomes, the newest lowest; set if it failed.
    failed: u32,
    /// How many outcomes `failed` holds, at most 32.
    count: u32,
    /// Successes since the last failure.
    successes_in_a_row: u64,
    /// Failures since the last success before them. Kept until the next failure, so that a success costs nothing.
    failures_in_a_row: u32,
    /// How often the pace was cut for strain since the last run of `CALM` successes.
    strain_cuts: u32,
}

impl FailureHistory {
    pub(super) fn add_success(&mut self) {
        self.add(0);
        self.successes_in_a_row += 1;
        if self.successes_in_a_row == CALM {
            self.strain_cuts = 0;
        }
    }

    pub(super) fn add_failure(&mut self) {
        self.add(1);
        self.failures_in_a_row = self.failures_in_a_row().saturating_add(1);
        self.successes_in_a_row = 0;
    }

    /// Returns how many failures there were since the last success, also those to which the controller has reacted.
    pub(super) fn failures_in_a_row(&self) -> u32 {
        match self.successes_in_a_row {
            0 => self.failures_in_a_row,
            _ => 0,
        }
    }

    /// Forgets the recent outcomes, because the controller has reacted to them.
    pub(super) fn clear(&mut self) {
        (self.failed, self.count) = (0, 0);
    }

    fn add(&mut self, failed: u32) {
        self.failed = (self.failed << 1) | failed;
        self.count = (self.count + 1).min(32);
    }

    /// Five failures in a row, or a third of at least 16: more than chance.
    pub(super) fn show_outage(&self) -> bool {
        let is_third = self.failed.count_ones() * 100 >= self.count * 34;
        self.failed.trailing_ones() >= 5 || (self.count >= 16 && is_third)
    }

    /// Five of the last 32. With timeouts among them, the server has too much to do.
    pub(super) fn show_overload(&self) -> bool {
        self.failed.count_ones() >= 5
    }

    /// Three of the last 32: perhaps a limit that responds with 503. Going slower helps if it is one.
    /// If not, the count of cuts ends the slowing.
    pub(super) fn show_strain(&self) -> bool {
        self.failed.count_ones() >= 3 && self.strain_cuts < MAX_STRAIN_CUTS
    }

    /// Counts a cut of the pace for strain, and returns the share of successes before it.
    pub(super) fn cut_for_strain(&mut self) -> f64 {
        let failed_share = f64::from(self.failed.count_ones()) / f64::from(self.count.max(1));
        self.strain_cuts += 1;
        self.clear();
        1.0 - failed_share
    }
}
