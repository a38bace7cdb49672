//! **Decide**: may this be sent again at all?
//!
//! Four things are asked: the class of the answer or failure, the server's own word, whether the
//! request may be repeated, and whether its body can be sent again. Nothing here waits, and nothing
//! here knows the time.

mod classify;
mod key_rule;
mod status;
mod transport;
mod unnamed;

use http::HeaderMap;

pub use classify::AttemptView;
pub(crate) use classify::{ClassifiedOutcome, Classifier, ClassifyFn, Target};
pub use key_rule::AutoKey;
pub(crate) use key_rule::{KeyRule, is_idempotent};
pub use status::StatusClass;
pub(crate) use status::default_class;
pub(crate) use transport::{Failure, chain};

use crate::outcome::StopReason;

/// How far one request may be repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Safety {
    /// Idempotent by method, key, or the caller's word.
    pub(crate) repeatable: bool,
    /// The opt-in: what the server did not take on is sent again, even without a key.
    pub(crate) without_key: bool,
    /// The opt-in: what provably never left is sent again, even without a key.
    pub(crate) unsent: bool,
}

impl Safety {
    /// Whether any ending of an attempt could lead to another.
    pub(crate) fn allows_any(self) -> bool {
        self.repeatable || self.without_key || self.unsent
    }

    /// Whether this ending of an attempt allows another. `headers` are the answer's.
    pub(crate) fn allows(
        self,
        classified: ClassifiedOutcome,
        headers: Option<&HeaderMap>,
    ) -> Result<(), StopReason> {
        if classified.is_success() {
            return Err(StopReason::Succeeded);
        }
        let class = match (classified.class, headers.and_then(word_in)) {
            (StatusClass::Never, Some(Word::Retry)) if self.repeatable => StatusClass::Conditional,
            (StatusClass::Never, _) if classified.is_throttled() => {
                return Err(StopReason::Throttled);
            }
            (StatusClass::Never, _) => return Err(StopReason::NotRetryable),
            (_, Some(Word::Stop)) => return Err(StopReason::ServerVeto),
            (class, _) => class,
        };
        let allowed = self.repeatable
            || (self.without_key && class == StatusClass::Retry)
            || (self.unsent && classified.unsent);
        if allowed {
            Ok(())
        } else {
            Err(StopReason::NotIdempotent)
        }
    }
}

/// What the server itself says about another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Retry,
    Stop,
}

/// `false` anywhere is a veto, even beside a `true`.
fn word_in(headers: &HeaderMap) -> Option<Word> {
    let mut word = None;
    // One look at each is quicker than a search for both: most answers have few headers, and neither.
    let said = headers
        .iter()
        .filter(|(name, _)| matches!(name.as_str(), "x-should-retry" | "stripe-should-retry"));
    for (_, value) in said {
        if value.as_bytes().eq_ignore_ascii_case(b"false") {
            return Some(Word::Stop);
        }
        if value.as_bytes().eq_ignore_ascii_case(b"true") {
            word = Some(Word::Retry);
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_word_is_read_from_both_headers_and_a_veto_wins() {
        let word = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, http::HeaderValue::from_static(value));
            }
            word_in(&headers)
        };
        assert_eq!(word(&[]), None);
        assert_eq!(word(&[("x-should-retry", "maybe")]), None);
        assert_eq!(word(&[("x-should-retry", "TRUE")]), Some(Word::Retry));
        assert_eq!(word(&[("stripe-should-retry", "false")]), Some(Word::Stop));
        assert_eq!(
            word(&[("x-should-retry", "false"), ("x-should-retry", "true")]),
            Some(Word::Stop)
        );
        assert_eq!(
            word(&[("x-should-retry", "true"), ("stripe-should-retry", "false")]),
            Some(Word::Stop)
        );
    }
}
