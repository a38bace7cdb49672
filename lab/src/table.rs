//! The printed table.

use std::fmt;

use crate::results::{Results, Run};

/// A heading, and the value for a run.
type Column = (&'static str, fn(&Run) -> String);

/// All columns between the stack and the note. The page has the same columns.
pub(crate) const COLUMNS: [Column; 6] = [
    ("calls", |run| run.calls.to_string()),
    ("succeed", |run| {
        format!(
            "{:.1} %",
            100.0 * run.succeeded as f64 / run.calls.max(1) as f64
        )
    }),
    ("requests", |run| run.requests.to_string()),
    ("per call", |run| format!("{:.3}", run.per_call())),
    ("wasted per call", |run| format!("{:.3}", run.waste())),
    ("peak in 100 ms", |run| run.peak.to_string()),
];

/// The width of the names of clients.
const NAMES: usize = 46;

/// One scenario, with a line for each stack.
pub(crate) struct Table<'a>(pub(crate) &'a Results);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let results = self.0;
        writeln!(
            f,
            "{}: {}, {}, seed {}",
            results.name, results.topic, results.callers, results.seed
        )?;
        writeln!(f, "{}", results.conclusion)?;
        write!(f, "  {:<NAMES$}", "")?;
        for (column, _) in COLUMNS {
            write!(f, "  {column:>8}")?;
        }
        writeln!(f)?;
        for run in &results.runs {
            write!(f, "  {:<NAMES$}", run.stack)?;
            for (column, value) in COLUMNS {
                let width = column.len().max(8);
                write!(f, "  {:>width$}", value(run))?;
            }
            writeln!(f, "  {}", run.note)?;
        }
        Ok(())
    }
}
