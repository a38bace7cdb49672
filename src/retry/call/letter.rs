//! The dead letter about a call that was given up.

use std::time::Duration;

use reqwest::Response;
use reqwest_middleware::Result;

use super::events::call_info;
use super::{Call, Stop};
use crate::clock;
use crate::dead_letter::LetterDraft;
use crate::log::LogContext;
use crate::observe::{Event, EventKind};
use crate::outcome::{DeadLetterOutcome, RetryReport, SteadyError};
use crate::schedule::server_hint;
use crate::upstream::BoxFuture;

/// Ends when the letter is delivered, or when the call should not wait for it any longer.
pub(crate) type LetterDelivery = BoxFuture<'static, ()>;

impl Call<'_> {
    /// Returns how long to leave the server alone, if the call leaves a letter.
    pub(super) fn letter_pause(&self, stop: Stop, result: &Result<Response>) -> Option<Duration> {
        if !stop.reason.is_given_up() || self.config.dead_letters.sink.is_none() {
            return None;
        }
        // A stop before the schedule has not read the headers, but a verdict on the body may have named a wait.
        let pause = match result {
            Ok(response) => server_hint(response.status(), response.headers(), clock::wall()),
            Err(error) => SteadyError::of(error).and_then(SteadyError::retry_after),
        };
        Some(pause.max(stop.hint).unwrap_or_default())
    }

    /// Writes a letter about a call that was given up although it might have worked later.
    pub(super) fn write_letter(
        &self,
        report: &RetryReport,
        pause: Duration,
    ) -> Option<LetterDelivery> {
        let config = self.config;
        let letters = &config.dead_letters;
        let record = self.record.as_deref()?;
        let (host, tracking) = (self.host?, self.tracking?);
        let latest = self.time.end();
        let draft = LetterDraft {
            request: &record.request,
            factory: self.body_factory(),
            key_header: config.keys.header_of(self.options.as_deref()),
            has_key: self.has_key,
            repeatable: self.rules.repeatable,
        };
        let letter = draft.into_letter(letters, report, clock::wall(), pause);
        // The delivery may end after the call.
        let target = record.request.target().clone();
        let attempt = tracking.attempt;
        let observers = config.observers.clone();
        let place = LogContext::current();
        let tell = move |outcome: DeadLetterOutcome, error: Option<String>| {
            let call = call_info(&target, host, attempt);
            if outcome != DeadLetterOutcome::Delivered {
                place.letter_not_confirmed(call.host, outcome.as_str(), error.as_deref());
            }
            let kind = EventKind::DeadLettered(outcome);
            observers.notify(&Event { call, kind });
        };
        let delivery = letters.deliver(letter, latest, tell)?;
        Some(Box::pin(delivery))
    }
}
