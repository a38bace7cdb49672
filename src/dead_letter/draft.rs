//! Builds a letter from the request and the report of a call that gave up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName};

use super::{DeadLetter, DeadLetters, LetterBody};
use crate::outcome::{AttemptOutcome, FailureKind, RetryReport};
use crate::request::{BodyFactory, KeptBody, RequestSnapshot, SnapshotBody, describe};

/// The longest pause in a letter, short enough that no clock overflows.
const A_THOUSAND_YEARS: Duration = Duration::from_secs(1000 * 365 * 24 * 60 * 60);

/// 9999-12-30T22:00:00Z, the last second whose year has four digits in every time zone.
const LAST_MOMENT: Duration = Duration::from_secs(253_402_207_200);

/// The request of a call that gave up, and the facts that its letter needs.
pub(crate) struct LetterDraft<'a> {
    pub(crate) request: &'a RequestSnapshot,
    /// Builds the body anew, if the user gave such a function.
    pub(crate) factory: Option<&'a BodyFactory>,
    pub(crate) key_header: &'a HeaderName,
    pub(crate) has_key: bool,
    pub(crate) repeatable: bool,
}

impl LetterDraft<'_> {
    /// Removes the secrets and adds the report of the call. `pause` is how long to leave the server alone.
    pub(crate) fn into_letter(
        self,
        settings: &DeadLetters,
        report: &RetryReport,
        now: SystemTime,
        pause: Duration,
    ) -> DeadLetter {
        let secrets = &settings.secrets;
        let target = self.request.target();
        let (url, url_redacted) = secrets.redact_url(&target.url);
        let is_key = |name: &HeaderName| self.has_key && name == self.key_header;
        let mut headers = self.request.headers();
        let (body, own) = letter_body(&self.request.body, self.factory, settings.max_body);
        describe(&mut headers, own);
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        let (keys, headers): (Vec<_>, Vec<_>) = headers.partition(|(name, _)| is_key(name));
        let headers = headers.into_iter().map(|(name, value)| {
            let secret = secrets.is_secret_header(&name, &value, self.key_header);
            (name, (!secret).then_some(value))
        });
        DeadLetter {
            time: within_dates(now),
            method: target.method.clone(),
            url,
            url_redacted,
            headers: headers.collect(),
            body,
            key: keys.into_iter().next(),
            repeatable: self.repeatable || was_never_sent(report),
            attempts: report.attempts().cloned().collect(),
            reason: report.stop_reason().as_str().to_owned(),
            not_before: within_dates(now + pause.min(A_THOUSAND_YEARS)),
        }
    }
}

/// Keeps the whole body or none of it, because half a body is useless. Returns the headers that describe it, if they are
/// not those of the request.
fn letter_body(
    body: &SnapshotBody,
    factory: Option<&BodyFactory>,
    max_body: usize,
) -> (LetterBody, Option<HeaderMap>) {
    let kept = match (body, factory) {
        // A panic of the user's function must not change the result of the call.
        (_, Some(factory)) => catch_unwind(AssertUnwindSafe(|| factory.keep(max_body)))
            .unwrap_or(KeptBody::NotReplayable),
        (SnapshotBody::Empty, None) => return (LetterBody::Empty, None),
        (SnapshotBody::Bytes(bytes), None) => KeptBody::within(max_body, bytes.clone()),
        (SnapshotBody::Stream | SnapshotBody::Rebuilt, None) => KeptBody::NotReplayable,
    };
    match kept {
        KeptBody::Bytes(bytes, headers) => (LetterBody::Bytes(bytes), headers),
        KeptBody::TooLarge(length) => (LetterBody::TooLarge(length), None),
        KeptBody::NotReplayable => (LetterBody::NotReplayable, None),
    }
}

/// Returns whether a throttle refused every attempt.
fn was_never_sent(report: &RetryReport) -> bool {
    let throttled = AttemptOutcome::Failure(FailureKind::Throttled);
    report
        .attempts()
        .all(|attempt| attempt.outcome() == throttled)
}

