//! Finds fields in the beginning of a JSON text, which may be cut.
//!
//! This is no parser: nesting does not count. A name in the text of a message is not found, because its quotes are
//! escaped there.

/// Yields the values of all fields with this name that are text.
///
/// A value with an escaped quote ends there.
pub(super) fn texts<'t>(json: &'t str, name: &'static str) -> impl Iterator<Item = &'t str> {
    values(json, name).filter_map(|value| {
        let (text, _) = value.strip_prefix('"')?.split_once('"')?;
        Some(text)
    })
}

/// Returns the first value of a field that is a whole number.
pub(super) fn number(json: &str, name: &'static str) -> Option<u64> {
    values(json, name).find_map(|value| {
        let end = value.find(|c: char| !c.is_ascii_digit())?;
        let is_whole = value[end..].trim_start().starts_with([',', '}']);
        value[..end].parse().ok().filter(|_| is_whole)
    })
}

/// Yields what follows the colon of all fields with this name.
fn values<'t>(json: &'t str, name: &'static str) -> impl Iterator<Item = &'t str> {
    json.match_indices(name).filter_map(move |(at, _)| {
        let before = json[..at].strip_suffix('"')?;
        let after = json[at + name.len()..].strip_prefix('"')?;
        let value = after.trim_start().strip_prefix(':')?;
        (!before.ends_with('\\')).then(|| value.trim_start())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_at_any_depth() {
        let json =
            r#"{"a": 1, "error" : {"code":"x", "inner": {"code" : "y"}}, "code": null, "code": "z"#;
        assert_eq!(texts(json, "code").collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(texts(json, "cod").count(), 0);
        assert_eq!(texts(json, "a").count(), 0);
    }

    #[test]
    fn a_name_in_a_text_is_no_field() {
        for json in [
            r#"{"message": "set \"code\": \"x\" please"}"#,
            r#"{"message": "code: x"}"#,
            r#"{"codes": "x", "error_code": "x"}"#,
            r#"["code", "x"]"#,
        ] {
            assert_eq!(texts(json, "code").count(), 0, "{json}");
        }
    }

    #[test]
    fn a_number_is_whole_and_complete() {
        for (json, expected) in [
            (r#"{"n":7}"#, Some(7)),
            (r#"{"n" : 7 , "m": 1}"#, Some(7)),
            (r#"{"n":7"#, None),
            (r#"{"n":7.5}"#, None),
            (r#"{"n":-7}"#, None),
            (r#"{"n":"7"}"#, None),
            (r#"{"n":}"#, None),
            (r#"{"n":99999999999999999999}"#, None),
        ] {
            assert_eq!(number(json, "n"), expected, "{json}");
        }
    }
}
