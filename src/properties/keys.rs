//! Idempotency keys: which are valid, and what the request then contains.

use std::sync::{Arc, LazyLock};

use arbitrary::{Result, Unstructured};
use http::{HeaderName, HeaderValue, Method};
use reqwest_middleware::{ClientWithMiddleware, RequestBuilder};

use super::{address, headers_of};
use crate::decide::{AutoKey, KeyRule};
use crate::request::{IdempotencyKey, RequestBuilderExt, RequestOptions};

/// Only keys contain this text, so output that contains it shows a key.
const MARK: &str = "zqx";

const HEADER: &str = "idempotency-key";

/// Returns a client that only builds requests and sends none.
fn client() -> &'static ClientWithMiddleware {
    static CLIENT: LazyLock<ClientWithMiddleware> = LazyLock::new(|| reqwest::Client::new().into());
    &CLIENT
}

/// Keys and plain headers of any text are checked as documented.
///
/// A valid key is sent unchanged in the configured header, both after `send` and after `build` and `execute`.
pub fn keys(data: &[u8]) {
    let mut input = Unstructured::new(data);
    // Input that is too short reads as zero.
    let _ = own_text(&mut input).and_then(|()| request(&mut input));
}

/// Whether this is 1 to 255 visible ASCII characters.
fn is_key(text: &[u8]) -> bool {
    (1..=255).contains(&text.len()) && text.iter().all(|byte| (0x21..=0x7e).contains(byte))
}

fn own_text(input: &mut Unstructured<'_>) -> Result<()> {
    let bytes = text(input)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let key = match IdempotencyKey::new(text.clone()) {
        Ok(key) => key,
        Err(refused) => {
            assert!(!is_key(text.as_bytes()), "refused {text:?}: {refused}");
            let shown = format!("{refused} {refused:?}");
            assert!(!shown.contains(MARK), "{shown}");
            return Ok(());
        }
    };
    assert!(is_key(text.as_bytes()), "accepted {text:?}");
    assert_eq!(key.as_str(), text);
    assert_eq!(key.header_value(), &text);
    assert_eq!(IdempotencyKey::try_from(text.as_str()).as_ref(), Ok(&key));
    let quoted = key.clone().quoted();
    assert_eq!(quoted.as_str(), text);
    let unquoted = unquote(quoted.header_value().as_bytes());
    assert_eq!(unquoted, Some((text.clone().into_bytes(), &b""[..])));
    assert_eq!(quoted.clone().quoted(), quoted);
    for key in [&key, &quoted] {
        let shown = format!("{key:?} {:?}", key.header_value());
        assert!(!shown.contains(MARK), "{shown}");
    }
    Ok(())
}

