//! Amazon S3: `docs/guide/presets.md` names the documents.

use std::time::Duration;

use http::Method;

use super::{Seen, ServiceRules, inspect};
use crate::decide::{BodyVerdict, Inspect};

/// Codes of errors that a retry may avoid, in any response.
const TEMPORARY: [&str; 5] = [
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
];
/// The same, for a `PUT` only: a multipart upload has to begin anew.
const CONFLICT: &str = "ConditionalRequestConflict";
/// Copies and completed uploads send spaces while they work, which "could take several minutes".
const LONGEST_WORK: Duration = Duration::from_secs(10 * 60);

pub(super) fn rules() -> ServiceRules {
    // Responses to a GET are objects, and an object may look like an error.
    let results = Inspect::only(&[200])
        .with_effect()
        .content_type("application/xml");
    ServiceRules {
        key_header: None,
        classify: None,
        inspect: vec![
            inspect(Inspect::only(&[400, 409]).limit(4 * 1024), judge_error),
            inspect(results.timeout(LONGEST_WORK), judge_success),
        ],
    }
}

pub(super) fn judge_error(seen: &Seen<'_>) -> Option<BodyVerdict> {
    is_temporary(seen)?.then(BodyVerdict::conditional)
}

/// A 200 may hold an error, because it was sent before the work was done.
pub(super) fn judge_success(seen: &Seen<'_>) -> Option<BodyVerdict> {
    Some(match is_temporary(seen)? {
        true => BodyVerdict::conditional(),
        false => BodyVerdict::never(),
    })
}

/// Returns whether the error in a body is temporary, or `None` if there is none.
fn is_temporary(seen: &Seen<'_>) -> Option<bool> {
    let body = String::from_utf8_lossy(seen.body);
    let code = error_code(&body)?;
    let may_conflict = seen.method == Method::PUT;
    Some(TEMPORARY.contains(&code) || (may_conflict && code == CONFLICT))
}

/// Returns the code of an XML document whose root is an `Error`.
fn error_code(xml: &str) -> Option<&str> {
    let xml = xml.trim_start_matches('\u{FEFF}').trim_start();
    let root = match xml.strip_prefix("<?xml") {
        Some(declared) => declared.split_once("?>")?.1.trim_start(),
        None => xml,
    };
    let inside = root.strip_prefix("<Error")?;
    if !inside.starts_with(['>', ' ']) {
        return None;
    }
    let (_, code) = inside.split_once("<Code>")?;
    Some(code.split_once("</Code>")?.0.trim())
}

#[cfg(test)]
mod tests {
    use super::super::tests::judge;
    use super::*;

    fn error(code: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\n   <Error><Code>{code}</Code><Message>…</Message><RequestId>656c76696e6727732072657175657374</RequestId></Error>"
        )
    }

    #[test]
    fn a_400_and_a_409_are_told_apart_by_their_codes() {
        let (temporary, unknown) = (Some(BodyVerdict::conditional()), None);
        for (method, status, code, expected) in [
            (Method::PUT, 400, "RequestTimeout", temporary),
            (Method::PUT, 400, "ExpiredToken", unknown),
            (Method::PUT, 400, "InvalidArgument", unknown),
            (Method::PUT, 409, "OperationAborted", temporary),
            (Method::PUT, 409, "ConditionalRequestConflict", temporary),
            (Method::POST, 409, "ConditionalRequestConflict", unknown),
            (Method::DELETE, 409, "BucketNotEmpty", unknown),
            (Method::PUT, 409, "BucketAlreadyExists", unknown),
        ] {
            assert_eq!(
                judge(judge_error, method, status, &error(code)),
                expected,
                "{code}"
            );
        }
    }

    #[test]
    fn a_200_with_an_error_has_failed() {
        let ask = |body: &str| judge(judge_success, Method::POST, 200, body);
        assert_eq!(
            ask(&error("InternalError")),
            Some(BodyVerdict::conditional())
        );
        assert_eq!(ask(&error("SlowDown")), Some(BodyVerdict::conditional()));
        assert_eq!(ask(&error("AccessDenied")), Some(BodyVerdict::never()));
        let done = "<?xml version=\"1.0\"?><CompleteMultipartUploadResult><ETag>\"3858f62230ac3c915f300c664312c11f-9\"</ETag></CompleteMultipartUploadResult>";
        assert_eq!(ask(done), None);
        // Some keys of a DeleteObjects may fail: the caller sees which.
        let some =
            "<DeleteResult><Error><Key>a</Key><Code>InternalError</Code></Error></DeleteResult>";
        assert_eq!(ask(some), None);
        assert_eq!(ask("<Errors><Code>InternalError</Code></Errors>"), None);
    }
}