/// Limits a time to dates that can be written. A server can ask for a pause until the year 10000.
fn within_dates(time: SystemTime) -> SystemTime {
    let last = SystemTime::UNIX_EPOCH + LAST_MOMENT;
    time.clamp(SystemTime::UNIX_EPOCH, last)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Extensions, HeaderValue, Method, StatusCode};
    use reqwest::{Body, Request, Url};

    use super::*;
    use crate::dead_letter::Redacted;
    use crate::outcome::{AttemptOutcome, AttemptReport, Effect, StopReason};
    use crate::request::IdempotencyKey;

    const MOMENT: SystemTime = SystemTime::UNIX_EPOCH;

    fn report() -> RetryReport {
        let attempt = AttemptReport {
            outcome: AttemptOutcome::Status(StatusCode::SERVICE_UNAVAILABLE),
            sent_at: Duration::ZERO,
            waited: Duration::ZERO,
            wait_reason: None,
            took: Duration::ZERO,
            hint: None,
            effect: Effect::Unknown,
        };
        RetryReport {
            earlier: vec![attempt.clone()],
            last: attempt,
            refused_wait: Duration::ZERO,
            took: Duration::ZERO,
            stop_reason: StopReason::RetriesExhausted,
        }
    }

    fn request(body: Option<Body>) -> Request {
        let url = "http://me:hidden@api.example.com:81/orders?page=7&token=hidden#part";
        let mut request = Request::new(Method::POST, Url::parse(url).unwrap());
        *request.body_mut() = body;
        for (name, value) in [
            ("x-trace", HeaderValue::from_bytes(b"\xff1").unwrap()),
            ("authorization", HeaderValue::from_static("hidden")),
            ("x-trace", HeaderValue::from_static("2")),
            ("cookie", HeaderValue::from_static("hidden")),
        ] {
            request.headers_mut().append(name, value);
        }
        request
    }

    fn settings() -> DeadLetters {
        DeadLetters {
            max_body: 10,
            ..DeadLetters::default()
        }
    }

    fn letter(request: &mut Request, factory: Option<&BodyFactory>, has_key: bool) -> DeadLetter {
        let header = HeaderName::from_static("idempotency-key");
        let snapshot = RequestSnapshot::of(request, factory.is_some(), &Extensions::new());
        let draft = draft(&snapshot, factory, &header, has_key);
        draft.into_letter(&settings(), &report(), MOMENT, Duration::ZERO)
    }

    fn draft<'a>(
        request: &'a RequestSnapshot,
        factory: Option<&'a BodyFactory>,
        key_header: &'a HeaderName,
        has_key: bool,
    ) -> LetterDraft<'a> {
        LetterDraft {
            request,
            factory,
            key_header,
            has_key,
            repeatable: has_key,
        }
    }

    #[test]
    fn a_letter_has_all_but_the_secrets() {
        let mut request = request(Some("bytes".into()));
        let place = request.body().and_then(Body::as_bytes).map(<[u8]>::as_ptr);
        let key = IdempotencyKey::new("order-1").unwrap();
        let value = key.header_value().clone();
        request.headers_mut().insert("idempotency-key", value);
        let letter = letter(&mut request, None, true);

        assert_eq!(
            letter.url().as_str(),
            "http://api.example.com:81/orders?page=7&token=REDACTED"
        );
        let headers: Vec<_> = letter.headers().collect();
        assert_eq!(headers.len(), 4, "{letter:?}");
        let traces: Vec<_> = (headers.iter())
            .filter(|(name, _)| *name == "x-trace")
            .map(|(_, value)| value.unwrap().as_bytes())
            .collect();
        assert_eq!(traces, [&b"\xff1"[..], b"2"]);
        assert_eq!(letter.key(), Some("order-1"));
        assert!(letter.is_repeatable());
        assert_eq!(letter.attempts().len(), 2);
        assert_eq!(letter.stop_reason(), Some(StopReason::RetriesExhausted));
        assert_eq!(
            letter.redacted(),
            [
                Redacted::UserInfo,
                Redacted::Parameter("token".into()),
                Redacted::Header(http::header::AUTHORIZATION),
                Redacted::Header(http::header::COOKIE),
            ]
        );
        let LetterBody::Bytes(bytes) = letter.body() else {
            panic!("{letter:?}")
        };
        assert_eq!(bytes, "bytes");
        assert_eq!(Some(bytes.as_ptr()), place, "shared, not copied");
    }

    #[test]
    fn nothing_private_is_shown() {
        let mut request = request(Some("private".into()));
        request
            .headers_mut()
            .insert("idempotency-key", HeaderValue::from_static("private"));
        request
            .headers_mut()
            .insert("x-note", HeaderValue::from_static("private"));
        request
            .url_mut()
            .set_query(Some("note=private&token=hidden"));
        let letter = letter(&mut request, None, true);
        assert_eq!(
            letter.to_string(),
            "POST api.example.com:81/orders, given up after 2 attempts: retries_exhausted"
        );
        for shown in [format!("{letter:?}"), format!("{letter:#?}")] {
            assert!(
                !shown.contains("private") && !shown.contains("hidden"),
                "{shown}"
            );
            assert!(
                shown.contains("x-note") && shown.contains("Bytes(7)"),
                "{shown}"
            );
        }
    }

    #[test]
    fn a_body_is_kept_whole_or_not_at_all() {
        let body = |body: Option<Body>| letter(&mut request(body), None, false).body;
        assert_eq!(body(None), LetterBody::Empty);
        assert_eq!(body(Some("".into())), LetterBody::Bytes("".into()));
        let full = LetterBody::Bytes("0123456789".into());
        assert_eq!(body(Some("0123456789".into())), full);
        assert_eq!(body(Some("0123456789a".into())), LetterBody::TooLarge(11));
        let stream = Body::wrap(String::from("stream"));
        assert_eq!(body(Some(stream)), LetterBody::NotReplayable);
    }

    #[test]
    fn a_body_that_can_be_built_is_built_when_the_letter_is_written() {
        static BUILT: AtomicUsize = AtomicUsize::new(0);
        let (_, factory) = BodyFactory::new("first".into(), || {
            BUILT.fetch_add(1, Ordering::SeqCst);
            "built".into()
        });
        let header = HeaderName::from_static("idempotency-key");
        let stream = || request(Some(Body::wrap(String::from("stream"))));
        let snapshot = RequestSnapshot::of(&mut stream(), true, &Extensions::new());
        let draft = draft(&snapshot, Some(&factory), &header, false);
        assert_eq!(BUILT.load(Ordering::SeqCst), 0);
        let letter = draft.into_letter(&settings(), &report(), MOMENT, Duration::ZERO);
        assert_eq!(letter.body, LetterBody::Bytes("built".into()));
        assert_eq!(BUILT.load(Ordering::SeqCst), 1);

        for ((_, factory), body) in [
            (
                BodyFactory::new("first".into(), || "longer than ten".into()),
                LetterBody::TooLarge(15),
            ),
            (
                BodyFactory::new("first".into(), || Body::wrap(String::from("stream"))),
                LetterBody::NotReplayable,
            ),
            (
                BodyFactory::new("first".into(), || panic!("a body that cannot be built")),
                LetterBody::NotReplayable,
            ),
        ] {
            let letter = super::tests::letter(&mut stream(), Some(&factory), false);
            assert_eq!(letter.body, body);
        }
    }

    #[test]
    fn a_moment_beyond_all_dates_is_the_last_one() {
        let far = MOMENT + Duration::from_secs(1 << 40);
        assert_eq!(within_dates(far), MOMENT + LAST_MOMENT);
    }
}
