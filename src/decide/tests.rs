use http::{HeaderValue, StatusCode};

use super::*;
use crate::outcome::{AttemptOutcome, Effect, FailureKind};

const REPEATABLE: RepeatRules = RepeatRules {
    repeatable: true,
    without_key: false,
    unsent: false,
};

const NOT_REPEATABLE: RepeatRules = RepeatRules {
    repeatable: false,
    ..REPEATABLE
};

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_static(value));
    }
    headers
}

fn status(code: u16) -> ClassifiedOutcome {
    let status = StatusCode::from_u16(code).unwrap();
    ClassifiedOutcome {
        outcome: AttemptOutcome::Status(status),
        class: default_class(status),
        unsent: false,
        effect: Effect::Unknown,
        by_user: false,
    }
}

fn failure(kind: FailureKind, class: StatusClass, unsent: bool) -> ClassifiedOutcome {
    ClassifiedOutcome {
        outcome: AttemptOutcome::Failure(kind),
        class,
        unsent,
        effect: Effect::Unknown,
        by_user: false,
    }
}

fn call(rules: RepeatRules) -> CallFacts {
    CallFacts {
        rules,
        retries: 0,
        max_retries: 3,
        replayable: true,
        verdict: None,
    }
}

#[test]
fn the_directive_is_read_from_both_headers_and_a_veto_wins() {
    let directive = |lines| directive(&headers(lines));
    assert_eq!(directive(&[]), None);
    assert_eq!(directive(&[("x-should-retry", "maybe")]), None);
    assert_eq!(
        directive(&[("x-should-retry", "TRUE")]),
        Some(Directive::Retry)
    );
    assert_eq!(
        directive(&[("stripe-should-retry", "false")]),
        Some(Directive::Stop)
    );
    assert_eq!(
        directive(&[("x-should-retry", "false"), ("x-should-retry", "true")]),
        Some(Directive::Stop)
    );
    assert_eq!(
        directive(&[("x-should-retry", "true"), ("stripe-should-retry", "false")]),
        Some(Directive::Stop)
    );
}

#[test]
fn a_repeatable_request_is_retried_unless_its_class_is_never() {
    for (code, expected) in [
        (200, Err(StopReason::Succeeded)),
        (404, Err(StopReason::NotRetryable)),
        (500, Ok(())),
        (503, Ok(())),
    ] {
        assert_eq!(decide(status(code), None, call(REPEATABLE)), expected);
    }
    let refused = failure(FailureKind::Throttled, StatusClass::Never, false);
    assert_eq!(
        decide(refused, None, call(REPEATABLE)),
        Err(StopReason::Throttled)
    );
}

#[test]
fn the_directive_overrules_the_class_but_not_a_success() {
    let retry = headers(&[("x-should-retry", "true")]);
    let stop = headers(&[("x-should-retry", "false")]);
    for (code, headers, rules, expected) in [
        (200, &retry, REPEATABLE, Err(StopReason::Succeeded)),
        (404, &retry, REPEATABLE, Ok(())),
        (404, &retry, NOT_REPEATABLE, Err(StopReason::NotRetryable)),
        (404, &stop, REPEATABLE, Err(StopReason::NotRetryable)),
        (503, &stop, REPEATABLE, Err(StopReason::ServerVeto)),
    ] {
        assert_eq!(
            decide(status(code), Some(headers), call(rules)),
            expected,
            "{code}"
        );
    }
}

#[test]
fn without_a_key_only_the_opt_ins_allow_a_retry() {
    let without_key = RepeatRules {
        without_key: true,
        ..NOT_REPEATABLE
    };
    let unsent = RepeatRules {
        unsent: true,
        ..NOT_REPEATABLE
    };
    let refused = failure(FailureKind::Connect, StatusClass::Conditional, true);
    let reset = failure(FailureKind::Reset, StatusClass::Conditional, false);
    for (classified, rules, allowed) in [
        (status(503), NOT_REPEATABLE, false),
        (status(503), without_key, true),
        (status(503), unsent, false),
        (status(500), without_key, false),
        (refused, NOT_REPEATABLE, false),
        (refused, without_key, false),
        (refused, unsent, true),
        (reset, unsent, false),
    ] {
        let expected = if allowed {
            Ok(())
        } else {
            Err(StopReason::NotIdempotent)
        };
        assert_eq!(
            decide(classified, None, call(rules)),
            expected,
            "{classified:?} {rules:?}"
        );
    }
    assert!(!NOT_REPEATABLE.allows_any() && unsent.allows_any());
}

#[test]
fn the_number_of_retries_comes_before_the_body() {
    let stream = CallFacts {
        replayable: false,
        ..call(REPEATABLE)
    };
    let decide = |call| decide(status(503), None, call);
    assert_eq!(decide(stream), Err(StopReason::BodyNotReplayable));
    let last = CallFacts {
        retries: 3,
        ..stream
    };
    assert_eq!(decide(last), Err(StopReason::RetriesExhausted));
    let disabled = CallFacts {
        max_retries: 0,
        ..stream
    };
    assert_eq!(decide(disabled), Err(StopReason::Disabled));
}
