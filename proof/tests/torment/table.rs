//! What came of a run, in figures.

use std::collections::BTreeMap;
use std::fmt;

use crate::client::Told;
use crate::run::Outcome;

/// What callers were told, and whether it was true.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) done: u64,
    /// Told that it is done, with the receipt of another call, or with one that the ledger does not have.
    pub(crate) mixed_up: u64,
    /// Told that it is not done (503, 429).
    pub(crate) refused: u64,
    /// Told neither.
    pub(crate) unclear: u64,
    /// … and it was done.
    pub(crate) unclear_and_done: u64,
    /// Told that it is done, and it is not; or that it is not, and it is.
    pub(crate) misled: u64,
    /// Calls by how often they had their effect.
    pub(crate) by_effects: BTreeMap<u32, u64>,
}

impl Tally {
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let mut tally = Self::default();
        for (call, told) in outcome.calls.told() {
            let record = outcome.account.of(call);
            *tally.by_effects.entry(record.effects).or_default() += 1;
            match told {
                Told::Done(receipt) => {
                    tally.done += 1;
                    tally.misled += u64::from(record.effects == 0);
                    tally.mixed_up += u64::from(record.receipt != receipt);
                }
                Told::MixedUp => tally.mixed_up += 1,
                Told::Status(503 | 429) => {
                    tally.refused += 1;
                    tally.misled += u64::from(record.effects > 0);
                }
                Told::Status(_) | Told::Error => {
                    tally.unclear += 1;
                    tally.unclear_and_done += u64::from(record.effects > 0);
                }
            }
        }
        tally
    }

    /// How many calls had their effect more than once.
    pub(crate) fn repeated(&self) -> u64 {
        self.by_effects.range(2..).map(|(_, calls)| calls).sum()
    }
}

/// An outcome, to be printed.
pub(crate) struct Table<'a>(pub(crate) &'a str, pub(crate) &'a Outcome);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, outcome) = self;
        let (calls, account) = (&outcome.calls, &outcome.account);
        let tally = Tally::of(outcome);
        let mut line = |what: &str, count: u64| writeln!(f, "  {what:<46}{count:>9}");
        line(&format!("{name}: calls"), calls.count().into())?;
        line("told: done, with the ledger's receipt", tally.done)?;
        line("told: not done (503, 429)", tally.refused)?;
        line("told: neither (errors, 500, 502, 409, 30x)", tally.unclear)?;
        line("  … of these done", tally.unclear_and_done)?;
        line("told what is not true", tally.misled)?;
        line("given another call's receipt", tally.mixed_up)?;
        line("effects", account.sum(|record| record.effects))?;
        line("calls with more than one effect", tally.repeated())?;
        line(
            "requests that came to the ledger",
            account.sum(|record| record.arrivals),
        )?;
        line("  … answered again from the ledger", account.replays)?;
        line(
            "  … while the first was in progress (409)",
            account.in_progress,
        )?;
        line("  … not as they were sent", account.garbled)?;
        line("retries", calls.retries())?;
        writeln!(
            f,
            "  not told that it is done, by the last attempt and why it was the last:"
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
            "  held by the client's process, whenever all connections were ended:"
        )?;
        writeln!(f, "    before     {}", outcome.before)?;
        for (round, held) in outcome.between.iter().enumerate() {
            writeln!(f, "    round {:>2}   {held}", round + 1)?;
        }
        writeln!(f, "    after      {}", outcome.after)
    }
}
