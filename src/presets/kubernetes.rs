//! Kubernetes: `docs/guide/presets.md` names the documents.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::{Seen, ServiceRules, inspect, json};
use crate::decide::{BodyVerdict, Inspect, StatusClass};

pub(super) fn rules() -> ServiceRules {
    let statuses = Inspect::only(&[429, 500, 503, 504]).content_type("application/json");
    ServiceRules {
        key_header: None,
        classify: Some(classify),
        inspect: vec![inspect(statuses.limit(4 * 1024), judge)],
    }
}

fn classify(status: StatusCode, _: &HeaderMap) -> Option<StatusClass> {
    match status.as_u16() {
        // The object has changed or is gone: the caller has to read it again. There are no keys that change this.
        409 | 410 => Some(StatusClass::Never),
        // The time was over while the request was processed.
        504 => Some(StatusClass::Conditional),
        _ => None,
    }
}

/// A `Status` may say how long to wait where a proxy has dropped `Retry-After`.
pub(super) fn judge(seen: &Seen<'_>) -> Option<BodyVerdict> {
    let body = String::from_utf8_lossy(seen.body);
    let seconds = json::number(&body, "retryAfterSeconds")?;
    let is_status = json::texts(&body, "kind").any(|it| it == "Status");
    let verdict = match seen.status {
        429 | 503 => BodyVerdict::retry(),
        _ => BodyVerdict::conditional(),
    };
    (is_status && seconds > 0).then(|| verdict.after(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::tests::judge as ask;
    use super::*;

    fn status(code: u16, reason: &str, details: &str) -> String {
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"…","reason":"{reason}","details":{{{details}}},"code":{code}}}"#
        )
    }

    #[test]
    fn a_status_says_how_long_to_wait() {
        let wait = Duration::from_secs(7);
        for (code, reason, class) in [
            (429, "TooManyRequests", BodyVerdict::retry()),
            (500, "ServerTimeout", BodyVerdict::conditional()),
            (503, "ServiceUnavailable", BodyVerdict::retry()),
            (504, "Timeout", BodyVerdict::conditional()),
        ] {
            let body = status(code, reason, r#""kind":"pods","retryAfterSeconds":7"#);
            assert_eq!(
                ask(judge, Method::GET, code, &body),
                Some(class.after(wait))
            );
            let silent = status(code, reason, "");
            assert_eq!(ask(judge, Method::GET, code, &silent), None);
        }
        let zero = status(429, "TooManyRequests", r#""retryAfterSeconds":0"#);
        assert_eq!(ask(judge, Method::GET, 429, &zero), None);
        let other = r#"{"kind":"Problem","retryAfterSeconds":7}"#;
        assert_eq!(ask(judge, Method::GET, 429, other), None);
    }

    #[test]
    fn a_conflict_is_final_and_a_timeout_is_in_doubt() {
        let class = |status| classify(StatusCode::from_u16(status).unwrap(), &HeaderMap::new());
        assert_eq!(class(409), Some(StatusClass::Never));
        assert_eq!(class(410), Some(StatusClass::Never));
        assert_eq!(class(504), Some(StatusClass::Conditional));
        assert_eq!(class(429), None);
    }
}
