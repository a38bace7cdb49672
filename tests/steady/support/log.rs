//! The warnings of the library.

use tracing::Level;

use super::trace::{Listening, Trace};

/// Counts warnings and keeps the last. `tests/logging.rs` checks the lines about calls and throttles.
#[derive(Clone, Default)]
pub(crate) struct Log(Trace);

impl Log {
    /// Collects the warnings of this thread.
    pub(crate) fn listen(&self) -> Listening {
        self.0.listen()
    }

    fn warnings(&self) -> impl Iterator<Item = String> {
        let events = self.0.events().into_iter();
        let of_the_library = events.filter(|(level, _, fields)| {
            let is_routine = ["stop_reason", "refusals"].map(|name| fields.contains_key(name));
            *level == Level::WARN && is_routine == [false, false]
        });
        // The message, and the error if there is one.
        of_the_library.map(|(_, message, fields)| {
            let error = fields.get("error").map(|error| format!(": {error}"));
            format!("{message}{}", error.unwrap_or_default())
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.warnings().count()
    }

    pub(crate) fn last(&self) -> String {
        self.warnings().last().unwrap_or_default()
    }
}
