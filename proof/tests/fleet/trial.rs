//! Measurements in real time on a machine that may be busy.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of tries if the machine delays processes.
const TRIES: usize = 5;
/// A longer delay of a process makes a try invalid. One or two milliseconds are normal.
const STALL: Duration = Duration::from_millis(5);

/// Prints to stderr directly, because the test harness would capture the line.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "fleet: {line}");
}

/// Allows one test at a time, so that tests do not slow each other.
pub(crate) fn alone_in_process() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One try, and its failed expectations.
#[derive(Default)]
pub(crate) struct Trial {
    wrong: Vec<String>,
    /// The longest delay of any process.
    lag: Duration,
}

impl Trial {
    pub(crate) fn expect(&mut self, holds: bool, otherwise: impl fmt::Display) {
        if !holds {
            self.wrong.push(otherwise.to_string());
        }
    }

    pub(crate) fn note_lag(&mut self, lag: Duration) {
        self.lag = self.lag.max(lag);
    }
}

/// Runs a test, and repeats a failed one if the machine delayed processes.
pub(crate) fn retry_on_busy_machine(mut attempt: impl FnMut(&mut Trial)) {
    for number in 1..=TRIES {
        let mut trial = Trial::default();
        attempt(&mut trial);
        let Trial { wrong, lag } = trial;
        say(format_args!("the longest lag was {lag:?}"));
        if wrong.is_empty() {
            return;
        }
        assert!(
            lag > STALL && number < TRIES,
            "{wrong:?}, with a lag of {lag:?}"
        );
        say(format_args!(
            "trying again, because the machine delayed a process by {lag:?}: {wrong:?}"
        ));
    }
}
