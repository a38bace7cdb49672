//! OpenAI: `docs/guide/presets.md` names the documents.

use http::{HeaderMap, StatusCode};

use super::{Seen, ServiceRules, inspect, json};
use crate::decide::{BodyVerdict, Inspect, StatusClass};

/// Codes and types of a 429 that only a person can lift.
const UNPAID: [&str; 5] = [
    "insufficient_quota",
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
];

pub(super) fn rules() -> ServiceRules {
    ServiceRules {
        key_header: None,
        classify: Some(classify),
        inspect: vec![inspect(Inspect::only(&[429]).limit(4 * 1024), judge)],
    }
}

fn classify(status: StatusCode, _: &HeaderMap) -> Option<StatusClass> {
    (status == StatusCode::CONFLICT).then_some(StatusClass::Conditional)
}

pub(super) fn judge(seen: &Seen<'_>) -> Option<BodyVerdict> {
    let body = String::from_utf8_lossy(seen.body);
    let mut reasons = json::texts(&body, "code").chain(json::texts(&body, "type"));
    (reasons.any(|it| UNPAID.contains(&it))).then(BodyVerdict::never)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::tests::judge as ask;
    use super::*;

    #[test]
    fn a_bill_is_final_and_a_rate_is_not() {
        let body = |kind: &str, code: &str| {
            format!(
                r#"{{"error": {{"message": "Please see the docs.", "type": "{kind}", "param": null, "code": {code}}}}}"#
            )
        };
        for (body, is_final) in [
            (body("insufficient_quota", r#""insufficient_quota""#), true),
            (body("insufficient_quota", "null"), true),
            (
                body("insufficient_quota", r#""credit_balance_exhausted""#),
                true,
            ),
            (body("billing", r#""project_spend_limit_exceeded""#), true),
            (body("tokens", r#""rate_limit_exceeded""#), false),
            (body("requests", r#""rate_limit_exceeded""#), false),
            (body("rate_limit_error", r#""slow_down""#), false),
            (
                r#"{"error": {"message": "no \"code\": \"insufficient_quota\" here"}}"#.to_owned(),
                false,
            ),
        ] {
            let verdict = ask(judge, Method::POST, 429, &body);
            assert_eq!(verdict, is_final.then(BodyVerdict::never), "{body}");
        }
    }

    #[test]
    fn a_conflict_is_temporary() {
        let class = |status| classify(status, &HeaderMap::new());
        assert_eq!(class(StatusCode::CONFLICT), Some(StatusClass::Conditional));
        assert_eq!(class(StatusCode::BAD_REQUEST), None);
    }
}