fn request(input: &mut Unstructured<'_>) -> Result<()> {
    let method = input.choose(&["GET", "QUERY", "PUT", "DELETE", "POST", "PATCH", "LOCK"])?;
    let method_name = Method::from_bytes(method.as_bytes()).unwrap();
    let mut rule = KeyRule::default();
    rule.auto = *input.choose(&[AutoKey::Off, AutoKey::Random, AutoKey::Content])?;
    let header = *input.choose(&[HEADER, "x-order-key"])?;
    let renamed = header != HEADER;
    rule.rename(HeaderName::from_static(header));

    let mut builder = client().request(method_name, address());
    let marked = input.ratio(1, 4)?;
    if marked {
        builder = builder.mark_idempotent();
    }
    let key = String::from_utf8_lossy(&text(input)?).into_owned();
    let key = input.ratio(1, 3)?.then_some(key);
    let mut by_hand = Vec::new();
    for _ in 0..input.int_in_range(0..=2)? {
        if let Ok(value) = HeaderValue::from_bytes(&text(input)?) {
            by_hand.push((*input.choose(&[header, HEADER])?, value));
        }
    }
    let earlier = input.ratio(1, 2)?;
    let add = |builder: RequestBuilder| {
        let lines = by_hand.iter();
        lines.fold(builder, |builder, (name, value)| {
            builder.header(*name, value)
        })
    };
    if earlier {
        builder = add(builder);
    }
    if let Some(key) = &key {
        builder = builder.idempotency_key(key.as_str());
    }
    if !earlier {
        builder = add(builder);
    }
    let body = text(input)?;
    if input.ratio(1, 2)? {
        builder = builder.body(body.clone());
    }
    let extensions = builder.extensions().clone();
    let is_valid = key.as_ref().is_none_or(|key| is_key(key.as_bytes()));
    let mut request = match builder.build() {
        Ok(request) => request,
        Err(_) => {
            assert!(!is_valid, "{key:?}");
            return Ok(());
        }
    };
    assert!(is_valid, "{key:?}");
    // After `build` and `execute` the options are lost.
    let own = match input.ratio(1, 2)? {
        true => RequestOptions::of(&extensions).map(Arc::as_ref),
        false => None,
    };
    let marked = marked && own.is_some();
    let applied = rule.apply(&mut request, own);

    let lines_of = |name: &str| {
        let lines = by_hand.iter().filter(move |(of, _)| *of == name);
        lines.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    if renamed {
        let left = headers_of(request.headers(), HEADER);
        assert!(left.into_iter().eq(&lines_of(HEADER)), "changed by hand");
    }
    let mut lines = lines_of(header);
    let mut set = key.map(|key| IdempotencyKey::new(key).unwrap());
    if own.is_none() && !renamed {
        // Then its header line is like one that was set by hand, in its original position.
        let place = if earlier { lines.len() } else { 0 };
        lines.splice(
            place..place,
            set.take().map(|key| key.header_value().clone()),
        );
    }
    let sent = headers_of(request.headers(), header);
    let safe = ["GET", "QUERY"].contains(method);
    let idempotent = safe || ["PUT", "DELETE"].contains(method);
    match (&set, &lines[..]) {
        // The key of the caller replaces any other key.
        (Some(key), _) => {
            assert_eq!(applied, Ok(true));
            assert_eq!(sent, [key.header_value()]);
            assert!(sent[0].is_sensitive());
        }
        // A safe method has no effect to repeat.
        (None, lines) if safe => {
            assert_eq!(applied, Ok(false));
            assert!(sent.iter().copied().eq(lines));
        }
        (None, []) if rule.auto == AutoKey::Off || idempotent || marked => {
            assert_eq!((applied, sent.len()), (Ok(false), 0));
        }
        (None, []) => {
            assert_eq!((applied, sent.len()), (Ok(true), 1));
            let text = sent[0].to_str().unwrap();
            assert!(is_key(text.as_bytes()) && sent[0].is_sensitive());
            if rule.auto == AutoKey::Content {
                let body = request.body().map_or(&[][..], |_| &body);
                let again = IdempotencyKey::from_content(request.method(), request.url(), body);
                assert_eq!(text, again.as_str());
            }
        }
        (None, lines) => {
            assert!(sent.iter().copied().eq(lines), "a plain header is changed");
            let expected = match lines {
                [line] if line.is_sensitive() => Some(true),
                [line] => is_plain_key(line.as_bytes()),
                _ => Some(false),
            };
            if let Some(expected) = expected {
                assert_eq!(applied.is_ok(), expected, "{lines:?}: {applied:?}");
            }
            assert_ne!(applied, Ok(false));
            if let Err(refused) = applied {
                let shown = format!("{refused} {refused:?}");
                assert!(!shown.contains(MARK), "{shown}");
            }
        }
    }
    Ok(())
}

/// Whether a plain header is a valid key: by the same rules, or as a structured string, which may contain spaces.
///
/// `None` for a string with parameters, because the documentation does not cover it.
fn is_plain_key(line: &[u8]) -> Option<bool> {
    if !line.starts_with(b"\"") {
        return Some(is_key(line));
    }
    let Some((text, rest)) = unquote(line) else {
        return Some(false);
    };
    match rest.trim_ascii_end() {
        [] if rest.contains(&b'\t') => Some(false),
        [] => Some((1..=255).contains(&text.len())),
        [b';', ..] => None,
        _ => Some(false),
    }
}

/// Returns the text of a quoted string (RFC 9651 §4.2.5), and what follows it.
fn unquote(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = line.strip_prefix(b"\"")?;
    let mut text = Vec::new();
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((text, rest)),
            b'\\' => {
                let (&escaped, after) = rest.split_first()?;
                rest = after;
                matches!(escaped, b'"' | b'\\').then(|| text.push(escaped))?;
            }
            0x20..=0x7e => text.push(byte),
            _ => return None,
        }
    }
}

/// Returns a text close to the limits: valid or invalid characters, few of them or about 255.
fn text(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut text = match input.int_in_range(0..=4)? {
        0 => Vec::new(),
        1 => MARK.into(),
        2 => format!("{MARK}-{}", "k".repeat(input.int_in_range(240..=256)?)).into(),
        3 => {
            let quoted = format!("{MARK}-{}", "k".repeat(input.int_in_range(245..=255)?));
            format!("\"{quoted}\"").into()
        }
        _ => vec![b'"'],
    };
    let length = input.int_in_range(0..=12)?;
    let more = input.bytes(length.min(input.len()))?;
    let at = input.int_in_range(0..=text.len())?;
    text.splice(at..at, more.iter().copied());
    Ok(text)
}
