//! Rate limits: the structured `RateLimit` field of every draft, and the older headers next to it.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use arbitrary::{Result, Unstructured};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::schedule::{quota_left, server_hint};

/// A well-formed field means what the drafts say. A malformed field means nothing.
pub fn limits(data: &[u8]) {
    let _ = compare(&mut Unstructured::new(data));
}

/// The remaining requests, if they are given, and the seconds until the window refills.
#[derive(Clone, Copy, Debug)]
struct ModelWindow {
    left: Option<u64>,
    reset: u64,
}

fn compare(input: &mut Unstructured<'_>) -> Result<()> {
    let mut headers = HeaderMap::new();
    let mut structured = Vec::new();
    let has_field = input.ratio(5, 6)?;
    if has_field {
        let field;
        (field, structured) = field_and_windows(input)?;
        for line in field {
            match HeaderValue::from_bytes(&line) {
                Ok(value) => headers.append("ratelimit", value),
                Err(_) => return Ok(()),
            };
        }
    }
    let mut named = Vec::new();
    for (remaining, reset) in [
        ("ratelimit-remaining", "ratelimit-reset"),
        ("x-ratelimit-remaining", "x-ratelimit-reset"),
        ("x-rate-limit-remaining", "x-rate-limit-reset"),
    ] {
        // Each gateway may add a line. The smallest number counts.
        let mut left = None;
        // A fixed number of rounds, because an exhausted input always returns true.
        for _ in 0..2 {
            if !input.ratio(1, 4)? {
                continue;
            }
            let number = input.int_in_range(0..=3)?;
            headers.append(remaining, HeaderValue::from(number));
            left = Some(left.map_or(number, |left: u64| left.min(number)));
        }
        if input.ratio(1, 4)? {
            let reset_after = input.int_in_range(0..=999_999_999)?;
            headers.insert(reset, HeaderValue::from(reset_after));
            let reset = reset_after;
            named.push(ModelWindow { left, reset });
        }
    }
    let status = *input.choose(&[200, 403, 429, 500, 503])?;

    let left = quota_left(&headers);
    let expected = if structured.is_empty() {
        named.first().map(std::slice::from_ref).unwrap_or_default()
    } else {
        &structured[..]
    };
    assert_eq!(left, least_left(expected), "{headers:?}");

    let hint = server_hint(StatusCode::from_u16(status).unwrap(), &headers, UNIX_EPOCH);
    let each = named.iter().map(std::slice::from_ref);
    let mut all = std::iter::once(&structured[..]).chain(each);
    let expected = all.find_map(|windows| wait(windows, status));
    assert_eq!(hint, expected, "{status} {headers:?}");
    Ok(())
}

/// Returns the window with the fewest requests; of several, the one that refills last.
fn least_left(windows: &[ModelWindow]) -> Option<(u64, Duration)> {
    let mut least: Option<(u64, u64)> = None;
    for window in windows {
        if let Some(left) = window.left {
            least = match least {
                Some((known, reset)) if known < left => Some((known, reset)),
                Some((known, reset)) if known == left => Some((known, reset.max(window.reset))),
                _ => Some((left, window.reset)),
            };
        }
    }
    least.map(|(left, reset)| (left, Duration::from_secs(reset)))
}

/// Returns the time until all spent windows have refilled.
///
/// If none is spent, a 429 counts the windows without a remainder: the first refill. Windows with quota left say
/// nothing.
fn wait(windows: &[ModelWindow], status: u16) -> Option<Duration> {
    let resets = |left: Option<u64>| {
        let windows = windows.iter().filter(move |window| window.left == left);
        windows.map(|window| window.reset)
    };
    let last_spent = resets(Some(0)).max();
    let first = resets(None).min();
    let reset = last_spent.or(first.filter(|_| status == 429))?;
    Some(Duration::from_secs(reset))
}

