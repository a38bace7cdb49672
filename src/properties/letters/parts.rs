//! Random letters, with any request and any report.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arbitrary::{Result, Unstructured};
use http::{Extensions, HeaderName, HeaderValue, Method, StatusCode};
use reqwest::{Body, Request};

use crate::dead_letter::{DeadLetter, DeadLetters, LetterBody, LetterDraft};
use crate::outcome::{
    AttemptOutcome, AttemptReport, Effect, FailureKind, RetryReport, StopReason, WaitReason,
};
use crate::properties::address;
use crate::request::RequestSnapshot;

const MAX_BODY: usize = 40;

pub(super) fn letter(input: &mut Unstructured<'_>) -> Result<Arc<DeadLetter>> {
    let mut request = Request::new(method(input)?, address());
    if input.ratio(1, 2)? {
        let url = request.url_mut();
        url.set_path(&text(input)?);
        url.set_query(Some(&text(input)?));
        url.set_fragment(Some("part"));
        let _ = url.set_username(input.choose(&["", "me"])?);
    }
    let names = [
        "x-trace",
        "accept",
        "authorization",
        "cookie",
        "content-type",
    ];
    for _ in 0..input.int_in_range(0..=3)? {
        let name = HeaderName::from_static(input.choose(&names)?);
        if let Ok(mut value) = HeaderValue::from_bytes(&bytes(input, 20)?) {
            value.set_sensitive(input.ratio(1, 8)?);
            request.headers_mut().append(name, value);
        }
    }
    let has_key = input.ratio(1, 2)?;
    let key_header = HeaderName::from_static("idempotency-key");
    let key = *input.choose(&["order-1", "\"order 1\"", "~"])?;
    if has_key {
        let value = HeaderValue::from_static(key);
        request.headers_mut().insert(&key_header, value);
    }
    let body = match input.ratio(3, 4)? {
        true => Some(bytes(input, MAX_BODY + 1)?),
        false => None,
    };
    *request.body_mut() = body.clone().map(Body::from);

    let snapshot = RequestSnapshot::of(&mut request, false, &Extensions::new());
    let draft = LetterDraft {
        request: &snapshot,
        factory: None,
        key_header: &key_header,
        has_key,
        repeatable: true,
    };
    let settings = DeadLetters {
        max_body: MAX_BODY,
        ..DeadLetters::default()
    };
    let (time, not_before) = (moment(input)?, moment(input)?);
    let pause = not_before.duration_since(time).unwrap_or_default();
    let letter = draft.into_letter(&settings, &report(input)?, time, pause);
    check(&letter, &request, body, has_key.then_some(key));
    Ok(Arc::new(letter))
}

/// Checks that the letter has the whole request except its secrets.
fn check(letter: &DeadLetter, request: &Request, body: Option<Vec<u8>>, key: Option<&str>) {
    assert_eq!(letter.method(), request.method());
    assert_eq!(letter.key(), key);
    let body_is_kept = match (letter.body(), body) {
        (LetterBody::Empty, None) => true,
        (LetterBody::Bytes(kept), Some(body)) => *kept == body && body.len() <= MAX_BODY,
        (LetterBody::TooLarge(length), Some(body)) => {
            body.len() > MAX_BODY && *length == body.len() as u64
        }
        _ => false,
    };
    assert!(body_is_kept, "{letter:?}");
    let sent = request.headers().iter();
    let mut sent = sent.filter(|(name, _)| *name != "idempotency-key");
    for (name, kept) in letter.headers() {
        let (sent_name, value) = sent.next().expect("a header that was sent");
        assert_eq!(name, sent_name);
        let says_secret = ["authorization", "cookie"].contains(&name.as_str());
        // A value that is a URL with a secret is redacted, too. Such a URL contains one of these bytes.
        let may_be_url = value.as_bytes().iter().any(|byte| b"=@".contains(byte));
        match kept {
            Some(kept) => assert!(kept == value && !value.is_sensitive() && !says_secret),
            None => assert!(value.is_sensitive() || says_secret || may_be_url, "{name}"),
        }
    }
    assert!(sent.next().is_none());
    assert!(letter.url().username().is_empty() && letter.url().fragment().is_none());
    assert!(format!("{letter} {letter:?}").contains(letter.method().as_str()));
}

fn method(input: &mut Unstructured<'_>) -> Result<Method> {
    let method = Method::from_bytes(&bytes(input, 8)?);
    Ok(method.unwrap_or(Method::POST))
}

fn report(input: &mut Unstructured<'_>) -> Result<RetryReport> {
    let earlier = (0..input.int_in_range(0..=2)?).map(|_| attempt(input));
    Ok(RetryReport {
        earlier: earlier.collect::<Result<_>>()?,
        last: attempt(input)?,
        refused_wait: Duration::ZERO,
        took: duration(input)?,
        stop_reason: *input.choose(&[
            StopReason::RetriesExhausted,
            StopReason::BudgetEmpty,
            StopReason::ServerDelayTooLong,
        ])?,
    })
}

fn attempt(input: &mut Unstructured<'_>) -> Result<AttemptReport> {
    Ok(AttemptReport {
        outcome: match input.ratio(1, 2)? {
            true => AttemptOutcome::Failure(*input.choose(&FailureKind::ALL)?),
            false => {
                let status = StatusCode::from_u16(input.int_in_range(100..=999)?);
                AttemptOutcome::Status(status.unwrap())
            }
        },
        sent_at: duration(input)?,
        waited: duration(input)?,
        wait_reason: match input.ratio(1, 2)? {
            true => Some(*input.choose(&WaitReason::ALL)?),
            false => None,
        },
        took: duration(input)?,
        hint: match input.ratio(1, 3)? {
            true => Some(duration(input)?),
            false => None,
        },
        effect: *input.choose(&Effect::ALL)?,
    })
}

fn duration(input: &mut Unstructured<'_>) -> Result<Duration> {
    Ok(match input.int_in_range(0..=3)? {
        0 => Duration::MAX,
        1 => Duration::from_millis(input.int_in_range(0..=100_000)?),
        _ => Duration::new(input.arbitrary()?, input.int_in_range(0..=999_999_999)?),
    })
}

/// Returns a time that a clock may show.
fn moment(input: &mut Unstructured<'_>) -> Result<SystemTime> {
    let after = Duration::new(
        input.int_in_range(0..=1 << 40)?,
        input.int_in_range(0..=999_999_999)?,
    );
    Ok(match input.ratio(1, 16)? {
        true => UNIX_EPOCH - after,
        false => UNIX_EPOCH + after,
    })
}

fn bytes(input: &mut Unstructured<'_>, most: usize) -> Result<Vec<u8>> {
    let length = input.int_in_range(0..=most)?;
    Ok(input.bytes(length.min(input.len()))?.to_vec())
}

fn text(input: &mut Unstructured<'_>) -> Result<String> {
    Ok(String::from_utf8_lossy(&bytes(input, 12)?).into_owned())
}
