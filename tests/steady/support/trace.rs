//! Everything that goes to `tracing`: spans and events, with their fields.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

pub(crate) type Fields = BTreeMap<String, String>;

/// A subscriber that keeps it all.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    events: Vec<(Level, Fields)>,
    spans: Vec<Fields>,
}

impl Trace {
    /// What this library said of calls: level, message, and the other fields.
    pub(crate) fn events(&self) -> Vec<(Level, String, Fields)> {
        let kept = self.0.lock().unwrap();
        let split = |(level, fields): &(Level, Fields)| {
            let mut fields = fields.clone();
            (*level, fields.remove("message").unwrap(), fields)
        };
        kept.events.iter().map(split).collect()
    }

    pub(crate) fn messages(&self) -> Vec<String> {
        let events = self.events().into_iter();
        events
            .map(|(level, message, _)| format!("{level} {message}"))
            .collect()
    }

    pub(crate) fn spans(&self) -> Vec<Fields> {
        self.0.lock().unwrap().spans.clone()
    }
}

impl Subscriber for Trace {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("reqwest_steady") || metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        span.record(&mut Keep(&mut fields));
        let mut kept = self.0.lock().unwrap();
        kept.spans.push(fields);
        Id::from_u64(kept.spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut kept = self.0.lock().unwrap();
        let fields = &mut kept.spans[span.into_u64() as usize - 1];
        values.record(&mut Keep(fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Keep(&mut fields));
        let level = *event.metadata().level();
        self.0.lock().unwrap().events.push((level, fields));
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
