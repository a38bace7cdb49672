//! What is left of a call that was given up.

use std::pin::Pin;
use std::time::Duration;

use reqwest::Response;
use reqwest_middleware::Result;

use super::{Call, End};
use crate::clock;
use crate::dead_letter::LetterDraft;
use crate::log::LogContext;
use crate::observe::{CallInfo, Event, EventKind};
use crate::outcome::{DeadLetterOutcome, Refusal, RetryReport};
use crate::schedule::server_hint;

/// Nobody is asked to wait longer, and no date is later.
const A_THOUSAND_YEARS: Duration = Duration::from_secs(1000 * 365 * 24 * 60 * 60);

/// Ends when the letter is delivered, or when the call should not wait for that any longer.
pub(crate) type DeliveryEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How long to leave the server alone after this.
pub(super) fn pause_after(end: End, result: &Result<Response>) -> Duration {
    let pause = match result {
        _ if end.hint.is_some() => end.hint,
        Ok(response) => server_hint(response.status(), response.headers(), clock::wall()),
        Err(error) => Refusal::of(error).map(Refusal::retry_after),
    };
    pause.unwrap_or_default().min(A_THOUSAND_YEARS)
}

impl Call<'_> {
    /// Whether there is to be a letter about it.
    pub(super) fn leaves_letter(&self, end: End) -> bool {
        end.reason.is_given_up() && self.settings.dead_letters.is_some()
    }

    /// Writes a letter about a call that was given up although it might have worked later.
    pub(super) fn write_letter(
        &mut self,
        report: &RetryReport,
        pause: Duration,
    ) -> Option<DeliveryEnd> {
        let settings = self.settings;
        let letters = settings.dead_letters.as_ref()?;
        let latest = self.time.end();
        let draft = LetterDraft {
            request: self.spare.take()?,
            factory: self.body(),
            key_header: settings.keys.header_of(self.own.as_deref()),
            has_key: self.has_key,
            repeatable: self.rules.repeatable,
            max_body: letters.max_body,
        };
        let now = clock::wall();
        let letter = draft.into_letter(&settings.secrets, report, now, now + pause);
        let watch = self.watched()?;

        // This may come after the call is over.
        let (method, host, attempt) = (watch.method.clone(), watch.host.clone(), watch.attempt);
        let observers = settings.observers.clone();
        let place = LogContext::current();
        let tell = move |outcome: DeadLetterOutcome, error: Option<String>| {
            if outcome != DeadLetterOutcome::Delivered {
                place.letter_not_delivered(&host, outcome.label(), error.as_deref());
            }
            let call = CallInfo {
                method: &method,
                host: &host,
                attempt: attempt.number(),
            };
            let kind = EventKind::DeadLettered(outcome);
            observers.notify(&Event { call, kind });
        };
        Some(Box::pin(letters.deliver(letter, latest, tell)))
    }
}
