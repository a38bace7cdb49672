//! Stripe: `docs/guide/presets.md` names the documents.

use http::{HeaderMap, StatusCode};

use super::ServiceRules;
use crate::decide::StatusClass;

pub(super) fn rules() -> ServiceRules {
    ServiceRules {
        key_header: Some("Idempotency-Key"),
        classify: Some(classify),
        inspect: Vec::new(),
    }
}

fn classify(status: StatusCode, headers: &HeaderMap) -> Option<StatusClass> {
    let is_error = status.is_client_error() || status.is_server_error();
    if is_error && is_replayed(headers) {
        // The response is stored with the key, so a retry gets the same one.
        return Some(StatusClass::Never);
    }
    // Another request holds the key or the object. The conflict itself is not stored with the key.
    (status == StatusCode::CONFLICT).then_some(StatusClass::Conditional)
}

fn is_replayed(headers: &HeaderMap) -> bool {
    (headers.get("idempotent-replayed")).is_some_and(|it| it.as_bytes() == b"true")
}

#[cfg(test)]
mod tests {
    use super::super::tests::headers;
    use super::*;

    #[test]
    fn a_replayed_error_is_final_and_a_conflict_is_not() {
        let replayed = [("idempotent-replayed", "true")];
        for (status, lines, expected) in [
            (409, &[][..], Some(StatusClass::Conditional)),
            (409, &replayed[..], Some(StatusClass::Never)),
            (500, &replayed[..], Some(StatusClass::Never)),
            (402, &replayed[..], Some(StatusClass::Never)),
            (500, &[("idempotent-replayed", "false")][..], None),
            (500, &[][..], None),
            (429, &[][..], None),
            (200, &replayed[..], None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(
                classify(status, &headers(lines)),
                expected,
                "{status} {lines:?}"
            );
        }
    }
}
