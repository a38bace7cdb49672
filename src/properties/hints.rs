//! The hint of a server, for any headers.
//!
//! Headers with a known meaning are compared with a model. Arbitrary bytes are compared with variants of themselves.

mod model;
mod values;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arbitrary::{Result, Unstructured};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use self::model::{FIRST_THAT_PARSES, Line, ModelResponse, QUOTAS, Reading};
use self::values::{ModelValue, digits, model_value};
use crate::schedule::server_hint;

/// A hint is what the headers say, and never shorter.
pub fn hints(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let _ = match input.int_in_range(0..=3).unwrap_or_default() {
        0 => any_bytes(&mut input),
        1 => more_digits(&mut input),
        _ => beside_the_model(&mut input),
    };
}

fn beside_the_model(input: &mut Unstructured<'_>) -> Result<()> {
    let received = moment(input)?;
    let mut response = ModelResponse {
        status: *input.choose(&[429, 503, 500, 200, 301, 403, 404, 502, 999])?,
        received: nanos_since_epoch(received),
        lines: Vec::new(),
    };
    let now = response.received.div_euclid(1_000_000_000);
    let mut headers = HeaderMap::new();
    for _ in 0..input.int_in_range(1..=6)? {
        let name = name(input)?;
        let model_value = if name == "ratelimit" {
            let (left, reset) = (input.int_in_range(0..=3)?, input.int_in_range(0..=99_999)?);
            let left = (left < 3).then_some(left);
            let remainder = left.map(|left| format!(";r={left}")).unwrap_or_default();
            let text = format!("\"default\"{remainder};t={reset}").into();
            ModelValue::window(text, left, reset)
        } else {
            model_value(input, now)?
        };
        let Ok(value) = HeaderValue::from_bytes(&model_value.text) else {
            return Ok(());
        };
        if name == "ratelimit" && headers.contains_key("ratelimit") {
            continue;
        }
        headers.append(name, value);
        response.lines.push(Line {
            name,
            value: model_value,
        });
    }
    let hint = server_hint(status(response.status), &headers, received);
    let expected = response.hint();
    let agrees = match (expected, hint) {
        (Reading::Unsure, _) | (Reading::Nothing, None) => true,
        (Reading::Wait(expected), Some(hint)) => expected.is(hint),
        _ => false,
    };
    assert!(agrees, "{hint:?} for {expected:?}: {response:?}");
    Ok(())
}

/// Another line never makes a hint shorter, and a later header never overrules an earlier one.
fn any_bytes(input: &mut Unstructured<'_>) -> Result<()> {
    let received = moment(input)?;
    let status = status(input.int_in_range(100..=999)?);
    let hint = |lines: &[(&'static str, &HeaderValue)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), (*value).clone());
        }
        let before = headers.clone();
        let hint = server_hint(status, &headers, received);
        assert_eq!(headers, before);
        hint
    };
    let names = [name(input)?, name(input)?];
    let mut values = Vec::new();
    for _ in 0..2 {
        let length = input.int_in_range(0..=40)?;
        let bytes = input.bytes(length.min(input.len()))?;
        match HeaderValue::from_bytes(bytes) {
            Ok(value) => values.push(value),
            Err(_) => return Ok(()),
        }
    }
    let both = hint(&[(names[0], &values[0]), (names[1], &values[1])]);
    let is_first = |name: &str| FIRST_THAT_PARSES.iter().position(|first| *first == name);
    if let (Some(first), Some(second)) = (is_first(names[0]), is_first(names[1])) {
        let (one, other) = (
            hint(&[(names[0], &values[0])]),
            hint(&[(names[1], &values[1])]),
        );
        let expected = match first.cmp(&second) {
            std::cmp::Ordering::Less => one.or(other),
            std::cmp::Ordering::Equal => one.max(other),
            std::cmp::Ordering::Greater => other.or(one),
        };
        assert_eq!(both, expected, "{names:?}: {values:?}");
    }
    Ok(())
}

/// A larger number is a longer wait, however many digits it has.
fn more_digits(input: &mut Unstructured<'_>) -> Result<()> {
    let name = *input.choose(FIRST_THAT_PARSES)?;
    let (one, other) = (digits(input, 40)?, digits(input, 40)?);
    let hint = |digits: &str| {
        let value = HeaderValue::from_str(digits).unwrap();
        let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
        server_hint(StatusCode::OK, &headers, UNIX_EPOCH).expect("a number is a hint")
    };
    let size = |digits: &str| {
        let significant = digits.trim_start_matches('0').to_owned();
        (significant.len(), significant)
    };
    let (shorter, longer) = if size(&one) <= size(&other) {
        (&one, &other)
    } else {
        (&other, &one)
    };
    assert!(hint(shorter) <= hint(longer), "{name}: {shorter}, {longer}");
    assert!(hint(longer) <= hint(&format!("{longer}0")), "{longer}");
    if let ("retry-after", Ok(seconds)) = (name, one.parse::<u32>()) {
        assert_eq!(hint(&one), Duration::from_secs(seconds.into()));
    }
    Ok(())
}

fn name(input: &mut Unstructured<'_>) -> Result<&'static str> {
    Ok(match input.int_in_range(0..=9)? {
        0..=3 => input.choose(FIRST_THAT_PARSES)?,
        4..=7 => {
            let group = *input.choose(QUOTAS)?;
            let (remaining, reset) = input.choose(group)?;
            if input.ratio(1, 2)? { remaining } else { reset }
        }
        8 => "date",
        _ => input.choose(&["ratelimit", "x-request-id"])?,
    })
}

/// Returns any time that a clock may show, also before 1970 and after 9999.
fn moment(input: &mut Unstructured<'_>) -> Result<SystemTime> {
    let seconds = match input.int_in_range(0..=3)? {
        0 => input.int_in_range(0..=300_000_000_000)?,
        _ => input.int_in_range(999_999_000..=1_800_000_000)?,
    };
    let time = Duration::from_secs(seconds) + Duration::from_millis(input.int_in_range(0..=999)?);
    Ok(match input.ratio(1, 16)? {
        true => UNIX_EPOCH - time / 100,
        false => UNIX_EPOCH + time,
    })
}

fn nanos_since_epoch(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap()
}
