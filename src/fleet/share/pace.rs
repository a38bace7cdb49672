//! The adaptive rate: each worker tells how its own part has changed, and takes its part of the sum.

use crate::fleet::PaceChange;

/// As little as a law goes down to, in requests a second.
const LEAST: f64 = 1.0 / 30.0;
const MOST: f64 = 1e6;

#[derive(Debug, Default)]
pub(super) struct PaceBook {
    /// The own part, as it was given last.
    given: Option<f64>,
    /// What the law had made of it when it was told.
    told: Option<f64>,
    /// A part that the law does not know of yet.
    new: Option<f64>,
}

impl PaceBook {
    /// What to tell, if there is a pace. Who was never given a part has changed nothing: it only has an
    /// opinion, which counts if it is the first.
    pub(super) fn change(&mut self, law: Option<f64>) -> Option<PaceChange> {
        // A part that the law did not take is not the law's.
        let before = if self.new.is_some() { None } else { self.given };
        self.told = law.map(|law| law.clamp(LEAST, MOST));
        let now = self.told?;
        Some(PaceChange {
            before: before.unwrap_or(now),
            now,
        })
    }

    /// The store knows the sum now.
    pub(super) fn answered(&mut self, total: Option<f64>, workers: f64) {
        if let Some(total) = total {
            self.given = Some(total / workers);
            self.new = self.given;
        } else {
            self.given = None;
        }
    }

    /// The pace that the law should go on at. What it has learned since it was told stays, and is told
    /// the next time.
    pub(super) fn adopt(&mut self, law: Option<f64>) -> Option<f64> {
        let part = self.new.take()?;
        let since = match (law, self.told) {
            (Some(law), Some(told)) => law - told,
            _ => 0.0,
        };
        Some((part + since).clamp(LEAST, MOST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a store does it.
    fn tell(total: &mut Option<f64>, change: Option<PaceChange>, workers: f64) {
        if let Some(PaceChange { before, now }) = change {
            *total = Some(total.map_or(now * workers, |total| total + now - before));
        }
    }

    #[test]
    fn changes_of_all_workers_add_up() {
        let (mut one, mut other) = (PaceBook::default(), PaceBook::default());
        let mut total = None;
        tell(&mut total, one.change(Some(50.0)), 2.0);
        one.answered(total, 2.0);
        assert_eq!(one.adopt(Some(50.0)), Some(50.0));

        // The other has another opinion, but comes second.
        tell(&mut total, other.change(Some(10.0)), 2.0);
        other.answered(total, 2.0);
        assert_eq!(other.adopt(Some(10.0)), Some(50.0));

        // Both are cut, by 20 each.
        tell(&mut total, one.change(Some(30.0)), 2.0);
        one.answered(total, 2.0);
        assert_eq!(one.adopt(Some(30.0)), Some(40.0));
        tell(&mut total, other.change(Some(30.0)), 2.0);
        other.answered(total, 2.0);
        assert_eq!(other.adopt(Some(30.0)), Some(30.0));
        assert_eq!(total, Some(60.0));
    }

    #[test]
    fn what_is_learned_while_the_question_is_under_way_is_told_with_the_next() {
        let mut book = PaceBook::default();
        let mut total = Some(100.0);
        book.change(None);
        book.answered(total, 2.0);
        assert_eq!(book.adopt(None), Some(50.0));

        tell(&mut total, book.change(Some(50.0)), 2.0);
        book.answered(total, 2.0);
        assert_eq!(book.adopt(Some(35.0)), Some(35.0));
        assert_eq!(book.adopt(Some(35.0)), None);
        tell(&mut total, book.change(Some(35.0)), 2.0);
        assert_eq!(total, Some(85.0));
    }
}
