//! GitHub: `docs/guide/presets.md` names the documents.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::{Seen, ServiceRules, inspect, json};
use crate::decide::{BodyVerdict, Inspect, StatusClass};

/// "Otherwise, wait for at least one minute before retrying."
const WAIT_WITHOUT_HEADERS: Duration = Duration::from_secs(60);

pub(super) fn rules() -> ServiceRules {
    ServiceRules {
        key_header: None,
        classify: Some(classify),
        inspect: vec![inspect(Inspect::only(&[403, 429]).limit(4 * 1024), judge)],
    }
}

fn classify(status: StatusCode, headers: &HeaderMap) -> Option<StatusClass> {
    let is_limit = status == StatusCode::FORBIDDEN
        && (headers.contains_key("retry-after") || is_spent(headers));
    is_limit.then_some(StatusClass::Retry)
}

/// A secondary limit may come without headers that say when it ends.
pub(super) fn judge(seen: &Seen<'_>) -> Option<BodyVerdict> {
    let headers = seen.headers;
    let says_when = headers.contains_key("retry-after")
        || (is_spent(headers) && headers.contains_key("x-ratelimit-reset"));
    let body = String::from_utf8_lossy(seen.body);
    let is_limit =
        seen.status == 429 || json::texts(&body, "message").any(is_about_secondary_limit);
    (is_limit && !says_when).then(|| BodyVerdict::retry().after(WAIT_WITHOUT_HEADERS))
}

fn is_spent(headers: &HeaderMap) -> bool {
    (headers.get("x-ratelimit-remaining")).is_some_and(|it| it.as_bytes() == b"0")
}

/// The second text is older. Some installations of GitHub Enterprise Server still send it.
fn is_about_secondary_limit(message: &str) -> bool {
    ["secondary rate limit", "abuse detection mechanism"]
        .iter()
        .any(|it| message.contains(it))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::tests::headers;
    use super::*;

    const SECONDARY: &str = r#"{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api"}"#;

    #[test]
    fn a_403_is_a_limit_only_by_its_headers() {
        for (status, lines, is_limit) in [
            (403, &[][..], false),
            (403, &[("retry-after", "60")][..], true),
            (403, &[("x-ratelimit-remaining", "0")][..], true),
            (403, &[("x-ratelimit-remaining", "4321")][..], false),
            (404, &[("x-ratelimit-remaining", "0")][..], false),
            (200, &[("x-ratelimit-remaining", "0")][..], false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let expected = is_limit.then_some(StatusClass::Retry);
            assert_eq!(
                classify(status, &headers(lines)),
                expected,
                "{status} {lines:?}"
            );
        }
    }

    #[test]
    fn a_limit_without_headers_lasts_a_minute() {
        let minute = Some(BodyVerdict::retry().after(WAIT_WITHOUT_HEADERS));
        let spent = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1790000000"),
        ];
        let old = r#"{"message": "You have triggered an abuse detection mechanism. Please retry your request again later."}"#;
        let forbidden = r#"{"message": "Resource not accessible by integration"}"#;
        for (status, lines, body, expected) in [
            (403, &[][..], SECONDARY, minute),
            (
                403,
                &[("x-ratelimit-remaining", "4321")][..],
                SECONDARY,
                minute,
            ),
            (403, &[("retry-after", "5")][..], SECONDARY, None),
            (403, &spent[..], SECONDARY, None),
            (403, &[][..], old, minute),
            (403, &[][..], forbidden, None),
            (429, &[][..], "", minute),
            (429, &[("retry-after", "5")][..], "", None),
        ] {
            let seen = Seen {
                method: &Method::GET,
                status,
                headers: &headers(lines),
                body: body.as_bytes(),
            };
            assert_eq!(judge(&seen), expected, "{status} {lines:?} {body}");
        }
    }
}
