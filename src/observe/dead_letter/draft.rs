//! What a letter is made of, put aside before the request is sent for the first time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use reqwest::{Body, Request, Url};

use super::{DeadLetter, LetterBody};
use crate::decide::{AttemptOutcome, BodyFactory, FailureKind, bytes_of};
use crate::observe::{RetryReport, Secrets};

/// 9999-12-30T22:00:00Z, the last second that can be written as a date of four digits in any zone.
const LAST_MOMENT: Duration = Duration::from_secs(253_402_207_200);

/// A letter before anybody knows whether it will be needed.
pub(crate) struct Draft {
    method: Method,
    url: Url,
    /// A list takes half the work of a map, and most drafts are thrown away.
    headers: Vec<(HeaderName, HeaderValue)>,
    body: DraftBody,
    key_header: HeaderName,
    has_key: bool,
    repeatable: bool,
    max_body: usize,
}

enum DraftBody {
    Empty,
    Bytes(Bytes),
    TooLarge(usize),
    Stream,
    /// Asked only if a letter is written.
    Factory(BodyFactory),
}

impl Draft {
    /// Copies what is needed, except the body's bytes: they are shared.
    pub(crate) fn of(
        request: &mut Request,
        factory: Option<&BodyFactory>,
        key_header: &HeaderName,
        has_key: bool,
        repeatable: bool,
        max_body: usize,
    ) -> Self {
        let body = match (request.body_mut(), factory) {
            (_, Some(factory)) => DraftBody::Factory(factory.clone()),
            (None, None) => DraftBody::Empty,
            (Some(body), None) => DraftBody::of(body, max_body),
        };
        let mut headers = Vec::with_capacity(request.headers().len());
        for (name, value) in request.headers() {
            headers.push((name.clone(), value.clone()));
        }
        Self {
            method: request.method().clone(),
            url: request.url().clone(),
            headers,
            body,
            key_header: key_header.clone(),
            has_key,
            repeatable,
            max_body,
        }
    }

    /// Leaves the secrets out, and adds what became of the call.
    pub(crate) fn seal(
        self,
        secrets: &Secrets,
        report: &RetryReport,
        now: SystemTime,
        not_before: SystemTime,
    ) -> DeadLetter {
        let (url, url_redacted) = secrets.redact_url(&self.url);
        let is_key = |name: &HeaderName| self.has_key && *name == self.key_header;
        let headers = self.headers.into_iter();
        let (keys, headers): (Vec<_>, Vec<_>) = headers.partition(|(name, _)| is_key(name));
        let headers = headers.into_iter().map(|(name, value)| {
            let secret = secrets.is_secret_header(&name, &value, &self.key_header);
            (name, (!secret).then_some(value))
        });
        DeadLetter {
            time: within_dates(now),
            method: self.method,
            url,
            url_redacted,
            headers: headers.collect(),
            body: self.body.seal(self.max_body),
            key: keys.into_iter().next(),
            repeatable: self.repeatable || was_never_sent(report),
            attempts: report.attempts().cloned().collect(),
            reason: report.stop().label().to_owned(),
            not_before: within_dates(not_before),
        }
    }
}

impl DraftBody {
    fn of(body: &mut Body, max_body: usize) -> Self {
        match body.as_bytes().map(<[u8]>::len) {
            None => Self::Stream,
            Some(length) if length > max_body => Self::TooLarge(length),
            Some(_) => bytes_of(body).map_or(Self::Stream, Self::Bytes),
        }
    }

    fn seal(self, max_body: usize) -> LetterBody {
        match self {
            Self::Empty => LetterBody::Empty,
            Self::Bytes(bytes) => LetterBody::Bytes(bytes),
            Self::TooLarge(length) => LetterBody::TooLarge(length as u64),
            Self::Stream => LetterBody::NotReplayable,
            Self::Factory(factory) => {
                // The call has its answer already, and whatever happens here does not change it.
                let built = catch_unwind(AssertUnwindSafe(|| factory.build()));
                match built.map(|mut body| Self::of(&mut body, max_body)) {
                    Ok(Self::Factory(_)) | Err(_) => LetterBody::NotReplayable,
                    Ok(body) => body.seal(max_body),
                }
            }
        }
    }
}

/// A throttle kept it from being sent at all.
fn was_never_sent(report: &RetryReport) -> bool {
    let throttled = AttemptOutcome::Failure(FailureKind::Throttled);
    report
        .attempts()
        .all(|attempt| attempt.outcome() == throttled)
}

/// A server can ask for a pause that ends in a year of five digits.
fn within_dates(time: SystemTime) -> SystemTime {
    let last = SystemTime::UNIX_EPOCH + LAST_MOMENT;
    time.clamp(SystemTime::UNIX_EPOCH, last)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{HeaderValue, StatusCode};

    use super::*;
    use crate::observe::{AttemptReport, Redacted, StopReason};
    use crate::{AttemptOutcome, IdempotencyKey};

    const MOMENT: SystemTime = SystemTime::UNIX_EPOCH;

    fn report() -> RetryReport {
        let attempt = AttemptReport {
            outcome: AttemptOutcome::Status(StatusCode::SERVICE_UNAVAILABLE),
            sent_at: Duration::ZERO,
            waited: Duration::ZERO,
            hint: None,
        };
        RetryReport {
            earlier: vec![attempt.clone()],
            last: attempt,
            stop: StopReason::RetriesExhausted,
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

    fn letter(request: &mut Request, factory: Option<&BodyFactory>, has_key: bool) -> DeadLetter {
        let header = HeaderName::from_static("idempotency-key");
        Draft::of(request, factory, &header, has_key, has_key, 10).seal(
            &Secrets::default(),
            &report(),
            MOMENT,
            MOMENT,
        )
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
        assert_eq!(letter.stop(), Some(StopReason::RetriesExhausted));
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
        let factory = BodyFactory::new(|| {
            BUILT.fetch_add(1, Ordering::SeqCst);
            "built".into()
        });
        let header = HeaderName::from_static("idempotency-key");
        let stream = || request(Some(Body::wrap(String::from("stream"))));
        let draft = Draft::of(&mut stream(), Some(&factory), &header, false, true, 10);
        assert_eq!(BUILT.load(Ordering::SeqCst), 0);
        let letter = draft.seal(&Secrets::default(), &report(), MOMENT, MOMENT);
        assert_eq!(letter.body, LetterBody::Bytes("built".into()));
        assert_eq!(BUILT.load(Ordering::SeqCst), 1);

        for (factory, body) in [
            (
                BodyFactory::new(|| "longer than ten".into()),
                LetterBody::TooLarge(15),
            ),
            (
                BodyFactory::new(|| Body::wrap(String::from("stream"))),
                LetterBody::NotReplayable,
            ),
            (
                BodyFactory::new(|| panic!("a body that cannot be built")),
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
