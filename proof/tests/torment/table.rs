//! The results of a run, in figures.

use std::collections::BTreeMap;
use std::fmt;

use crate::client::CallResult;
use crate::run::Outcome;

/// What calls returned, and whether it matches the ledger.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) done: u64,
    /// Returned as done, with the receipt of another call or an unknown one.
    pub(crate) mixed_up: u64,
    /// Returned as not done (503, 429).
    pub(crate) refused: u64,
    /// Returned without a clear result.
    pub(crate) unclear: u64,
    /// … although the payment was done.
    pub(crate) unclear_and_done: u64,
    /// Returned as done although it is not, or as not done although it is.
    pub(crate) misled: u64,
    /// Calls by the number of their effects.
    pub(crate) by_effects: BTreeMap<u32, u64>,
}

impl Tally {
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let mut tally = Self::default();
        for (call, result) in outcome.calls.results() {
            let record = outcome.account.of(call);
            *tally.by_effects.entry(record.effects).or_default() += 1;
            match result {
                CallResult::Done(receipt) => {
                    tally.done += 1;
                    tally.misled += u64::from(record.effects == 0);
                    tally.mixed_up += u64::from(record.receipt != receipt);
                }
                CallResult::MixedUp => tally.mixed_up += 1,
                CallResult::Status(503 | 429) => {
                    tally.refused += 1;
                    tally.misled += u64::from(record.effects > 0);
                }
                CallResult::Status(_) | CallResult::Error => {
                    tally.unclear += 1;
                    tally.unclear_and_done += u64::from(record.effects > 0);
                }
            }
        }
        tally
    }

    /// Returns the number of calls with more than one effect.
    pub(crate) fn repeated(&self) -> u64 {
        self.by_effects.range(2..).map(|(_, calls)| calls).sum()
    }
}

/// Formats an outcome.
pub(crate) struct Table<'a>(pub(crate) &'a str, pub(crate) &'a Outcome);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, outcome) = self;
        let (calls, account) = (&outcome.calls, &outcome.account);
        let tally = Tally::of(outcome);
        let mut line = |what: &str, count: u64| writeln!(f, "  {what:<46}{count:>9}");
        line(&format!("{name}: calls"), calls.count().into())?;
        line("returned as done, with the ledger's receipt", tally.done)?;
        line("returned as not done (503, 429)", tally.refused)?;
        line("unclear (errors, 500, 502, 409, 30x)", tally.unclear)?;
        line("  … of these done", tally.unclear_and_done)?;
        line("returned a wrong result", tally.misled)?;
        line("returned another call's receipt", tally.mixed_up)?;
        line("effects", account.sum(|record| record.effects))?;
        line("calls with more than one effect", tally.repeated())?;
        line(
            "requests that reached the ledger",
            account.sum(|record| record.arrivals),
        )?;
        line("  … with a repeated receipt", account.replays)?;
        line(
            "  … while the first was in progress (409)",
            account.in_progress,
        )?;
        line("  … different from what was sent", account.garbled)?;
        line("retries", calls.retries())?;
        writeln!(
            f,
            "  calls not returned as done, by last attempt and stop reason:"
        )?;
        for (ending, times) in calls.endings() {
            writeln!(f, "    {ending:<44}{times:>9}")?;
        }
        writeln!(f, "  faults drawn:")?;
        writeln!(f, "    {:<44}{:>9}", "Refused", outcome.refused)?;
        for (fault, times) in &account.drawn {
            writeln!(f, "    {fault:<44}{times:>9}")?;
        }
        writeln!(
            f,
            "  resources of the client process, with all connections closed:"
        )?;
        writeln!(f, "    before     {}", outcome.before)?;
        for (round, held) in outcome.between.iter().enumerate() {
            writeln!(f, "    round {:>2}   {held}", round + 1)?;
        }
        writeln!(f, "    after      {}", outcome.after)
    }
}
