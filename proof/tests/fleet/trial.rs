//! What is measured in real time on a machine that may have other things to do.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often something is tried, if processes are kept waiting meanwhile.
const TRIES: usize = 5;
/// If one is not run for so long though it wants to, what is measured is the machine: a millisecond or two are usual.
const STALL: Duration = Duration::from_millis(5);

/// Past the capture of the test harness, which would hide it.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "fleet: {line}");
}

/// One test at a time, so that none takes the machine from another.
pub(crate) fn alone_in_process() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One try, and what was wrong with it.
#[derive(Default)]
pub(crate) struct Trial {
    wrong: Vec<String>,
    /// The longest time for which any of the processes was kept waiting.
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

/// Fails if anything is wrong, unless the machine has kept some of the processes waiting: then it is tried again, a few
/// times.
pub(crate) fn in_peace(mut attempt: impl FnMut(&mut Trial)) {
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
            "tried again, for the machine had no time for {lag:?}: {wrong:?}"
        ));
    }
}