/// Returns the lines of a field, and the windows that it describes.
fn field_and_windows(input: &mut Unstructured<'_>) -> Result<(Vec<Vec<u8>>, Vec<ModelWindow>)> {
    let (mut members, mut windows) = if input.ratio(2, 3)? {
        list(input)?
    } else {
        dictionary(input)?
    };
    if input.ratio(1, 5)? {
        // A malformed field is ignored completely.
        let fault = *input.choose(&[
            &b""[..],
            b"\"open;r=0;t=1",
            b"a;r=0;t=1000000000000000",
            b"a;R=0",
            b"a;t=",
            b"a;t=1;",
            b"(a;t=1",
            b"a b;t=1",
            b"\"\xff\";t=1",
            b"limit=1,,reset=2",
            b"reset=1.",
            b"-",
        ])?;
        // An empty member is malformed only next to others.
        if !fault.is_empty() || !members.is_empty() {
            let at = input.int_in_range(0..=members.len())?;
            members.insert(at, fault.to_vec());
            windows.clear();
        }
    }
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for member in members {
        match lines.last_mut() {
            Some(line) if input.ratio(2, 3)? => {
                line.extend_from_slice(input.choose(&[&b", "[..], b",", b" ,  ", b"\t,\t"])?);
                line.extend_from_slice(&member);
            }
            _ => lines.push(member),
        }
    }
    Ok((lines, windows))
}

/// Returns a field since draft 8: `"name";r=50;t=30, …`.
fn list(input: &mut Unstructured<'_>) -> Result<(Vec<Vec<u8>>, Vec<ModelWindow>)> {
    let (mut members, mut windows) = (Vec::new(), Vec::new());
    for _ in 0..input.int_in_range(0..=4)? {
        let names = [
            "\"day\"",
            "\"a,b;c=\\\"d\\\\\"",
            "minute",
            "*a/b",
            "7",
            "(a \"b\")",
        ];
        let mut member = input.choose(&names)?.to_string();
        let (mut left, mut reset) = (None, None);
        for _ in 0..input.int_in_range(0..=4)? {
            let (text, number) = item(input)?;
            // Of several parameters with one name, the last counts.
            match input.int_in_range(0..=3)? {
                0 => {
                    let _ = write!(member, ";pk{text}");
                }
                1 => {
                    left = number;
                    let _ = write!(member, "; r{text}");
                }
                _ => {
                    reset = number;
                    let _ = write!(member, ";t{text}");
                }
            }
        }
        windows.extend(reset.map(|reset| ModelWindow { left, reset }));
        members.push(member.into_bytes());
    }
    Ok((members, windows))
}

/// Returns a field of draft 7: `limit=100, remaining=50, reset=30`.
fn dictionary(input: &mut Unstructured<'_>) -> Result<(Vec<Vec<u8>>, Vec<ModelWindow>)> {
    // A member with a value, so that the field is not a list.
    let mut members = vec![b"limit=100".to_vec()];
    let (mut left, mut reset) = (None, None);
    for _ in 0..input.int_in_range(0..=4)? {
        let (text, number) = item(input)?;
        let name = match input.int_in_range(0..=3)? {
            0 => "window",
            1 => {
                left = number;
                "remaining"
            }
            _ => {
                reset = number;
                "reset"
            }
        };
        members.push(format!("{name}{text}").into_bytes());
    }
    let window = reset.map(|reset| ModelWindow { left, reset });
    Ok((members, window.into_iter().collect()))
}

/// Returns a value with its `=`, and its number if it is a valid one.
fn item(input: &mut Unstructured<'_>) -> Result<(String, Option<u64>)> {
    Ok(match input.int_in_range(0..=9)? {
        0 => ("=0".into(), Some(0)),
        1 => ("=-0".into(), Some(0)),
        2 => {
            let number = input.int_in_range(0..=999_999_999_999_999)?;
            (format!("={number}"), Some(number))
        }
        3 => (format!("=-{}", input.int_in_range(1..=999)?), None),
        4 => (format!("={}.5", input.int_in_range(0..=999)?), None),
        5 => (String::new(), None),
        6 => {
            let texts = ["=\"5\"", "=five", "=?1", "=:NQ==:", "=@5"];
            (input.choose(&texts)?.to_string(), None)
        }
        _ => {
            let number = input.int_in_range(0..=99)?;
            (format!("={number:02}"), Some(number))
        }
    })
}
