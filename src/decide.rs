//! **Decide**: may another attempt follow this one?
//!
//! The first of the three stages after a failed attempt: decide, schedule, admit. [`decide`] is a plain function.
//! It does not wait and does not read the clock.
//!
//! - `classify` turns the result of an attempt into a [`ClassifiedOutcome`].
//! - `status` has the default class of each status code.
//! - `inspect` has the rules that look at the beginning of a body, and what they say.
//! - `effect` has the rule whether an attempt took effect.
//! - `transport` recognises errors by their types, and `by_text` those without a public type.
//! - `key_rule` writes idempotency keys and knows which methods are idempotent.

mod by_text;
mod classify;
mod effect;
mod inspect;
mod key_rule;
mod status;
mod transport;

use http::HeaderMap;

pub use classify::AttemptView;
pub(crate) use classify::{
    ClassifiedOutcome, Classifier, ClassifyFn, ClassifyResponse, RequestFacts,
};
pub use inspect::{BodyStart, BodyVerdict, Inspect};
pub(crate) use inspect::{InspectRule, is_event_stream, matching_rule};
pub use key_rule::AutoKey;
pub(crate) use key_rule::{KeyRule, is_idempotent, is_safe};
pub use status::StatusClass;
pub(crate) use status::default_class;
pub(crate) use transport::{Failure, chain, failure_class};

use crate::outcome::StopReason;

/// What [`decide`] needs to know about a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallFacts {
    pub(crate) rules: RepeatRules,
    /// Retries that the call has made so far.
    pub(crate) retries: u32,
    pub(crate) max_retries: u32,
    /// The request has no body, or its body can be sent again.
    pub(crate) replayable: bool,
    /// What an [`inspect_body`](crate::RetryMiddlewareBuilder::inspect_body) said about the response. The class of the
    /// outcome follows it already.
    pub(crate) verdict: Option<BodyVerdict>,
}

/// Returns why no retry may follow an attempt, or `Ok` if one may. `headers` are those of its response.
///
/// Checks in this order: a final verdict on the body, success, class and directive, idempotency, the number of retries,
/// whether the body can be sent again.
pub(crate) fn decide(
    classified: ClassifiedOutcome,
    headers: Option<&HeaderMap>,
    call: CallFacts,
) -> Result<(), StopReason> {
    if call.verdict.is_some_and(BodyVerdict::is_never) {
        return Err(StopReason::NotRetryable);
    }
    if classified.is_success() {
        return Err(StopReason::Succeeded);
    }
    let rules = call.rules;
    let class = match (classified.class, headers.and_then(directive)) {
        (StatusClass::Never, Some(Directive::Retry)) if rules.repeatable => {
            StatusClass::Conditional
        }
        (StatusClass::Never, _) if classified.is_throttled() => return Err(StopReason::Throttled),
        (StatusClass::Never, _) => return Err(StopReason::NotRetryable),
        (_, Some(Directive::Stop)) => return Err(StopReason::ServerVeto),
        (class, _) => class,
    };
    let may_repeat = rules.repeatable
        || (rules.without_key && class == StatusClass::Retry)
        || (rules.unsent && classified.unsent);
    if !may_repeat {
        Err(StopReason::NotIdempotent)
    } else if call.max_retries == 0 {
        Err(StopReason::Disabled)
    } else if call.retries >= call.max_retries {
        Err(StopReason::RetriesExhausted)
    } else if !call.replayable {
        Err(StopReason::BodyNotReplayable)
    } else {
        Ok(())
    }
}

/// Which outcomes of a request allow a retry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepeatRules {
    /// Idempotent by its method, by its key, or because the caller says so.
    pub(crate) repeatable: bool,
    /// Opt-in: requests that the server did not accept are retried even without a key.
    pub(crate) without_key: bool,
    /// Opt-in: requests that provably never left are retried even without a key.
    pub(crate) unsent: bool,
}

impl RepeatRules {
    /// Whether any outcome of an attempt could allow a retry.
    pub(crate) fn allows_any(self) -> bool {
        self.repeatable || self.without_key || self.unsent
    }
}

/// What the server says about a retry, in `x-should-retry` or `stripe-should-retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directive {
    Retry,
    Stop,
}

/// Returns whether the server says not to send the request again.
pub(crate) fn is_veto(headers: &HeaderMap) -> bool {
    directive(headers) == Some(Directive::Stop)
}

/// Reads the directive from the headers of a response. If several lines disagree, `false` wins.
fn directive(headers: &HeaderMap) -> Option<Directive> {
    let mut directive = None;
    for (name, value) in headers {
        if !matches!(name.as_str(), "x-should-retry" | "stripe-should-retry") {
            continue;
        }
        if value.as_bytes().eq_ignore_ascii_case(b"false") {
            return Some(Directive::Stop);
        }
        if value.as_bytes().eq_ignore_ascii_case(b"true") {
            directive = Some(Directive::Retry);
        }
    }
    directive
}

#[cfg(test)]
mod tests;
