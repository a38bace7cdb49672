//! Collects all `tracing` spans and events, with their fields.
//!
//! One subscriber serves the whole process, and passes each thread's events to the [`Trace`] that listens there.
//! Subscribers that are set and reset while other threads log for the first time miss some events.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

pub(crate) type Fields = BTreeMap<String, String>;

/// The spans and events that were recorded while it listened.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    events: Vec<(Level, Fields)>,
    spans: Vec<Fields>,
}

thread_local! {
    static LISTENING: RefCell<Option<Trace>> = const { RefCell::new(None) };
}

/// Stops listening when dropped.
pub(crate) struct Listening;

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENING.set(None);
    }
}

impl Trace {
    /// Listens to this thread.
    pub(crate) fn listen(&self) -> Listening {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::subscriber::set_global_default(PerThread).unwrap());
        LISTENING.set(Some(self.clone()));
        Listening
    }

    /// The events of this library: level, message, and the other fields.
    pub(crate) fn events(&self) -> Vec<(Level, String, Fields)> {
        let kept = self.0.lock().unwrap();
        let split = |(level, fields): &(Level, Fields)| {
            let mut fields = fields.clone();
            (*level, fields.remove("message").unwrap(), fields)
        };
        kept.events.iter().map(split).collect()
    }

    #[allow(dead_code, reason = "not every test binary uses it")]
    pub(crate) fn spans(&self) -> Vec<Fields> {
        self.0.lock().unwrap().spans.clone()
    }

    pub(crate) fn keep_event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Keep(&mut fields));
        let level = *event.metadata().level();
        self.0.lock().unwrap().events.push((level, fields));
    }

    pub(crate) fn keep_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        span.record(&mut Keep(&mut fields));
        let mut kept = self.0.lock().unwrap();
        kept.spans.push(fields);
        Id::from_u64(kept.spans.len() as u64)
    }

    pub(crate) fn keep_record(&self, span: &Id, values: &Record<'_>) {
        let mut kept = self.0.lock().unwrap();
        if let Some(fields) = kept.spans.get_mut(span.into_u64() as usize - 1) {
            values.record(&mut Keep(fields));
        }
    }
}

/// Passes events on to the trace of the current thread.
struct PerThread;

fn here<T>(then: impl FnOnce(&Trace) -> T) -> Option<T> {
    LISTENING.with_borrow(|trace| trace.as_ref().map(then))
}

impl Subscriber for PerThread {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("reqwest_steady") || metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        here(|trace| trace.keep_span(span)).unwrap_or(Id::from_u64(u64::MAX))
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        here(|trace| trace.keep_record(span, values));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        here(|trace| trace.keep_event(event));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Keep<'a>(&'a mut Fields);

impl Visit for Keep<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        (self.0).insert(field.name().to_owned(), format!("{value:?}"));
    }
}
