//! Prints for people: colours where the terminal shows them, and numbers with units.
//!
//! All examples share this file. A folder without a `main.rs` is not an example itself.

#![allow(dead_code, reason = "no example needs all of it")]

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::Duration;

/// Marks something good.
pub(crate) fn green(text: impl fmt::Display) -> Painted {
    Painted::new("32", text)
}

/// Marks something bad.
pub(crate) fn red(text: impl fmt::Display) -> Painted {
    Painted::new("31", text)
}

/// Marks a detail.
pub(crate) fn dim(text: impl fmt::Display) -> Painted {
    Painted::new("2", text)
}

/// Marks a headline.
pub(crate) fn bold(text: impl fmt::Display) -> Painted {
    Painted::new("1", text)
}

/// Marks something as good or bad.
pub(crate) fn verdict(is_good: bool, text: impl fmt::Display) -> Painted {
    if is_good { green(text) } else { red(text) }
}

/// Text with a colour. It aligns like plain text: `{:>10}` does not count the colour.
pub(crate) struct Painted {
    /// A parameter of the escape sequence `SGR`.
    code: &'static str,
    text: String,
}

impl Painted {
    fn new(code: &'static str, text: impl fmt::Display) -> Self {
        let text = text.to_string();
        Self { code, text }
    }
}

impl fmt::Display for Painted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !stdout_has_colours() {
            return f.pad(&self.text);
        }
        write!(f, "\x1b[{}m", self.code)?;
        f.pad(&self.text)?;
        f.write_str("\x1b[0m")
    }
}

fn stdout_has_colours() -> bool {
    static DECISION: OnceLock<bool> = OnceLock::new();
    *DECISION.get_or_init(|| {
        let variable = |name| std::env::var_os(name);
        let (no_color, term) = (variable("NO_COLOR"), variable("TERM"));
        has_colours(
            io::stdout().is_terminal(),
            no_color.as_deref(),
            term.as_deref(),
        )
    })
}

/// Decides by the rule of <https://no-color.org>: any value of `NO_COLOR` turns colours off, except an empty one.
fn has_colours(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    let is_refused = no_color.is_some_and(|value| !value.is_empty());
    let is_dumb = term.is_some_and(|term| term == "dumb");
    is_terminal && !is_refused && !is_dumb
}

/// Writes a number with its unit: "1 request", "12 requests".
pub(crate) fn count(number: usize, unit: &str) -> String {
    match number {
        1 => format!("1 {unit}"),
        _ => format!("{number} {unit}s"),
    }
}

/// Writes a time with its unit: "750 ms", "1.6 s".
pub(crate) fn time(time: Duration) -> String {
    // What rounds to 1000 ms is written as a second.
    match time.as_secs_f64() {
        seconds if seconds < 0.9995 => format!("{:.0} ms", seconds * 1000.0),
        seconds => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let set = |value| Some(OsStr::new(value));
        assert!(has_colours(true, None, set("xterm-256color")));
        assert!(has_colours(true, None, None));
        assert!(has_colours(true, set(""), None), "empty is like unset");
        assert!(!has_colours(true, set("1"), set("xterm")));
        assert!(!has_colours(true, set("0"), set("xterm")), "any value");
        assert!(!has_colours(true, None, set("dumb")));
        assert!(!has_colours(false, None, set("xterm")));
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!(count(0, "retry attempt"), "0 retry attempts");
        assert_eq!(count(1, "order"), "1 order");
        assert_eq!(time(Duration::ZERO), "0 ms");
        assert_eq!(time(Duration::from_micros(749_700)), "750 ms");
        assert_eq!(time(Duration::from_micros(999_700)), "1.0 s");
        assert_eq!(time(Duration::from_millis(61_250)), "61.2 s");
    }
}
