use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use proptest::prelude::*;
use reqwest::Url;

use super::*;
use crate::dead_letter::{LetterBody, Redacted};
use crate::outcome::{AttemptOutcome, AttemptReport, Effect, FailureKind, StopReason, WaitReason};

fn header_value() -> impl Strategy<Value = HeaderValue> {
    proptest::collection::vec(any::<u8>(), 0..20).prop_filter_map("no header value", |bytes| {
        HeaderValue::from_bytes(&bytes).ok()
    })
}

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (any::<u64>(), 0..1_000_000_000u32).prop_map(|(s, n)| Duration::new(s, n)),
        (0..1_000_000u64).prop_map(Duration::from_micros),
        Just(Duration::ZERO),
        Just(Duration::MAX),
    ]
}

fn any_time() -> impl Strategy<Value = SystemTime> {
    (0..253_402_207_200u64, 0..1_000_000_000u32)
        .prop_map(|(s, n)| SystemTime::UNIX_EPOCH + Duration::new(s, n))
}

fn any_outcome() -> impl Strategy<Value = AttemptOutcome> {
    prop_oneof![
        (100..1000u16).prop_map(|code| AttemptOutcome::Status(StatusCode::from_u16(code).unwrap())),
        proptest::sample::select(&FailureKind::ALL[..]).prop_map(AttemptOutcome::Failure),
    ]
}

prop_compose! {
    fn any_attempt()(
        outcome in any_outcome(),
        sent_at in any_duration(),
        waited in any_duration(),
        wait_reason in proptest::option::of(proptest::sample::select(&WaitReason::ALL[..])),
        took in any_duration(),
        hint in proptest::option::of(any_duration()),
        effect in proptest::sample::select(&Effect::ALL[..]),
    ) -> AttemptReport {
        AttemptReport { outcome, sent_at, waited, wait_reason, took, hint, effect }
    }
}

fn any_body() -> impl Strategy<Value = LetterBody> {
    prop_oneof![
        Just(LetterBody::Empty),
        proptest::collection::vec(any::<u8>(), 0..50)
            .prop_map(|bytes| LetterBody::Bytes(bytes.into())),
        any::<String>().prop_map(|text| LetterBody::Bytes(text.into())),
        any::<u64>().prop_map(LetterBody::TooLarge),
        Just(LetterBody::NotReplayable),
    ]
}

fn header_name() -> impl Strategy<Value = HeaderName> {
    "[a-z][a-z0-9-]{0,10}".prop_map(|name| name.parse().unwrap())
}

prop_compose! {
    fn any_letter()(
        (time, not_before) in (any_time(), any_time()),
        method in "[A-Z!~]{1,10}",
        query in "[ -~é]{0,30}",
        parameters in proptest::collection::vec(any::<String>(), 0..3),
        headers in proptest::collection::vec(
            (header_name(), proptest::option::of(header_value())), 0..5),
        body in any_body(),
        key in proptest::option::of((header_name(), "[!-~]{1,20}")),
        repeatable in any::<bool>(),
        attempts in proptest::collection::vec(any_attempt(), 0..4),
        reason in "[a-z_]{1,20}",
    ) -> DeadLetter {
        let mut url = Url::parse("https://api.example.com/orders").unwrap();
        url.set_query(Some(&query));
        DeadLetter {
            time,
            method: Method::from_bytes(method.as_bytes()).unwrap(),
            url,
            url_redacted: parameters.into_iter().map(Redacted::Parameter)
                .chain([Redacted::UserInfo]).collect(),
            headers,
            body,
            key: key.map(|(name, value)| (name, HeaderValue::try_from(value).unwrap())),
            repeatable,
            attempts,
            reason,
            not_before,
        }
    }
}

proptest! {
    #[test]
    fn a_letter_that_is_read_is_the_one_that_was_written(letter in any_letter()) {
        let line = encode(&letter, u64::MAX).unwrap();
        prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        prop_assert!(decode(&line).unwrap() == letter);
    }

    #[test]
    fn any_part_of_a_letter_is_torn(letter in any_letter(), part in 0.0..1.0f64) {
        let line = encode(&letter, u64::MAX).unwrap();
        let length = (line.len() - 1) as f64 * part;
        let read = decode(&line[..length as usize]);
        prop_assert!(matches!(read, Err(InvalidLine::Torn)), "{:?}", read);
    }

    #[test]
    fn no_line_makes_it_panic(line in any::<Vec<u8>>()) {
        let _ = decode(&line);
    }
}

const EXAMPLE: &str = r#"{"version":1,"time":"2026-11-16T09:00:00.5Z","method":"POST","url":"https://api.example.com/orders?page=7&token=REDACTED","redacted":["user_info",{"parameter":"token"}],"headers":[["x-a","1"],["authorization",null],["x-b",{"base64":"/zE="}]],"body":{"text":"bytes"},"key":{"header":"idempotency-key","value":"order-1"},"repeatable":true,"attempts":[{"outcome":"503","sent_at":"0s","waited":"0s","took":"0.13s","hint":"1s","effect":"unknown"},{"outcome":"timeout","sent_at":"1.38s","waited":"1.25s","took":"10s","effect":"did_not_happen"}],"reason":"retries_exhausted","not_before":"2026-11-16T09:00:10Z"}"#;

