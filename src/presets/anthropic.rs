//! Anthropic: `docs/guide/presets.md` names the documents.

use http::{HeaderMap, StatusCode};

use super::{Seen, ServiceRules, inspect, json};
use crate::decide::{BodyVerdict, Inspect, StatusClass};

/// Errors in a stream that a retry may avoid.
const TEMPORARY: [&str; 4] = [
    "overloaded_error",
    "api_error",
    "timeout_error",
    "rate_limit_error",
];

pub(super) fn rules() -> ServiceRules {
    let streams = Inspect::only(&[200]).content_type("text/event-stream");
    ServiceRules {
        key_header: None,
        classify: Some(classify),
        inspect: vec![
            inspect(Inspect::only(&[429]).limit(4 * 1024), judge_spend),
            inspect(streams.limit(4 * 1024), judge_stream),
        ],
    }
}

fn classify(status: StatusCode, _: &HeaderMap) -> Option<StatusClass> {
    match status.as_u16() {
        // Overloaded: refused before any work.
        529 => Some(StatusClass::Retry),
        // Timed out while it was processed.
        504 => Some(StatusClass::Conditional),
        _ => None,
    }
}

/// A 429 until the first of the next month has the type of every other 429.
pub(super) fn judge_spend(seen: &Seen<'_>) -> Option<BodyVerdict> {
    let body = String::from_utf8_lossy(seen.body);
    let mut codes = json::texts(&body, "error_code");
    (codes.any(|it| it == "enforced_spend_limit_reached")).then(BodyVerdict::never)
}

/// A stream that begins with an error has delivered nothing yet.
pub(super) fn judge_stream(seen: &Seen<'_>) -> Option<BodyVerdict> {
    let body = String::from_utf8_lossy(seen.body);
    let event = body.lines().find_map(|line| line.strip_prefix("event:"))?;
    let is_temporary = json::texts(&body, "type").any(|it| TEMPORARY.contains(&it));
    (event.trim() == "error" && is_temporary).then(BodyVerdict::conditional)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::tests::judge;
    use super::*;

    #[test]
    fn only_the_spend_limit_makes_a_429_final() {
        let limit = |details: &str| {
            format!(
                r#"{{"type": "error", "error": {{"type": "rate_limit_error", "message": "You have reached …"{details}}}, "request_id": "req_1"}}"#
            )
        };
        let spent = limit(r#", "details": {"error_code": "enforced_spend_limit_reached"}"#);
        let ask = |body: &str| judge(judge_spend, Method::POST, 429, body);
        assert_eq!(ask(&spent), Some(BodyVerdict::never()));
        assert_eq!(ask(&limit("")), None);
        assert_eq!(ask(&limit(r#", "details": {"error_code": "other"}"#)), None);
    }

    #[test]
    fn a_stream_that_begins_with_an_overload_has_failed() {
        let error = |kind: &str| {
            format!(
                "event: error\ndata: {{\"type\": \"error\", \"error\": {{\"type\": \"{kind}\", \"message\": \"Overloaded\"}}}}\n\n"
            )
        };
        let ask = |body: &str| judge(judge_stream, Method::POST, 200, body);
        for kind in TEMPORARY {
            assert_eq!(
                ask(&error(kind)),
                Some(BodyVerdict::conditional()),
                "{kind}"
            );
        }
        assert_eq!(ask(&error("invalid_request_error")), None);
        assert_eq!(
            ask(&format!(": ping\n\n{}", error("api_error"))),
            Some(BodyVerdict::conditional())
        );
        let start = "event: message_start\ndata: {\"type\": \"message_start\"}\n\n";
        assert_eq!(ask(start), None);
        assert_eq!(ask(&format!("{start}{}", error("overloaded_error"))), None);
    }

    #[test]
    fn an_overload_is_a_refusal_and_a_timeout_is_not() {
        let class = |status| classify(StatusCode::from_u16(status).unwrap(), &HeaderMap::new());
        assert_eq!(class(529), Some(StatusClass::Retry));
        assert_eq!(class(504), Some(StatusClass::Conditional));
        assert_eq!(class(500), None);
    }
}
