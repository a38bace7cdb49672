//! Exchanges the adaptive rate: each worker reports its change and takes its part of the sum.

use crate::fleet::PaceChange;

/// The lowest rate of a controller, in requests per second.
const MIN_PACE: f64 = 1.0 / 30.0;
const MAX_PACE: f64 = 1e6;

#[derive(Debug, Default)]
pub(super) struct PaceExchange {
    /// This worker's part of the last known sum.
    part: Option<f64>,
    /// The controller's rate at the last report.
    reported: Option<f64>,
    /// A part that the controller has not taken yet.
    new_part: Option<f64>,
}

impl PaceExchange {
    /// Returns the change to report, if the controller has a rate. A worker without a part reports its rate as
    /// unchanged: it counts only if it is the first.
    pub(super) fn report(&mut self, pace: Option<f64>) -> Option<PaceChange> {
        // The controller did not take the new part, so its rate is not a change of that part.
        let before = self.part.filter(|_| self.new_part.is_none());
        self.reported = pace.map(|pace| pace.clamp(MIN_PACE, MAX_PACE));
        let now = self.reported?;
        Some(PaceChange {
            before: before.unwrap_or(now),
            now,
        })
    }

    /// Takes the sum from a lease.
    pub(super) fn receive(&mut self, total: Option<f64>, workers: f64) {
        self.part = total.map(|total| total / workers);
        self.new_part = self.part.or(self.new_part);
    }

    /// Returns the rate that the controller should continue at. What the controller has learned since its last
    /// report stays, and goes into the next report.
    pub(super) fn take_part(&mut self, pace: Option<f64>) -> Option<f64> {
        let part = self.new_part.take()?;
        let change = pace.zip(self.reported);
        let since = change.map_or(0.0, |(pace, reported)| pace - reported);
        Some((part + since).clamp(MIN_PACE, MAX_PACE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does what a store does.
    fn add(total: &mut Option<f64>, change: Option<PaceChange>, workers: f64) {
        if let Some(PaceChange { before, now }) = change {
            *total = Some(total.map_or(now * workers, |total| total + now - before));
        }
    }

    #[test]
    fn changes_of_all_workers_add_up() {
        let (mut first, mut second) = (PaceExchange::default(), PaceExchange::default());
        let mut total = None;
        add(&mut total, first.report(Some(50.0)), 2.0);
        first.receive(total, 2.0);
        assert_eq!(first.take_part(Some(50.0)), Some(50.0));

        // The second worker has another rate, but comes second.
        add(&mut total, second.report(Some(10.0)), 2.0);
        second.receive(total, 2.0);
        assert_eq!(second.take_part(Some(10.0)), Some(50.0));

        // Both are cut by 20.
        add(&mut total, first.report(Some(30.0)), 2.0);
        first.receive(total, 2.0);
        assert_eq!(first.take_part(Some(30.0)), Some(40.0));
        add(&mut total, second.report(Some(30.0)), 2.0);
        second.receive(total, 2.0);
        assert_eq!(second.take_part(Some(30.0)), Some(30.0));
        assert_eq!(total, Some(60.0));
    }

    #[test]
    fn what_is_learned_during_an_ask_goes_into_the_next_report() {
        let mut exchange = PaceExchange::default();
        let mut total = Some(100.0);
        exchange.report(None);
        exchange.receive(total, 2.0);
        assert_eq!(exchange.take_part(None), Some(50.0));

        add(&mut total, exchange.report(Some(50.0)), 2.0);
        exchange.receive(total, 2.0);
        assert_eq!(exchange.take_part(Some(35.0)), Some(35.0));
        assert_eq!(exchange.take_part(Some(35.0)), None);
        add(&mut total, exchange.report(Some(35.0)), 2.0);
        assert_eq!(total, Some(85.0));
    }
}