#[test]
fn the_form_of_version_1_stays_as_it_is() {
    let letter = decode(EXAMPLE.as_bytes()).unwrap();
    let text = String::from_utf8(encode(&letter, u64::MAX).unwrap()).unwrap();
    assert_eq!(text.trim_end(), EXAMPLE);
    assert_eq!(letter.stop_reason(), Some(StopReason::RetriesExhausted));
    let last = &letter.attempts()[1];
    assert_eq!(last.sent_at(), Duration::from_millis(1380));
    assert_eq!(last.took(), Duration::from_secs(10));
    assert_eq!(last.effect(), Effect::DidNotHappen);
    assert_eq!(letter.key(), Some("order-1"));
}

#[test]
fn a_letter_without_times_and_effects_can_be_read() {
    let older = EXAMPLE
        .replace(",\"took\":\"0.13s\"", "")
        .replace(",\"took\":\"10s\"", "")
        .replace(",\"effect\":\"unknown\"", "")
        .replace(",\"effect\":\"did_not_happen\"", "");
    let letter = decode(older.as_bytes()).unwrap();
    for attempt in letter.attempts() {
        assert_eq!(attempt.took(), Duration::ZERO);
        assert_eq!(attempt.effect(), Effect::Unknown);
    }
}

#[test]
fn a_line_that_could_not_be_read_is_not_written() {
    let letter = decode(EXAMPLE.as_bytes()).unwrap();
    let length = EXAMPLE.len() as u64;
    assert!(encode(&letter, length).is_ok());
    let error = encode(&letter, length - 1).unwrap_err().to_string();
    let (length, max) = (length.to_string(), (length - 1).to_string());
    assert!(error.contains(&length) && error.contains(&max), "{error}");
}

#[test]
fn a_body_is_text_unless_control_characters_make_that_longer_than_base64() {
    let of = |text: &str| {
        let body = LetterBody::Bytes(text.to_owned().into());
        let written = serde_json::to_string(&BodyRecord::new(&body)).unwrap();
        let read: BodyRecord = serde_json::from_str(&written).unwrap();
        assert!(read.into_body().unwrap() == body, "{written}");
        written
    };
    assert_eq!(of(""), r#"{"text":""}"#);
    let json = r#"{"a":"b","c":"\\"}"#;
    assert!(of(json).starts_with(r#"{"text":"#));
    assert_eq!(of("\r\n\t"), r#"{"text":"\r\n\t"}"#);
    assert_eq!(of("\0\0\0"), r#"{"base64":"AAAA"}"#);
    assert_eq!(of("\u{1b}[1m, once"), r#"{"text":"\u001b[1m, once"}"#);
    // No single character makes the text more than twice as long.
    for byte in 0..0x80u8 {
        let text = char::from(byte).to_string().repeat(300);
        assert!(of(&text).len() <= 600 + r#"{"text":""}"#.len(), "{byte}");
    }
}

#[test]
fn what_a_later_version_adds_does_not_make_a_letter_unreadable() {
    let later = EXAMPLE
        .replace("{\"version\":1,", "{\"version\":1,\"new\":[{}],")
        .replace("retries_exhausted", "bored")
        .replace("timeout", "sunspots");
    let letter = decode(later.as_bytes()).unwrap();
    assert_eq!(letter.stop_reason(), None);
    assert_eq!(letter.stop_reason_label(), "bored");
    let last = letter.attempts()[1].outcome();
    assert_eq!(last, AttemptOutcome::Failure(FailureKind::Other));
}

#[test]
fn a_line_that_is_no_letter_says_why_and_shows_nothing() {
    let fault = |line: &str| decode(line.as_bytes()).unwrap_err();
    assert_eq!(
        fault(r#"{"version":2,"hidden":true}"#),
        InvalidLine::Version(2)
    );
    let another = EXAMPLE.replace("\"version\":1", "\"version\":7");
    assert_eq!(fault(&another), InvalidLine::Version(7));
    for (from, to, field) in [
        ("https://api", "hidden", "url"),
        ("\"POST\"", "\"hid den\"", "method"),
        ("x-a", "hid den", "headers"),
        ("/zE=", "hidden!", "headers"),
        ("2026-11-16T09:00:00.5Z", "hidden", "time"),
        ("1.38s", "hidden", "attempts"),
        ("1.38s", "1.0000000001s", "attempts"),
        ("1.38s", "-1s", "attempts"),
        ("1.38s", "s", "attempts"),
        ("503", "99", "attempts"),
    ] {
        assert_eq!(
            fault(&EXAMPLE.replace(from, to)),
            InvalidLine::Field(field),
            "{to}"
        );
    }
    for line in [
        "hidden",
        "[]",
        "{\"version\":\"hidden\"}",
        "{}",
        "{} hidden",
    ] {
        let fault = fault(line);
        assert!(matches!(fault, InvalidLine::Syntax { .. }), "{fault:?}");
    }
}

#[test]
fn all_labels_can_be_read_back() {
    for kind in FailureKind::ALL {
        // The match makes the compiler complain about a new kind. Add it to `ALL` as well.
        match kind {
            FailureKind::Dns
            | FailureKind::Connect
            | FailureKind::Timeout
            | FailureKind::Reset
            | FailureKind::Incomplete
            | FailureKind::NotProcessed
            | FailureKind::Handshake
            | FailureKind::Builder
            | FailureKind::Redirect
            | FailureKind::Decode
            | FailureKind::Middleware
            | FailureKind::Throttled
            | FailureKind::Other => {}
        }
        assert_eq!(FailureKind::from_label(kind.as_str()), Some(kind));
    }
    assert_eq!(FailureKind::from_label("sunspots"), None);
}
