//! What the library warns of.

use tracing::Level;

use super::trace::{Listening, Trace};

/// Counts warnings, and knows the last. That a call was given up is said elsewhere.
#[derive(Clone, Default)]
pub(crate) struct Log(Trace);

impl Log {
    /// Listens to this thread.
    pub(crate) fn listen(&self) -> Listening {
        self.0.listen()
    }

    fn warnings(&self) -> impl Iterator<Item = String> {
        let events = self.0.events().into_iter();
        let of_the_library = events.filter(|(level, _, fields)| {
            *level == Level::WARN && !fields.contains_key("stop_reason")
        });
        of_the_library.map(|(_, message, _)| message)
    }

    pub(crate) fn count(&self) -> usize {
        self.warnings().count()
    }

    pub(crate) fn last(&self) -> String {
        self.warnings().last().unwrap_or_default()
    }
}
